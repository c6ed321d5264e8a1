/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/capacity.h"

#include <math.h>

#include "common/check.h"

enum { WINDOWS_MISSED_MAX = 144 }; /* a day of ten-minute windows: older ones weigh nothing */

/* Constants of averages: of the arrival rate, and of the ratio of output to estimate, which has
 * seen neither less than so many tokens nor less than so long. (Twenty thousand tokens alone are a
 * dozen answers of a busy fleet, and what they happen to be long made a third more workers.) */
static const double rate_s = 60, share_tokens = 20000, share_s = 300;
/* How far beyond the batches that were seen a speed is judged. */
static const double batch_growth = 8;
/* Steps shorter than this in all say more of the clock than of the worker. */
static const uint64_t busy_us_min = 50000;

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

static void observe_work(struct capacity *capacity, const struct capacity_counts *counts,
                         int64_t now_ms)
{
    const struct capacity_counts *last = &capacity->last;
    uint64_t busy_us = counts->busy_us - last->busy_us;
    double estimated = (double)(counts->finished_tokens - last->finished_tokens);
    double output = (double)(counts->output_tokens - last->output_tokens);
    double seconds = (double)(now_ms - capacity->updated_ms) / 1000;

    if (busy_us >= busy_us_min)
        speed_observe(&capacity->speed, counts->steps - last->steps,
                      counts->decode_tokens - last->decode_tokens, busy_us, seconds);
    /* At first the mean of all, so that the assumption of 1 leaves no trace. */
    if (estimated > 0)
        capacity->output_share +=
            fmax(fmin(weight(estimated, share_tokens), weight(seconds, share_s)),
                 estimated / (double)counts->finished_tokens) *
            (output / estimated - capacity->output_share);
}

/* In output tokens a second, for now or for the end of the prediction window. */
static double forecast(const struct capacity *capacity)
{
    bool known = capacity->config.forecasts && capacity->predict.series.count > 0;
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

static uint32_t batch_most(const struct capacity_counts *counts)
{
    return counts->workers > 0 ? (uint32_t)(counts->batch_most / counts->workers) : 0;
}

/* Of a worker with all it can take: no more than it may run, nor than the step time wanted allows,
 * nor than can be told from what was seen. */
static double full_speed(const struct capacity *capacity, uint32_t most)
{
    const struct speed *speed = &capacity->speed;
    double rows = fmax(capacity->config.planner.base_batch, batch_growth * speed->rows_now);

    if (most > 0)
        rows = fmin(rows, most);
    if (capacity->config.step_us_target > 0)
        rows = fmin(rows, speed_rows(speed, (double)capacity->config.step_us_target));
    return speed_at(speed, fmax(rows, 1));
}

struct capacity_counts capacity_count(const struct scheduler_gauges *gauges, uint64_t lag)
{
    struct capacity_counts counts = {
        .arrived_tokens = gauges->work.arrived_tokens,
        .finished_tokens = gauges->work.finished_tokens,
        .output_tokens = gauges->work.output_tokens,
        .steps = gauges->work.steps,
        .decode_tokens = gauges->work.decode_tokens,
        .busy_us = gauges->work.busy_us,
        .in_flight = gauges->in_flight,
        .batch_most = gauges->batch_most,
        .workers = gauges->workers_serving,
    };

    for (int i = 0; i < CLASS_COUNT; i++) {
        counts.waiting_requests += gauges->classes[i].waiting_requests;
        counts.waiting_tokens += gauges->classes[i].waiting_tokens;
    }
    if (gauges->paused && lag > counts.waiting_requests)
        counts.unread_requests = lag - counts.waiting_requests;
    return counts;
}

bool capacity_update(struct capacity *capacity, const struct capacity_counts *counts,
                     int64_t now_ms)
{
    double arrived = (double)(counts->arrived_tokens - capacity->last.arrived_tokens);

    if (now_ms - capacity->updated_ms < capacity->config.interval_ms)
        return false;
    observe_traffic(capacity, arrived, now_ms);
    observe_work(capacity, counts, now_ms);
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
        .speed_tokens_per_s = full_speed(capacity, batch_most(counts)),
        .workers = counts->workers,
        .batch_most = batch_most(counts),
    };
    planner_decide(&capacity->planner, &capacity->load, now_ms, &capacity->decision);
    return true;
}
