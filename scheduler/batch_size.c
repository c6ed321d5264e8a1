/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/batch_size.h"

#include "common/check.h"

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
    };
}

uint32_t batch_size_formula(const struct batch_policy *policy, double load)
{
    return clamp_round(formula(policy, load), policy->max);
}

uint32_t batch_size_update(struct batch_size *batch, const struct batch_policy *policy, double load,
                           uint32_t max_seqs, int64_t now_ms)
{
    uint32_t max = max_seqs < 1 ? 1 : max_seqs;

    if (policy->kind == BATCH_FORMULA && now_ms - batch->adjusted_ms >= policy->window_ms) {
        /* The clamped answer is what is smoothed: a load of 100 for one window must not weigh
         * on the next twenty. */
        double answer = batch_size_formula(policy, load);
        batch->smoothed += policy->smoothing * (answer - batch->smoothed);
        batch->adjusted_ms = now_ms;
        batch->size = clamp_round(batch->smoothed, policy->max);
    }
    return batch->size < max ? batch->size : max;
}
