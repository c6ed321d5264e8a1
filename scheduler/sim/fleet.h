/* SPDX-License-Identifier: Apache-2.0
 *
 * fleet - the simulated workers as the scheduler core sees them.
 *
 * A member is a node and the part of a worker's shell that matters here: its
 * incarnation, the records it sends, and its life (started, serving, draining,
 * off). It makes records; whoever runs the simulation hands them to the core.
 */
#ifndef SCHEDULER_SIM_FLEET_H
#define SCHEDULER_SIM_FLEET_H

#include "common/err.h"
#include "scheduler/sim/node.h"
#include "schemas/records.h"

enum member_state { MEMBER_OFF, MEMBER_STARTING, MEMBER_SERVING, MEMBER_DRAINING };

struct member {
    struct node node;
    enum member_state state;
    struct request_id incarnation;
    uint32_t starts; /* makes each incarnation another one */
    int64_t heartbeat_seq;
    int64_t offset; /* next of its worker-events partition */
    int64_t on_us;  /* since when it costs money */
    bool stepping;
    double step_us; /* of the step under way */
};

struct fleet {
    struct member *members;
    uint32_t count;
};

/* All off. */
bool fleet_init(struct fleet *fleet, uint32_t count, const struct node_config *config,
                uint32_t batch_size, struct err *err);
void fleet_free(struct fleet *fleet);

/* Members in any of these states (bits 1 << state). */
uint32_t fleet_count(const struct fleet *fleet, unsigned states);

/* A fresh incarnation starts to serve. */
struct record fleet_hello(struct fleet *fleet, uint32_t slot, int64_t now_ms);
struct record fleet_heartbeat(struct fleet *fleet, uint32_t slot, int64_t now_ms);
/* The request has its first token; none is named, so that none is expected later. */
struct record fleet_progress(const struct fleet *fleet, uint32_t slot, const struct request_id *id,
                             uint32_t attempt);
struct record fleet_done(const struct fleet *fleet, uint32_t slot, const struct request_id *id,
                         uint32_t attempt, const struct token_usage *usage);
struct record fleet_yield(const struct fleet *fleet, uint32_t slot, const struct request_id *id,
                          uint32_t attempt);
struct record fleet_goodbye(struct fleet *fleet, uint32_t slot, int64_t now_ms);

#endif
