/* SPDX-License-Identifier: Apache-2.0
 *
 * settings - the configuration of pelton-scheduler: one table, one struct.
 *
 * The table takes the published YAML blocks as they stand (tests/golden/published-config). A key
 * whose feature does not exist yet is accepted, bounded and reported once as "no effect yet".
 * Written once by config_load(), const from then on; strings are owned by struct config.
 */
#ifndef SCHEDULER_SETTINGS_H
#define SCHEDULER_SETTINGS_H

#include "common/config.h"
#include "common/err.h"
#include "scheduler/capacity.h"
#include "scheduler/scheduler.h"

struct settings {
    struct config_common common;

    /* Durations are in microseconds, as CONFIG_DURATION has them. */
    int64_t lease_us;
    int64_t dedupe_window_us;
    int64_t waiting_size; /* bytes */
    int64_t crashes_max;
    int64_t model_wait_us;
    double assign_ahead; /* share of the batch size */
    int64_t long_request_tokens;
    double long_share; /* of a batch */
    bool trim_requests;

    int64_t tick_min_us;
    int64_t tick_max_us;
    int64_t commit_timeout_us;
    int64_t session_timeout_us; /* of the group that elects the leader */
    int64_t stand_by_us;        /* after being fenced, before standing again */

    bool dynamic_batch; /* false: static, whatever batch_policy says */
    int batch_policy;   /* enum batch_policy_kind */
    int64_t batch_base;
    int64_t batch_max; /* SETTINGS_BATCH_AUTO: what memory and the worker's own limit allow */
    int64_t batch_window_us;
    double batch_threshold;
    double batch_alpha;
    double batch_smoothing;
    double pressure_gain;
    double kv_share;
    int64_t step_target_us; /* 0: none wanted */

    bool traffic_prediction;
    int predictor; /* enum predict_kind plus 1; 0: auto */
    int64_t prediction_window_us;
    const char *prediction_model_path;
    int64_t workers_min;
    int64_t workers_max; /* SETTINGS_WORKERS_SLOTS: the slots */
    double utilisation;
    int64_t drain_us;
    int64_t scale_down_us;
    int64_t plan_interval_us;
    int64_t traffic_window_us;

    int64_t micro_batch_size;

    bool expert_load_balancing;
    int64_t load_balance_interval_us;
    double expert_balance_weight;
    int64_t expert_lookahead; /* requests */
    double prefix_affinity_weight;

    /* Accepted, without effect yet. */
    bool external_kv_cache;
    int cache_eviction_policy;
    int64_t kv_levels;
    double kv_l1_share, kv_l2_share, kv_l3_share;
    bool dynamic_precision;
    double precision_load_threshold;
    int high_precision, low_precision; /* as the choices stand */
};

/* batch_max when the file says `auto`: above every worker's max_seqs, so that this limit rules. */
enum { SETTINGS_BATCH_AUTO = 65536 };
/* workers_max when the file says `slots`: above any number of them. */
enum { SETTINGS_WORKERS_SLOTS = 1000000 };

extern const struct config_program settings_program;

/* What the bounds of single keys cannot say: base <= max, workers_min <= workers_max, tick_min <=
 * tick_max, lease against tick_max, the shares of kv_cache, the LSTM's weights and reach. REJECT
 * with one line that names both keys. */
bool settings_check(const struct settings *settings, struct err *err);

/* The core's share. request_partitions and slots come from the topics. */
struct scheduler_config settings_core(const struct settings *settings, uint32_t slots,
                                      const uint32_t request_partitions[CLASS_COUNT]);

/* What forecasts traffic: as chosen; `auto` is the LSTM where a model is named, else EWMA. */
enum predict_kind settings_predictor(const struct settings *settings);
/* The planner's share. lstm: the weights of prediction_model_path; NULL where another predictor
 * was chosen. */
struct capacity_config settings_capacity(const struct settings *settings, uint32_t slots,
                                         const struct lstm *lstm);

#endif
