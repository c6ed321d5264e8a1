/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/runs.h"

#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "scheduler/queues.h"
#include "schemas/codec.h"

static uint64_t numerics_of(const struct hello *hello)
{
    struct str parts[] = {hello->numerics_id, hello->precision, hello->revision};
    uint8_t key[16];
    uint64_t hash;

    if (hello->numerics_id.size == 0)
        return 0;
    name_key(parts, 3, key);
    memcpy(&hash, key, sizeof hash);
    return hash;
}

struct run *run_open(struct slot *slot, const struct hello *hello)
{
    struct run *run = calloc(1, sizeof *run);

    CHECK(run);
    run->hello = *hello;
    run->hello.model = str_copy(hello->model);
    run->hello.revision = str_copy(hello->revision);
    run->hello.numerics_id = str_copy(hello->numerics_id);
    run->hello.hardware = str_copy(hello->hardware);
    run->hello.precision = str_copy(hello->precision);
    run->numerics = numerics_of(hello);
    run->realm = prefix_mix(prefix_hash(hello->model), prefix_hash(hello->revision));
    run->heartbeat_sent_ms = run->worker_time_to_ms = hello->sent_ms;
    run->next = slot->runs;
    slot->runs = run;
    return run;
}

void run_close(struct slot *slot, struct run *run)
{
    struct run **link = &slot->runs;

    CHECK(run->jobs.count == 0);
    while (*link != run)
        link = &(*link)->next;
    *link = run->next;
    free((void *)run->hello.model.data);
    free((void *)run->hello.revision.data);
    free((void *)run->hello.numerics_id.data);
    free((void *)run->hello.hardware.data);
    free((void *)run->hello.precision.data);
    free(run->expert_totals);
    free(run->expert_recent);
    free(run);
}

struct run *slot_find(const struct slot *slot, const struct request_id *incarnation)
{
    for (struct run *run = slot->runs; run; run = run->next)
        if (request_id_equal(&run->hello.incarnation, incarnation))
            return run;
    return NULL;
}

struct run *slot_current(const struct slot *slot)
{
    for (struct run *run = slot->runs; run; run = run->next)
        if (!run->superseded)
            return run;
    return NULL;
}

int64_t slot_next_offset(const struct slot *slot)
{
    return slot->read > slot->stored ? slot->read : slot->stored;
}

int64_t lease_margin_ms(int64_t lease_ms)
{
    return lease_ms / 6 + 1;
}

bool run_serves(const struct run *run, const struct model *model, const struct model *any)
{
    return run->state == RUN_ALIVE && !run->superseded && !run->draining &&
           run->hello.role == ROLE_BOTH && (model == any || model == run->model);
}
