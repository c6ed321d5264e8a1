/* SPDX-License-Identifier: Apache-2.0
 *
 * fluid - the same fleet as flows: for days of hundreds of nodes.
 *
 * Requests are an amount, not things: per window the arrivals of the trace, a
 * number of requests in the system, and nodes that all carry the same batch.
 * A node with b sequences takes the step model's time for b decode rows, the
 * prompt rows that b leaving sequences make room for, and their context. Batch
 * size, prediction and planner are the very functions of the step level; what
 * is lost is what differs between requests, hence all latencies but the mean
 * (Little's law).
 */
#ifndef SCHEDULER_SIM_FLUID_H
#define SCHEDULER_SIM_FLUID_H

#include "common/err.h"
#include "scheduler/sim/run.h"

struct fluid_input {
    const struct trace_window *windows;
    size_t count;
    double window_s;  /* of the input */
    double imbalance; /* busiest over mean, from a step-level run or the routing alone */
};

struct fluid_result {
    double requests, prompt_tokens, output_tokens; /* done */
    double duration_s;
    double node_hours;
    double busy_hours;     /* with a step under way */
    double utilisation;    /* as in struct run_result */
    double latency_mean_s; /* over the day */
    double waiting_max;    /* requests beside the running ones */
    uint32_t nodes_min, nodes_max;
    double nodes_mean;
    struct run_hour hours[RUN_HOURS_MAX];
    uint32_t hours_count;
};

/* Windows of step_s seconds (10 in the documentation's figures). config as for run_trace(); classic
 * is refused. */
bool fluid_run(const struct run_config *config, const struct fluid_input *input, double step_s,
               struct fluid_result *result, struct err *err);

/* Busiest over mean of an even mix of tasks in steps of that many rows, experts placed for that mix
 * when planned: the step level comes to it after some intervals. */
bool fluid_imbalance(const struct routing *routing, uint32_t rows, bool planned, double *imbalance,
                     struct err *err);

#endif
