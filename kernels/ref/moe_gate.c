/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/moe_gate.h"

#include <math.h>

#include "common/check.h"
#include "kernels/ref/ref.h"

static void scores_of(const struct moe_gate_args *args, const float *logits, double *scores)
{
    double logit_max = -INFINITY;
    double sum = 0;

    if (args->score == MOE_GATE_SIGMOID) {
        for (size_t e = 0; e < args->n_experts; e++)
            scores[e] = 1 / (1 + exp(-(double)logits[e]));
        return;
    }
    for (size_t e = 0; e < args->n_experts; e++)
        logit_max = fmax(logit_max, logits[e]);
    for (size_t e = 0; e < args->n_experts; e++) {
        scores[e] = exp(logits[e] - logit_max);
        sum += scores[e];
    }
    for (size_t e = 0; e < args->n_experts; e++)
        scores[e] /= sum;
}

/* The index of the largest value that is not taken, the lowest one of equals. */
static size_t best_of(const float *values, const bool *taken, size_t n)
{
    size_t best = n;

    for (size_t i = 0; i < n; i++)
        if (!taken[i] && (best == n || values[i] > values[best]))
            best = i;
    CHECK(best < n);
    return best;
}

/* Marks the experts of all groups but the best ones as taken. */
static void drop_groups(const struct moe_gate_args *args, const float *choices, bool *taken)
{
    const size_t size = args->n_experts / args->n_groups;
    float values[MOE_EXPERTS_MAX];
    bool kept[MOE_EXPERTS_MAX] = {false};

    for (size_t group = 0; group < args->n_groups; group++) {
        const float *members = choices + group * size;
        bool used[MOE_EXPERTS_MAX] = {false};
        const size_t first = best_of(members, used, size);
        values[group] = members[first];
        used[first] = true;
        if (size > 1)
            values[group] += members[best_of(members, used, size)];
    }
    for (size_t i = 0; i < args->groups_top; i++)
        kept[best_of(values, kept, args->n_groups)] = true;
    for (size_t e = 0; e < args->n_experts; e++)
        taken[e] = !kept[e / size];
}

static void gate(const struct moe_gate_args *args, size_t token)
{
    uint32_t *experts = args->experts + token * args->top_k;
    float *weights = args->weights + token * args->top_k;
    double scores[MOE_EXPERTS_MAX];
    float choices[MOE_EXPERTS_MAX];
    bool taken[MOE_EXPERTS_MAX] = {false};
    double sum = 0;

    scores_of(args, args->logits + token * args->n_experts, scores);
    for (size_t e = 0; e < args->n_experts; e++) {
        const float choice = (float)scores[e] + (args->bias ? args->bias[e] : 0);
        choices[e] = isnan(choice) ? -INFINITY : choice;
    }
    if (args->n_groups > 1)
        drop_groups(args, choices, taken);
    for (size_t k = 0; k < args->top_k; k++) {
        const size_t best = best_of(choices, taken, args->n_experts);
        taken[best] = true;
        experts[k] = (uint32_t)best;
        sum += scores[best];
    }
    for (size_t k = 0; k < args->top_k; k++) {
        const double divisor = args->normalize ? sum + 1e-20 : 1;
        weights[k] = (float)(scores[experts[k]] / divisor * args->scale);
    }
}

bool ref_moe_gate(struct stream *stream, const struct moe_gate_args *args, struct err *err)
{
    (void)stream;
    (void)err;
    CHECK(args->n_experts <= MOE_EXPERTS_MAX);
    CHECK(args->n_groups >= 1);
    CHECK(args->n_experts % args->n_groups == 0);
    CHECK(args->groups_top >= 1);
    CHECK(args->groups_top <= args->n_groups);
    CHECK(args->top_k <= args->n_experts / args->n_groups * args->groups_top);
    for (size_t token = 0; token < args->n_tokens; token++)
        gate(args, token);
    return true;
}
