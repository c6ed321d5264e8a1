/* SPDX-License-Identifier: Apache-2.0
 *
 * planner - how many workers of a role are wanted now.
 *
 * wanted = the rate to be served over what one worker can do, where the rate is
 * the forecast of arriving tokens plus the backlog spread over drain_ms:
 *
 *   ceil((forecast + waiting / drain) / (speed * utilisation))
 *
 * bounded by workers_min, by workers_max and so the slots. One worker is always
 * wanted while anything is outstanding.
 *
 * None is started that could not fill a base batch, whatever the forecast says:
 * the wish goes up to ceil(outstanding requests / base batch) at most. Those
 * that were asked for stay while the rate asks for them and there is a request
 * for each: workers with room to spare hold less than a base batch each and
 * answer the faster for it, so the fewer requests would drive out workers until
 * a backlog brought them back. With a base of 800, which no node's memory held,
 * a simulated fleet swung between 68 and 278 nodes. Where workers cannot run a
 * base batch, the most they can run counts in its place.
 *
 * Up at once, down slowly: the answer falls only to the largest wish of the
 * last scale_down_ms, since a worker's start (loading a model) costs more than
 * some idle minutes. Whoever acts on it scales down by drain alone.
 *
 * A pure function of values and time. Source: the published planner scales its
 * nodes with the load of day and night; KEDA's stabilisation window.
 */
#ifndef SCHEDULER_PLANNER_H
#define SCHEDULER_PLANNER_H

#include <stdint.h>

struct planner_config {
    uint32_t workers_min;  /* kept even when idle; 0 allows scaling to nothing */
    uint32_t workers_max;  /* at most the slots */
    uint32_t base_batch;   /* requests that make a worker worth starting, at least 1 */
    double utilisation;    /* share of a worker's speed to plan with, 0 < u <= 1 */
    int64_t drain_ms;      /* a backlog is to be gone after this long, above 0 */
    int64_t scale_down_ms; /* how long a smaller wish must last */
};

struct planner_load {
    uint64_t outstanding_requests; /* waiting and in flight */
    double waiting_tokens;
    double forecast_tokens_per_s; /* arriving, at the prediction window's end */
    double speed_tokens_per_s;    /* of one full worker; 0: not known yet */
    uint32_t workers;             /* alive and not draining */
    uint32_t batch_most;          /* sequences that one can run at once; 0: not known yet */
};

enum { PLANNER_WISHES = 64, PLANNER_REASON_SIZE = 200 };

struct planner {
    struct planner_config config;
    /* The window's wishes, decreasing from the oldest: the largest is the first. */
    struct planner_wish {
        int64_t at_ms;
        uint32_t wanted;
    } wishes[PLANNER_WISHES];
    uint32_t wish_count;
    uint32_t wanted; /* decided last: what is missing of them is being started */
};

struct planner_decision {
    uint32_t wish;                    /* without hysteresis */
    uint32_t wanted;                  /* with it */
    char reason[PLANNER_REASON_SIZE]; /* a line for the log of decisions */
};

void planner_init(struct planner *planner, const struct planner_config *config);

/* So many run already: as if that had been the wish until now. For whoever begins to plan for
 * workers that another one has started. */
void planner_keep(struct planner *planner, uint32_t workers, int64_t now_ms);

/* now_ms never goes back. Call at least a few times per scale_down_ms. */
void planner_decide(struct planner *planner, const struct planner_load *load, int64_t now_ms,
                    struct planner_decision *decision);

#endif
