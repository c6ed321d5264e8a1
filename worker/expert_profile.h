/* SPDX-License-Identifier: Apache-2.0
 *
 * expert_profile - which experts the tokens of one sequence chose.
 *
 * Counts by layer and expert, kept beside each sequence and reported with its
 * answer, so that the scheduler can put requests together whose experts differ.
 * A profile has at most EXPERT_PROFILE_CELLS_MAX counts: of a model with more,
 * every nth layer is counted (DeepSeek-V3: 4 of 58 layers), whole layers rather
 * than folded experts, because the busiest expert of a layer is what counts.
 * Reported counts are scaled to 0..63 by layer, which is one byte each on the
 * wire, and finer than what one answer says about the next.
 *
 * Values only.
 */
#ifndef WORKER_EXPERT_PROFILE_H
#define WORKER_EXPERT_PROFILE_H

#include <stdint.h>

enum { EXPERT_PROFILE_CELLS_MAX = 1024, EXPERT_PROFILE_COUNT_MAX = 63 };

struct expert_profile_shape {
    uint32_t experts; /* per layer */
    uint32_t top_k;   /* per token */
    uint32_t stride;  /* layers 0, stride, 2 * stride, ... are counted */
    uint32_t layers;  /* that are counted; 0: the model has none */
};

struct expert_profile_shape expert_profile_shape(uint32_t layers, uint32_t experts, uint32_t top_k);

uint32_t expert_profile_cells(const struct expert_profile_shape *shape);

/* Adds the choices (n_tokens, top_k) of the nth counted layer to counts (layers, experts). */
void expert_profile_count(const struct expert_profile_shape *shape, uint32_t *counts, uint32_t nth,
                          const uint32_t *experts, uint32_t n_tokens);

/* counts as they are reported: each layer's largest becomes EXPERT_PROFILE_COUNT_MAX, others are
 * rounded. (layers, experts) both; a layer without counts stays 0. */
void expert_profile_scale(const struct expert_profile_shape *shape, const uint32_t *counts,
                          int32_t *scaled);

#endif
