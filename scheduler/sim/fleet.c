/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/fleet.h"

#include <stdlib.h>
#include <string.h>

#include "schemas/codec.h"

static void set_incarnation(struct member *member, uint32_t slot)
{
    member->starts++;
    memset(&member->incarnation, 0, sizeof member->incarnation);
    memcpy(member->incarnation.bytes, &slot, sizeof slot);
    memcpy(member->incarnation.bytes + 4, &member->starts, sizeof member->starts);
}

bool fleet_init(struct fleet *fleet, uint32_t count, const struct node_config *config,
                uint32_t batch_size, struct err *err)
{
    *fleet = (struct fleet){.members = calloc(count, sizeof *fleet->members), .count = count};
    if (!fleet->members)
        return err_set(err, ERR_FATAL, "simulator: out of memory for %u nodes", count);
    for (uint32_t slot = 0; slot < count; slot++)
        if (!node_init(&fleet->members[slot].node, config, batch_size, err))
            return false;
    return true;
}

void fleet_free(struct fleet *fleet)
{
    for (uint32_t slot = 0; slot < fleet->count; slot++)
        node_free(&fleet->members[slot].node);
    free(fleet->members);
    *fleet = (struct fleet){0};
}

uint32_t fleet_count(const struct fleet *fleet, unsigned states)
{
    uint32_t count = 0;

    for (uint32_t slot = 0; slot < fleet->count; slot++)
        count += (states & 1u << fleet->members[slot].state) != 0;
    return count;
}

struct record fleet_hello(struct fleet *fleet, uint32_t slot, int64_t now_ms)
{
    struct member *member = &fleet->members[slot];
    const struct step_model *model = member->node.config.model;
    struct record record = {.type = RECORD_HELLO};

    set_incarnation(member, slot);
    member->state = MEMBER_SERVING;
    member->heartbeat_seq = 0;
    record.u.hello = (struct hello){.slot = slot,
                                    .incarnation = member->incarnation,
                                    .model = str_from("sim"),
                                    .revision = str_from("sim"),
                                    .numerics_id = str_from("sim"),
                                    .hardware = str_from(model->name),
                                    .precision = str_from("bf16"),
                                    .role = ROLE_BOTH,
                                    .max_seqs = model->max_seqs,
                                    .max_context = UINT32_MAX,
                                    .kv_tokens = model->kv_tokens,
                                    .sent_ms = now_ms};
    return record;
}

struct record fleet_heartbeat(struct fleet *fleet, uint32_t slot, int64_t now_ms)
{
    struct member *member = &fleet->members[slot];
    const struct node *node = &member->node;
    struct record record = {.type = RECORD_HEARTBEAT};

    /* No running list: nothing gets lost here, and the core is told not to look for it. */
    record.u.heartbeat = (struct heartbeat){.slot = slot,
                                            .incarnation = member->incarnation,
                                            .seq = ++member->heartbeat_seq,
                                            .sent_ms = now_ms,
                                            .kv_tokens_used = node->kv_used,
                                            .load = node->load,
                                            .step_us = (int64_t)node->step_us,
                                            .prefill_tokens = (int64_t)node->prefill_tokens,
                                            .decode_tokens = (int64_t)node->decode_tokens,
                                            .steps = (int64_t)node->step,
                                            .busy_us = node->busy_us,
                                            .draining = member->state == MEMBER_DRAINING};
    return record;
}

struct record fleet_progress(const struct fleet *fleet, uint32_t slot, const struct request_id *id,
                             uint32_t attempt)
{
    struct record record = {.type = RECORD_PROGRESS};

    record.u.progress = (struct progress){.slot = slot,
                                          .incarnation = fleet->members[slot].incarnation,
                                          .request_id = *id,
                                          .attempt = attempt};
    return record;
}

struct record fleet_done(const struct fleet *fleet, uint32_t slot, const struct request_id *id,
                         uint32_t attempt, const struct token_usage *usage)
{
    struct record record = {.type = RECORD_DONE};

    record.u.done = (struct done){.slot = slot,
                                  .incarnation = fleet->members[slot].incarnation,
                                  .request_id = *id,
                                  .attempt = attempt,
                                  .finish_reason = FINISH_STOP,
                                  .usage = *usage};
    return record;
}

struct record fleet_yield(const struct fleet *fleet, uint32_t slot, const struct request_id *id,
                          uint32_t attempt)
{
    struct record record = {.type = RECORD_YIELD};

    record.u.yield = (struct yield){.slot = slot,
                                    .incarnation = fleet->members[slot].incarnation,
                                    .request_id = *id,
                                    .attempt = attempt,
                                    .reason = str_from("drain")};
    return record;
}

struct record fleet_goodbye(struct fleet *fleet, uint32_t slot, int64_t now_ms)
{
    struct record record = {.type = RECORD_GOODBYE};

    fleet->members[slot].state = MEMBER_OFF;
    record.u.goodbye = (struct goodbye){
        .slot = slot, .incarnation = fleet->members[slot].incarnation, .sent_ms = now_ms};
    return record;
}
