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

    bool dynamic_batch;
    int64_t batch_base;
    int64_t batch_max; /* SETTINGS_BATCH_AUTO: the worker's own limit */
    int64_t batch_window_us;
    double batch_threshold;
    double batch_alpha;
    double batch_smoothing;
    int batch_rule; /* 0: formula, 1: adaptive */
    double batch_pressure_gain;
    double batch_kv_share;
    int64_t batch_step_us_target;

    /* Accepted, without effect yet. */
    int64_t micro_batch_size;
    bool expert_load_balancing;
    int64_t load_balance_interval_us;
    double expert_balance_weight;
    bool external_kv_cache;
    int cache_eviction_policy;
    int64_t kv_levels;
    double kv_l1_share, kv_l2_share, kv_l3_share;
    bool traffic_prediction;
    int64_t prediction_window_us;
    const char *prediction_model_path;
    bool dynamic_precision;
    double precision_load_threshold;
    const char *high_precision;
    const char *low_precision;
};

/* batch_max when the file says `auto`: above every worker's max_seqs, so that this limit rules. */
enum { SETTINGS_BATCH_AUTO = 65536 };

extern const struct config_program settings_program;

/* What the bounds of single keys cannot say: base <= max, tick_min <= tick_max, lease against
 * commit_timeout. REJECT with one line that names both keys. */
bool settings_check(const struct settings *settings, struct err *err);

/* The core's share. request_partitions and slots come from the topics. */
struct scheduler_config settings_core(const struct settings *settings, uint32_t slots,
                                      const uint32_t request_partitions[CLASS_COUNT]);

#endif
