/* SPDX-License-Identifier: Apache-2.0
 *
 * compare - one trace under several policies, side by side.
 *
 * Static is a fair opponent: the same engine and the same continuous batching
 * with a fixed cap, and, unless one is given, the cap that did best on the
 * first half of the trace (search.h). The dynamic policies take that cap as
 * their base. Classic static batching gets the best cap of a sweep of its own.
 *
 * A trace is not sustained when more than 1 % of its requests take longer than
 * an hour; such a run ends there, with what it has shown until then.
 */
#ifndef SCHEDULER_SIM_COMPARE_H
#define SCHEDULER_SIM_COMPARE_H

#include "scheduler/lstm.h"
#include "scheduler/sim/options.h"

struct sim_setup {
    const struct sim_options *options;
    struct trace_options trace_options;
    struct trace trace;
    struct step_model model;
    struct routing routing;
    struct lstm lstm;
    char columns[SIM_COLUMNS_SIZE_MAX];
};

struct sim_row {
    enum sim_policy policy;
    uint32_t base;
    struct run_result result;
    double limit_scale; /* of the trace's own rate, as --scale; 0: not searched, or none holds */
    double limit_tokens_per_s;
};

struct sim_comparison {
    struct sim_row rows[SIM_POLICIES];
    uint32_t count;
    uint32_t static_base;
    bool limit_searched;
};

/* What takes longer than this is late. */
static const int64_t sim_sustained_us = (int64_t)3600 * 1000000;

/* Reads model, routing and predictor as the options say, and takes the trace's options. */
bool sim_setup_models(struct sim_setup *setup, const struct sim_options *options, struct err *err);
/* The same, and the trace. */
bool sim_setup(struct sim_setup *setup, const struct sim_options *options, struct err *err);
void sim_setup_free(struct sim_setup *setup);

/* Do nodes have prefix caches: the trace names its blocks, and --cached gives no share instead. */
enum run_caches sim_caches(const struct sim_setup *setup);

/* The run of one policy with this base batch size. */
void sim_run_config(const struct sim_setup *setup, enum sim_policy policy, uint32_t base,
                    struct run_config *config);

bool sim_compare(const struct sim_setup *setup, struct sim_comparison *comparison, struct err *err);
void sim_comparison_free(struct sim_comparison *comparison);

#endif
