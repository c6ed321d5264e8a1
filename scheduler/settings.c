/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/settings.h"

/* The LSTM is trained on ten minutes, and a trend needs as much. For those that follow the last
 * windows, one: ten let first tokens wait for 15 s when the day trace rises (docs/RESULTS.md). */
static int64_t traffic_window_us(const struct settings *settings)
{
    enum predict_kind kind = settings_predictor(settings);
    bool ahead = kind == PREDICT_LSTM || kind == PREDICT_HOLT_WINTERS;

    if (settings->traffic_window_us > 0)
        return settings->traffic_window_us;
    return ahead ? 600000000 : 60000000;
}

/* To the window in which the moment lies that is so far ahead. */
static uint32_t windows_ahead(const struct settings *settings)
{
    return (uint32_t)(settings->prediction_window_us / traffic_window_us(settings)) + 1;
}

static bool check_prediction(const struct settings *settings, struct err *err)
{
    if (!settings->traffic_prediction || settings_predictor(settings) != PREDICT_LSTM)
        return true;
    if (!*settings->prediction_model_path)
        return err_set(err, ERR_REJECT, "predictor lstm needs a prediction_model_path");
    if (windows_ahead(settings) > LSTM_HORIZONS)
        return err_set(
            err, ERR_REJECT,
            "prediction_window %lld s is not below %d traffic_windows of %lld s, which is "
            "as far as the lstm sees",
            (long long)settings->prediction_window_us / 1000000, LSTM_HORIZONS,
            (long long)traffic_window_us(settings) / 1000000);
    return true;
}

bool settings_check(const struct settings *settings, struct err *err)
{
    if (settings->batch_base > settings->batch_max)
        return err_set(err, ERR_REJECT, "base_batch_size %lld is above max_batch_size %lld",
                       (long long)settings->batch_base, (long long)settings->batch_max);
    if (settings->tick_min_us > settings->tick_max_us)
        return err_set(err, ERR_REJECT, "tick_min %lld ms is above tick_max %lld ms",
                       (long long)settings->tick_min_us / 1000,
                       (long long)settings->tick_max_us / 1000);
    /* A renewal waits for the next tick and its commit: with less than four ticks to a lease, a
     * healthy worker would stop between two renewals. */
    if (settings->lease_us < 4 * settings->tick_max_us)
        return err_set(err, ERR_REJECT, "lease %lld ms is below four times tick_max %lld ms",
                       (long long)settings->lease_us / 1000,
                       (long long)settings->tick_max_us / 1000);
    if (settings->workers_min > settings->workers_max)
        return err_set(err, ERR_REJECT, "workers_min %lld is above workers_max %lld",
                       (long long)settings->workers_min, (long long)settings->workers_max);
    /* Without effect yet, and to be right before it has one. */
    double kv_shares = settings->kv_l1_share + settings->kv_l2_share + settings->kv_l3_share;
    if (kv_shares > 1 + 1e-9)
        return err_set(err, ERR_REJECT,
                       "kv_cache.l1_size, l2_size and l3_size are %.0f%% together, above 100%%",
                       100 * kv_shares);
    return check_prediction(settings, err);
}

struct scheduler_config settings_core(const struct settings *settings, uint32_t slots,
                                      const uint32_t request_partitions[CLASS_COUNT])
{
    bool adaptive = settings->dynamic_batch && settings->batch_policy == BATCH_ADAPTIVE;
    struct scheduler_config config = {
        .slots = slots,
        .lease_ms = settings->lease_us / 1000,
        .dedupe_window_ms = settings->dedupe_window_us / 1000,
        .waiting_size_max = (size_t)settings->waiting_size,
        .crashes_max = (uint32_t)settings->crashes_max,
        .model_wait_ms = settings->model_wait_us / 1000,
        .assign_ahead_percent = (uint32_t)(settings->assign_ahead * 100.0 + 0.5),
        .long_request_tokens = (uint32_t)settings->long_request_tokens,
        .long_share_percent = (uint32_t)(settings->long_share * 100.0 + 0.5),
        .trim_requests = settings->trim_requests,
        /* The adaptive policy plans with the memory that is in use, the others with each request's
         * most. */
        .kv_share = adaptive ? settings->kv_share : 0,
        .expert_balance_weight =
            settings->expert_load_balancing ? settings->expert_balance_weight : 0,
        .prefix_affinity_weight = settings->prefix_affinity_weight,
        .overtakes_max = {[CLASS_INTERACTIVE] = (uint32_t)settings->expert_lookahead / 64,
                          [CLASS_BULK] = (uint32_t)settings->expert_lookahead},
        .micro_batch_size = (uint32_t)settings->micro_batch_size,
        .batch = {.kind = settings->dynamic_batch ? (enum batch_policy_kind)settings->batch_policy
                                                  : BATCH_STATIC,
                  .base = (uint32_t)settings->batch_base,
                  .max = (uint32_t)settings->batch_max,
                  .max_auto = settings->batch_max == SETTINGS_BATCH_AUTO,
                  .alpha = settings->batch_alpha,
                  .threshold = settings->batch_threshold,
                  .smoothing = settings->batch_smoothing,
                  .window_ms = settings->batch_window_us / 1000,
                  .kv_share = settings->kv_share,
                  .pressure_gain = settings->pressure_gain,
                  .step_us_target = (double)settings->step_target_us},
    };

    for (int i = 0; i < CLASS_COUNT; i++)
        config.request_partitions[i] = request_partitions[i];
    return config;
}

enum predict_kind settings_predictor(const struct settings *settings)
{
    if (settings->predictor > 0)
        return (enum predict_kind)(settings->predictor - 1);
    return *settings->prediction_model_path ? PREDICT_LSTM : PREDICT_EWMA;
}

struct capacity_config settings_capacity(const struct settings *settings, uint32_t slots,
                                         const struct lstm *lstm)
{
    int64_t max = settings->workers_max < slots ? settings->workers_max : slots;
    int64_t min = settings->workers_min < max ? settings->workers_min : max;
    struct capacity_config config = {
        .planner = {.workers_min = (uint32_t)min,
                    .workers_max = (uint32_t)max,
                    .base_batch = (uint32_t)settings->batch_base,
                    .utilisation = settings->utilisation,
                    .drain_ms = settings->drain_us / 1000,
                    .scale_down_ms = settings->scale_down_us / 1000},
        .predictor = predict_defaults(lstm ? PREDICT_LSTM : settings_predictor(settings)),
        .step_us_target = settings->step_target_us,
        .forecasts = settings->traffic_prediction,
        .windows_ahead = windows_ahead(settings),
        .window_ms = traffic_window_us(settings) / 1000,
        .interval_ms = settings->plan_interval_us / 1000,
        /* By then every worker that lives has been heard of. */
        .settle_ms = settings->lease_us / 1000,
    };

    config.predictor.lstm = lstm;
    return config;
}
