/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/batch_size.h"

#include <math.h>

#include "common/check.h"

/* Of the newest window in the steady averages: 10 s at the usual 500 ms. A burst of prompts makes
 * steps long for as long as it is being read; with averages of 2 s the cap followed that, gave up
 * sequences it had just admitted, and 7 % of the throughput of a full worker. */
static const double steady_weight = 0.05;
static const double target_give = 0.5;
/* Room for arrivals above what runs. */
static const double headroom = 1.25;

static uint32_t clamp_round(double size, uint32_t max)
{
    if (!(size >= 1.0)) /* NaN too: a worker that reports nonsense gets the smallest batch */
        return 1;
    if (size >= (double)max)
        return max;
    return (uint32_t)(size + 0.5);
}

static double formula(const struct batch_policy *policy, double load)
{
    return policy->base * (1.0 + policy->alpha * (1.0 - load / policy->threshold));
}

void batch_size_init(struct batch_size *batch, const struct batch_policy *policy, int64_t now_ms)
{
    CHECK(policy->base >= 1);
    CHECK(policy->base <= policy->max);
    CHECK(policy->threshold > 0);
    CHECK(policy->smoothing > 0);
    CHECK(policy->smoothing <= 1);

    *batch = (struct batch_size){
        .smoothed = policy->base,
        .adjusted_ms = now_ms,
        .size = policy->base,
        .memory = UINT32_MAX,
    };
}

uint32_t batch_size_formula(const struct batch_policy *policy, double load)
{
    return clamp_round(formula(policy, load), policy->max);
}

/* Sequences that the planned share of KV memory holds, if they are as long as the running ones. */
static double kv_cap(const struct batch_policy *policy, const struct batch_signal *signal)
{
    if (policy->kv_share <= 0 || signal->kv_tokens == 0 || signal->running == 0 ||
        signal->kv_tokens_used == 0)
        return policy->max;
    return policy->kv_share * (double)signal->kv_tokens * signal->running /
           (double)signal->kv_tokens_used;
}

static double full_pressure(const struct batch_signal *signal)
{
    return signal->pressure < 1 ? signal->pressure : 1;
}

/* While requests wait, the target gives way, by half at most: they lose more by a worker that is
 * kept slow than those that run lose by slower tokens. On long prompts, whose chunks alone take
 * more than the target, keeping it cost 7 % of the throughput and a quarter of the P99 latency;
 * giving way by all of it cost 10 % of the P99 latency on short ones.
 *
 * Row costs grow with the batch at most in proportion, so this never cuts too little for long.
 * Below the target it errs on the small side, and what the formula and the pressure say is allowed.
 */
static double step_cap(const struct batch_policy *policy, const struct batch_signal *signal,
                       double answer)
{
    double target_us = policy->step_us_target * (1 + target_give * full_pressure(signal));
    double cap;

    if (policy->step_us_target <= 0 || signal->steady_running <= 0 || signal->step_us <= 0)
        return policy->max;
    cap = signal->steady_running * target_us / signal->step_us;
    return signal->step_us <= target_us ? fmax(cap, answer) : cap;
}

static uint32_t memory_limit(const struct batch_policy *policy, const struct batch_signal *signal)
{
    if (policy->kv_share <= 0 || signal->kv_tokens == 0 || !(signal->kv_tokens_need > 0))
        return UINT32_MAX;
    /* Down, not to the nearest: the sequence that does not fit costs a preemption. */
    return clamp_round(floor(policy->kv_share * (double)signal->kv_tokens / signal->kv_tokens_need),
                       UINT32_MAX);
}

uint32_t batch_size_answer(const struct batch_policy *policy, const struct batch_signal *signal)
{
    double answer = policy->base;

    if (policy->kind == BATCH_STATIC)
        return policy->base;
    answer = batch_size_formula(policy, signal->load);
    if (policy->kind == BATCH_ADAPTIVE) {
        double pressure = full_pressure(signal);
        /* From what runs, not from the base alone: under lasting pressure the batch grows window by
         * window until memory or the step time stops it, whatever base was configured. And a batch
         * that meets both is never cut under its sequences, nor so near to them that every second
         * arrival must wait for a window: their successors would wait for no one's good. */
        double grown =
            fmax(answer, headroom * signal->running) * (1 + policy->pressure_gain * pressure);
        answer = fmin(grown, fmin(kv_cap(policy, signal), step_cap(policy, signal, answer)));
    }
    return clamp_round(answer, policy->max);
}

uint32_t batch_size_most(const struct batch_policy *policy, const struct batch_signal *signal)
{
    double most = policy->max, share = policy->kv_share > 0 ? policy->kv_share : 1;

    if (policy->kind == BATCH_STATIC)
        most = policy->base;
    else if (policy->kind == BATCH_FORMULA)
        most = fmin(most, formula(policy, 0));
    if (signal->kv_tokens > 0 && signal->kv_tokens_need > 0)
        most = fmin(most, floor(share * (double)signal->kv_tokens / signal->kv_tokens_need));
    return clamp_round(most, signal->max_seqs < 1 ? 1 : signal->max_seqs);
}

uint32_t batch_size_update(struct batch_size *batch, const struct batch_policy *policy,
                           const struct batch_signal *signal, int64_t now_ms)
{
    uint32_t max = signal->max_seqs < 1 ? 1 : signal->max_seqs;

    if (now_ms - batch->adjusted_ms >= policy->window_ms) {
        struct batch_signal steady = *signal;
        if (signal->running > 0) { /* an idle worker's last step says nothing */
            batch->running += steady_weight * (signal->running - batch->running);
            batch->step_us += steady_weight * (signal->step_us - batch->step_us);
        }
        steady.steady_running = batch->running;
        steady.step_us = batch->step_us;
        batch->adjusted_ms = now_ms;
        /* A worker that holds nothing says nothing of its next requests: the limit stays. */
        if (policy->max_auto && signal->kv_tokens_need > 0)
            batch->memory = memory_limit(policy, signal);
        if (policy->kind != BATCH_STATIC) {
            /* The clamped answer is what is smoothed: a load of 100 for one window must not weigh
             * on the next twenty. */
            double answer = batch_size_answer(policy, &steady);
            batch->smoothed += policy->smoothing * (answer - batch->smoothed);
            batch->size = clamp_round(batch->smoothed, policy->max);
        }
    }
    if (batch->memory < max)
        max = batch->memory;
    return batch->size < max ? batch->size : max;
}
