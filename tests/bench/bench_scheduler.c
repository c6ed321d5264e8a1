/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_scheduler [REQUESTS]: what waiting requests cost the core, in bytes and in time.
 *
 * Lets REQUESTS (a million by default) wait, of 100 tenants and with deadlines, then lets 16
 * workers answer some of them, tick by tick. Prints bytes per waiting request and
 * the time of a step and of a tick; exits with 1 where memory is over the promise of
 * scheduler/scheduler.h.
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "scheduler/scheduler.h"
#include "schemas/codec.h"

enum {
    WORKERS = 16,
    TICKS = 200,
    PAYLOAD_FIELDS_SIZE = 56,
    MALLOC_SIZE = 16, /* what malloc adds to and rounds up in the payload's block, on average */
    WAITING_SIZE_MAX = 200,
};

struct bench {
    struct scheduler *core;
    struct actions actions;
    int64_t now_ms;
    int64_t events_offset[WORKERS];
    size_t finished;
};

static const char body[] = "{\"model\":\"m\",\"prompt\":\"12 + 30 =\",\"max_tokens\":16}";

static void step(struct bench *bench, struct event event)
{
    scheduler_step(bench->core, &event, bench->now_ms, &bench->actions);
}

static void send_request(struct bench *bench, uint32_t number)
{
    char tenant[16], custom_id[16];
    struct record record = {.type = RECORD_REQUEST};
    struct request *request = &record.u.request;

    snprintf(tenant, sizeof tenant, "tenant-%u", number % 100);
    snprintf(custom_id, sizeof custom_id, "line-%07u", number);
    *request = (struct request){
        .tenant = str_from(tenant),
        .batch_id = str_from("batch"),
        .custom_id = str_from(custom_id),
        .service_class = CLASS_BULK,
        .model = str_from("m"),
        .body = str_from(body),
        .deadline_ms = bench->now_ms + 86400000 + number * 7919 % 100000,
    };
    memcpy(request->request_id.bytes, &number, sizeof number);
    step(bench, (struct event){.type = EVENT_REQUEST,
                               .position = {TOPIC_REQUESTS_BULK, 0, number},
                               .timestamp_ms = bench->now_ms,
                               .record = &record});
}

static void worker_says(struct bench *bench, uint32_t slot, struct record record)
{
    step(bench, (struct event){
                    .type = EVENT_WORKER,
                    .position = {TOPIC_WORKER_EVENTS, (int32_t)slot, bench->events_offset[slot]++},
                    .record = &record});
}

static void start_worker(struct bench *bench, uint32_t slot)
{
    struct record record = {.type = RECORD_HELLO};

    record.u.hello = (struct hello){
        .slot = slot,
        .incarnation = {{(uint8_t)(slot + 1)}},
        .model = str_from("m"),
        .max_seqs = 64,
        .max_context = 1000,
        .kv_tokens = 1000000,
    };
    worker_says(bench, slot, record);
}

static void heartbeat(struct bench *bench, uint32_t slot, int64_t seq)
{
    struct record record = {.type = RECORD_HEARTBEAT};

    record.u.heartbeat =
        (struct heartbeat){.slot = slot, .incarnation = {{(uint8_t)(slot + 1)}}, .seq = seq};
    worker_says(bench, slot, record);
}

/* Every assignment of the last tick is answered at once. */
static void answer(struct bench *bench)
{
    struct record done = {.type = RECORD_DONE};
    struct request_id *ids = malloc(bench->actions.count * sizeof *ids + 1);
    uint32_t *slots = malloc(bench->actions.count * sizeof *slots + 1);
    size_t count = 0;

    for (size_t i = 0; i < bench->actions.count; i++) {
        const struct action *action = &bench->actions.items[i];
        if (action->type != ACTION_SEND || action->record->type != RECORD_ASSIGNMENT)
            continue;
        ids[count] = action->id;
        slots[count++] = (uint32_t)action->partition;
    }
    step(bench, (struct event){.type = EVENT_COMMITTED});
    bench->actions.count = 0;
    for (size_t i = 0; i < count; i++) {
        done.u.done = (struct done){
            .incarnation = {{(uint8_t)(slots[i] + 1)}},
            .request_id = ids[i],
            .attempt = 1,
            .text = str_from("42"),
        };
        worker_says(bench, slots[i], done);
    }
    bench->finished += count;
    free(ids);
    free(slots);
}

static void run_ticks(struct bench *bench)
{
    int64_t tick_us = 0, worst_us = 0, start_us = clock_mono_us();

    for (int i = 0; i < TICKS; i++) {
        int64_t before_us = clock_mono_us(), took_us;
        bench->now_ms += 20;
        for (uint32_t slot = 0; slot < WORKERS; slot++)
            heartbeat(bench, slot, i + 1);
        step(bench, (struct event){.type = EVENT_TICK});
        took_us = clock_mono_us() - before_us;
        tick_us += took_us;
        worst_us = took_us > worst_us ? took_us : worst_us;
        answer(bench);
    }
    printf("tick_us=%.0f tick_us_worst=%lld finished=%zu finished_per_second=%.0f\n",
           (double)tick_us / TICKS, (long long)worst_us, bench->finished,
           (double)bench->finished * 1e6 / (double)(clock_mono_us() - start_us));
}

int main(int argc, char **argv)
{
    uint32_t requests = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1000000;
    struct scheduler_config config = {
        .slots = WORKERS,
        .request_partitions = {1, 1},
        .lease_ms = 3000,
        .dedupe_window_ms = 7 * 24 * 3600 * 1000LL,
        .waiting_size_max = SIZE_MAX / 8,
        .crashes_max = 3,
        .model_wait_ms = 10000,
        .batch = {.kind = BATCH_STATIC, .base = 32, .max = 64, .threshold = 1, .smoothing = 1},
    };
    struct bench bench = {.core = scheduler_new(&config), .now_ms = 1700000000000};
    size_t payload = sizeof body - 1 + sizeof "line-0000000" - 1 + PAYLOAD_FIELDS_SIZE;
    size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    int64_t start_us = clock_mono_us();
    double per_waiting;

    step(&bench, (struct event){.type = EVENT_RESTORED});
    for (uint32_t i = 0; i < requests; i++)
        send_request(&bench, i);
    per_waiting =
        (double)(mallinfo2().uordblks + mallinfo2().hblkhd - before) / requests - (double)payload;
    printf("waiting=%u bytes_per_waiting=%.0f (beside %zu of payload) intake_us=%.2f\n", requests,
           per_waiting, payload, (double)(clock_mono_us() - start_us) / requests);
    for (uint32_t i = 0; i < WORKERS; i++)
        start_worker(&bench, i);
    run_ticks(&bench);
    scheduler_free(bench.core);
    actions_free(&bench.actions);
    return per_waiting > WAITING_SIZE_MAX + MALLOC_SIZE;
}
