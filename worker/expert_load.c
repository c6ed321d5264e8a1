/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/expert_load.h"

#include <stdlib.h>
#include <string.h>

/* Steps last milliseconds to a tenth of a second: 16 of them follow a change of load within a
 * second or two, which is the scheduler's adjustment window. */
static const double smoothing = 1.0 / 16;
/* The cost of a token changes slowly (context length); the fit needs steps of several sizes. */
static const double forgetting = 1.0 / 256;

bool expert_load_open(struct expert_load *load, uint32_t layers, uint32_t experts, uint32_t top_k,
                      int64_t step_us_target, struct err *err)
{
    const size_t cells = (size_t)layers * experts;

    *load = (struct expert_load){
        .tokens = calloc(cells + 1, sizeof *load->tokens),
        .layer_load = calloc(layers + 1, sizeof *load->layer_load),
        .sums = calloc(layers + 1, sizeof *load->sums),
        .busiest = calloc(layers + 1, sizeof *load->busiest),
        .distinct = calloc(layers + 1, sizeof *load->distinct),
        .counts = calloc(experts + 1, sizeof *load->counts),
        .layers = layers,
        .experts = experts,
        .top_k = top_k,
        .step_us_target = step_us_target,
    };
    if (load->tokens && load->layer_load && load->sums && load->busiest && load->distinct &&
        load->counts)
        return true;
    expert_load_close(load);
    return err_set(err, ERR_FATAL, "no memory for the loads of %zu experts", cells);
}

void expert_load_close(struct expert_load *load)
{
    free(load->tokens);
    free(load->layer_load);
    free(load->sums);
    free(load->busiest);
    free(load->distinct);
    free(load->counts);
    *load = (struct expert_load){0};
}

void expert_load_count(struct expert_load *load, uint32_t layer, const uint32_t *experts,
                       uint32_t n_tokens)
{
    uint64_t *totals = load->tokens + (size_t)layer * load->experts;
    uint32_t busiest = 0;
    uint32_t distinct = 0;

    memset(load->counts, 0, load->experts * sizeof *load->counts);
    for (size_t i = 0; i < (size_t)n_tokens * load->top_k; i++)
        load->counts[experts[i]]++;
    for (uint32_t e = 0; e < load->experts; e++) {
        totals[e] += load->counts[e];
        distinct += load->counts[e] > 0;
        if (load->counts[e] > busiest)
            busiest = load->counts[e];
    }
    load->busiest[layer] = busiest;
    load->distinct[layer] = distinct;
}

static void fit(struct expert_load *load, double tokens, double us)
{
    const double keep = 1 - forgetting;

    load->sum_one = load->sum_one * keep + 1;
    load->sum_tokens = load->sum_tokens * keep + tokens;
    load->sum_us = load->sum_us * keep + us;
    load->sum_tokens2 = load->sum_tokens2 * keep + tokens * tokens;
    load->sum_tokens_us = load->sum_tokens_us * keep + tokens * us;
}

double expert_load_tokens_target(const struct expert_load *load)
{
    const double n = load->sum_one;
    const double spread = n * load->sum_tokens2 - load->sum_tokens * load->sum_tokens;
    double slope = 0;
    double base = 0;
    double tokens;

    if (load->sum_us <= 0)
        return 1;
    /* Steps of one size say nothing about the slope: spread is then rounding noise. */
    if (spread > 1e-6 * n * load->sum_tokens2) {
        slope = (n * load->sum_tokens_us - load->sum_tokens * load->sum_us) / spread;
        base = (load->sum_us - slope * load->sum_tokens) / n;
    }
    if (slope <= 0 || base < 0) {
        base = 0;
        slope = load->sum_us / load->sum_tokens;
    }
    tokens = ((double)load->step_us_target - base) / slope;
    return tokens > 1 ? tokens : 1;
}

/* The step's busiest and distinct experts into the sums and the smoothed means over layers. */
static void add_step(struct expert_load *load, uint32_t n_tokens)
{
    const double mean = (double)n_tokens * load->top_k / load->experts;
    double imbalance = 0;
    double used = 0;

    if (load->layers == 0)
        return;
    for (uint32_t l = 0; l < load->layers; l++) {
        load->sums[l].busiest_tokens += load->busiest[l];
        load->sums[l].distinct += load->distinct[l];
        load->sums[l].imbalance += load->busiest[l] / mean;
        imbalance += load->busiest[l] / mean / load->layers;
        used += (double)load->distinct[l] / load->layers;
    }
    load->imbalance += smoothing * (imbalance - load->imbalance);
    load->experts_used += smoothing * (used - load->experts_used);
}

void expert_load_step(struct expert_load *load, uint32_t n_tokens, int64_t us)
{
    double capacity;

    fit(load, n_tokens, (double)us);
    add_step(load, n_tokens);
    capacity = expert_load_tokens_target(load) * load->top_k / load->experts;
    for (uint32_t l = 0; l < load->layers; l++) {
        double now = load->busiest[l] / capacity;

        load->layer_load[l] += (float)(smoothing * (now - (double)load->layer_load[l]));
    }
}

double expert_load_largest(const struct expert_load *load)
{
    float largest = 0;

    for (uint32_t l = 0; l < load->layers; l++)
        if (load->layer_load[l] > largest)
            largest = load->layer_load[l];
    return (double)largest;
}
