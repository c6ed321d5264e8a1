/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/capacity.h"

#include <math.h>

#include "common/check.h"

enum { WINDOWS_MISSED_MAX = 144 }; /* a day of ten-minute windows: older ones weigh nothing */

/* Time constants: of the arrival rate in seconds, of the speed in busy seconds, of the ratio in
 * output tokens. */
static const double rate_s = 60, speed_busy_s = 60, share_tokens = 20000;
/* Steps shorter than this in all say more of the clock than of the worker. */
static const double busy_s_min = 0.05;

void capacity_init(struct capacity *capacity, const struct capacity_config *config, int64_t now_ms)
{
    CHECK(config->windows_ahead >= 1);
    CHECK(config->window_ms > 0);
    CHECK(config->interval_ms > 0);
    *capacity = (struct capacity){.config = *config,
                                  .begun_ms = now_ms,
                                  .updated_ms = now_ms,
                                  .window_from_ms = now_ms,
                                  .output_share = 1};
    planner_init(&capacity->planner, &config->planner);
    predict_init(&capacity->predict, &config->predictor);
}

/* Weight of what is new after so much of a quantity with this constant. */
static double weight(double amount, double constant)
{
    return 1 - exp(-amount / constant);
}

static void observe_traffic(struct capacity *capacity, double tokens, int64_t now_ms)
{
    double seconds = (double)(now_ms - capacity->updated_ms) / 1000;
    int64_t windows = (now_ms - capacity->window_from_ms) / capacity->config.window_ms;

    capacity->arriving_per_s +=
        weight(seconds, rate_s) * (tokens / seconds - capacity->arriving_per_s);
    capacity->window_tokens += tokens;
    if (windows == 0)
        return;
    /* Several only when nobody called for that long: what came is spread over them. */
    double mean =
        capacity->window_tokens * 1000 / ((double)windows * (double)capacity->config.window_ms);
    for (int64_t i = 0; i < windows && i < WINDOWS_MISSED_MAX; i++)
        predict_observe(&capacity->predict, mean);
    capacity->window_tokens = 0;
    capacity->window_from_ms += windows * capacity->config.window_ms;
}

static void observe_work(struct capacity *capacity, const struct capacity_counts *counts)
{
    const struct capacity_counts *last = &capacity->last;
    double busy_s = (double)(counts->busy_us - last->busy_us) / 1e6;
    double decoded = (double)(counts->decode_tokens - last->decode_tokens);
    double estimated = (double)(counts->finished_tokens - last->finished_tokens);
    double output = (double)(counts->output_tokens - last->output_tokens);

    /* The first measurement is the speed; 0 would pull on it for a minute. */
    if (busy_s >= busy_s_min && decoded > 0)
        capacity->speed += (capacity->speed > 0 ? weight(busy_s, speed_busy_s) : 1) *
                           (decoded / busy_s - capacity->speed);
    /* At first the mean of all, so that the assumption of 1 leaves no trace. */
    if (estimated > 0)
        capacity->output_share +=
            fmax(weight(estimated, share_tokens), estimated / (double)counts->finished_tokens) *
            (output / estimated - capacity->output_share);
}

/* In output tokens a second, for now or for the end of the prediction window. */
static double forecast(const struct capacity *capacity)
{
    bool known = capacity->config.forecasts && capacity->predict.count > 0;
    double estimated = known ? predict_forecast(&capacity->predict, capacity->config.windows_ahead)
                             : capacity->arriving_per_s;

    return estimated * capacity->output_share;
}

static double waiting_tokens(const struct capacity *capacity, const struct capacity_counts *counts)
{
    double estimated = (double)counts->waiting_tokens;

    /* What could not be read yet is taken to be like what was. */
    if (counts->waiting_requests > 0)
        estimated *= 1 + (double)counts->unread_requests / (double)counts->waiting_requests;
    return estimated * capacity->output_share;
}

bool capacity_update(struct capacity *capacity, const struct capacity_counts *counts,
                     int64_t now_ms)
{
    double arrived = (double)(counts->arrived_tokens - capacity->last.arrived_tokens);

    if (now_ms - capacity->updated_ms < capacity->config.interval_ms)
        return false;
    observe_traffic(capacity, arrived, now_ms);
    observe_work(capacity, counts);
    capacity->last = *counts;
    capacity->updated_ms = now_ms;
    if (now_ms - capacity->begun_ms < capacity->config.settle_ms)
        return false;

    if (!capacity->decided)
        planner_keep(&capacity->planner, counts->workers, now_ms);
    capacity->decided = true;
    capacity->load = (struct planner_load){
        .outstanding_requests =
            counts->in_flight + counts->waiting_requests + counts->unread_requests,
        .waiting_tokens = waiting_tokens(capacity, counts),
        .forecast_tokens_per_s = forecast(capacity),
        .speed_tokens_per_s = capacity->speed,
        .workers = counts->workers,
    };
    planner_decide(&capacity->planner, &capacity->load, now_ms, &capacity->decision);
    return true;
}
