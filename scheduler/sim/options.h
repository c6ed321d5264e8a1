/* SPDX-License-Identifier: Apache-2.0
 *
 * options - what pelton-sim can be told; the table is its --help.
 */
#ifndef SCHEDULER_SIM_OPTIONS_H
#define SCHEDULER_SIM_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/config.h"
#include "scheduler/sim/run.h"

enum sim_policy { SIM_STATIC, SIM_FORMULA, SIM_ADAPTIVE, SIM_CLASSIC, SIM_POLICIES };

extern const char *const sim_policy_names[SIM_POLICIES];

struct sim_options {
    const char *trace;
    const char *columns;
    struct config_list policies;
    const char *model;
    const char *routing;
    double skew;
    int64_t nodes, nodes_min;
    int64_t base, max; /* base 0: the best static size of a sweep on the trace's first half; max may
                        * be SETTINGS_BATCH_AUTO */
    double alpha, threshold, smoothing, pressure_gain, kv_share;
    bool kv_measured;
    int64_t batch_window_us;
    double scale;
    int64_t from_us, length_us;
    double cached_share;
    double interactive;
    int64_t by_length;
    int prefix_caches; /* enum run_caches */
    double prefix_affinity_weight;
    int64_t step_target_us; /* of the policy; 0: none */
    int64_t token_limit_us;
    double assign_ahead, long_share;
    int64_t long_request_tokens;
    int64_t tick_us;
    int64_t balance_us;
    int expert_predictor; /* enum predict_kind */
    double task_drift;
    int64_t task_period_us;
    bool autoscale;
    int predictor;
    const char *predictor_path;
    int64_t plan_us, window_us, ahead_us, node_start_us, scale_down_us, drain_us;
    double utilisation;
    bool find_limit;
    int64_t limit_first_us;
    bool predict;
    bool fluid;
    int64_t fluid_step_us;
    int64_t seed;
    bool json;
    const char *plot;
    const char *fit, *fit_out;
    int64_t threads;
};

enum { SIM_COLUMNS_SIZE_MAX = 256 };

extern const struct config_program sim_program;

/* The selected policies, in the order given. REJECT for a name that is none. */
bool sim_policies(const struct sim_options *options, enum sim_policy policies[SIM_POLICIES],
                  uint32_t *count, struct err *err);

/* What the options alone say is wrong, before any file is read. REJECT. */
bool sim_check(const struct sim_options *options, struct err *err);
/* Are the files that the options name there to be read? REJECT. */
bool sim_check_files(const struct sim_options *options, struct err *err);

/* From here on a request is long in the report; 0: lengths are not told apart. */
uint32_t sim_split_tokens(const struct sim_options *options);

/* "prompt=A,output=B" into two strings of the caller's buffer. */
bool sim_columns(const char *columns, char *buffer, size_t size, const char **prompt,
                 const char **output, struct err *err);

#endif
