/* SPDX-License-Identifier: Apache-2.0
 *
 * capacity - how many workers one leader wants, from what its core counts.
 *
 * Between the core's counters and the planner: closes windows of arriving
 * traffic and forecasts them, judges the speed of a full worker, and lets the
 * planner decide every interval. One struct plans one role.
 *
 * Everything is in output tokens. What waits and arrives is known by the core's
 * estimate only (prompt bytes / 4 + max_tokens), so a ratio of output tokens to
 * estimate, learned from completed requests, converts it: answers that end long
 * before max_tokens, and the prompts' share of the work, are then in the ratio
 * and the speed alike, and cancel out.
 *
 * Speed is what a worker does with the largest batch that policy, memory and the
 * step time wanted allow it, judged from what workers report of their steps
 * (speed.h). The judgement is trusted up to eight times their batch, or
 * to the base batch: so it is always made near what was seen, and comes closer
 * while workers fill. Idle time counts nothing.
 *
 * A leader that has just begun knows neither its workers nor their speed: it
 * decides nothing for settle_ms, and then keeps what runs for the planner's
 * scale-down time.
 *
 * A pure function of values and time.
 */
#ifndef SCHEDULER_CAPACITY_H
#define SCHEDULER_CAPACITY_H

#include <stdbool.h>
#include <stdint.h>

#include "scheduler/planner.h"
#include "scheduler/predict.h"
#include "scheduler/scheduler.h"
#include "scheduler/speed.h"

struct capacity_config {
    struct planner_config planner;
    struct predict_params predictor;
    int64_t step_us_target; /* slowest step that is still wanted; 0: any */
    bool forecasts;         /* false: plans for the traffic of the last minute */
    uint32_t windows_ahead; /* at least 1 */
    int64_t window_ms;      /* of traffic */
    int64_t interval_ms;    /* between two decisions */
    int64_t settle_ms;      /* from the beginning to the first one */
};

/* What the core has counted since this leader began, and what it has now. */
struct capacity_counts {
    uint64_t arrived_tokens;  /* estimated, of requests that came since then */
    uint64_t finished_tokens; /* estimated, of completed requests */
    uint64_t output_tokens;   /* of the same */
    uint64_t steps;           /* by all workers */
    uint64_t decode_tokens;   /* in these */
    uint64_t busy_us;         /* the same */
    uint64_t waiting_requests;
    uint64_t waiting_tokens;  /* estimated */
    uint64_t unread_requests; /* in the topics behind what waits: there is no room to read them */
    uint64_t in_flight;
    uint64_t batch_most; /* sequences that the workers may come to run, all together */
    uint32_t workers;    /* alive and not draining */
};

struct capacity {
    struct capacity_config config;
    struct planner planner;
    struct predict predict;
    struct capacity_counts last; /* of the last update */
    int64_t begun_ms, updated_ms, window_from_ms;
    double window_tokens;  /* estimated, of the window that is open */
    double arriving_per_s; /* estimated tokens, over about the last minute */
    double output_share;   /* output tokens for each estimated one */
    struct speed speed;
    struct planner_load load; /* of the last decision */
    struct planner_decision decision;
    bool decided; /* there was one */
};

void capacity_init(struct capacity *capacity, const struct capacity_config *config, int64_t now_ms);

/* From the core's gauges. lag: requests in the topics behind the admitted offsets. */
struct capacity_counts capacity_count(const struct scheduler_gauges *gauges, uint64_t lag);

/* Call as often as convenient; what comes before interval_ms is over does nothing. True: there is
 * a new decision, the first or the next. */
bool capacity_update(struct capacity *capacity, const struct capacity_counts *counts,
                     int64_t now_ms);

#endif
