/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_load - how busy the experts are, measured step by step.
 *
 * The load of a layer is what its busiest expert got in a step, over what an
 * expert can do within the target step time; 1 is full. What it can do follows
 * from the time of past steps: their duration is taken as a constant plus a
 * cost per token (reading weights, then computing), fitted with older steps
 * forgotten, and solved for the target. Tokens spread evenly over the experts
 * then give load 1 when a step takes as long as it may; skew shows as more.
 *
 * Beside it stands what the load is made of: how many times the mean the busiest
 * expert of a step got, and how many experts had work at all, since each of those
 * reads its weights whatever it has to do.
 *
 * Values only: it reads no clock.
 */
#ifndef WORKER_EXPERT_LOAD_H
#define WORKER_EXPERT_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/* One layer's sums over all steps. */
struct expert_layer_sums {
    uint64_t busiest_tokens; /* of the busiest expert */
    uint64_t distinct;       /* experts with at least one token */
    double imbalance;        /* busiest over mean */
};

struct expert_load {
    uint64_t *tokens;               /* (layers, experts) totals */
    float *layer_load;              /* (layers) smoothed */
    struct expert_layer_sums *sums; /* (layers) */
    uint32_t *busiest;              /* (layers) of the step that is being counted */
    uint32_t *distinct;             /* (layers) the same */
    uint32_t *counts;               /* (experts) scratch */
    uint32_t layers;                /* that have experts */
    uint32_t experts;               /* per layer */
    uint32_t top_k;                 /* per token */
    int64_t step_us_target;
    double imbalance; /* mean over layers, smoothed over steps */
    double experts_used;
    /* Sums over past steps, weighted: of 1, tokens, time, tokens^2, tokens * time. */
    double sum_one, sum_tokens, sum_us, sum_tokens2, sum_tokens_us;
};

bool expert_load_open(struct expert_load *load, uint32_t layers, uint32_t experts, uint32_t top_k,
                      int64_t step_us_target, struct err *err);
void expert_load_close(struct expert_load *load); /* zeroed is allowed */

/* The experts (n_tokens, top_k) that a layer chose in this step. */
void expert_load_count(struct expert_load *load, uint32_t layer, const uint32_t *experts,
                       uint32_t n_tokens);

/* The step is over; every layer has been counted. n_tokens is at least 1. */
void expert_load_step(struct expert_load *load, uint32_t n_tokens, int64_t us);

/* Tokens that a step of the target time can hold, at least 1; what the fit says now. */
double expert_load_tokens_target(const struct expert_load *load);

/* The largest of layer_load; 0 without layers. */
double expert_load_largest(const struct expert_load *load);

#endif
