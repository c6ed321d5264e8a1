/* SPDX-License-Identifier: Apache-2.0
 *
 * run_state - what a simulated run keeps, for run.c that runs it, arrivals.c
 * that brings its requests, and run_result.c that sums it up.
 */
#ifndef SCHEDULER_SIM_RUN_STATE_H
#define SCHEDULER_SIM_RUN_STATE_H

#include "scheduler/scheduler.h"
#include "scheduler/sim/fleet.h"
#include "scheduler/sim/run.h"
#include "scheduler/sim/timeline.h"

#define RUN_HOUR_US ((int64_t)3600 * 1000000)

enum { RUN_BODY_SIZE_MAX = 8 * 1024 * 1024 };

struct request_times {
    int64_t first_us; /* -1: no token yet */
    int64_t end_us;   /* -1: no result yet */
    uint32_t attempt;
};

struct run {
    const struct run_config *config;
    const struct trace *trace;
    struct run_result *result;
    struct scheduler *core;
    struct actions actions;
    struct timeline timeline;
    struct fleet fleet;
    struct node_outcome outcome;
    struct request_times *times;
    char *body;
    uint8_t *everywhere; /* (trace->blocks_limit) of struct block_cache; NULL unless shared */
    size_t next;         /* request to arrive */
    int64_t offsets[CLASS_COUNT];
    uint64_t ended;
    bool paused;
    int64_t now_us;
    int64_t last_end_us;
    struct capacity capacity;
    struct given_back { /* by nodes that drain, once the transaction is over */
        uint64_t index;
        uint32_t slot;
    } * yields;
    size_t yields_count, yields_capacity;
    double imbalance_sum;
};

/* The virtual day starts a while after 0, which means no time to the core. */
static const int64_t run_epoch_ms = 1000000;

static inline int64_t run_now_ms(const struct run *run)
{
    return run_epoch_ms + run->now_us / 1000;
}

static inline struct run_hour *run_hour_at(const struct run *run, int64_t us)
{
    int64_t hour = us / RUN_HOUR_US;

    return &run->result->hours[hour < RUN_HOURS_MAX ? hour : RUN_HOURS_MAX - 1];
}

static inline void run_step_core(struct run *run, const struct event *event)
{
    scheduler_step(run->core, event, run_now_ms(run), &run->actions);
}

bool run_sum_up(struct run *run, struct err *err);

#endif
