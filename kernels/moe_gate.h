/* SPDX-License-Identifier: Apache-2.0
 *
 * moe_gate - choose the experts of every token.
 *
 *     score  = sigmoid(logit) or softmax over the experts
 *     choice = score + bias
 *     with n_groups > 1 only the groups_top best groups stay, a group's value
 *     being the sum of its two best choices; then the top_k best choices, best
 *     first
 *     weight = score, without the bias; / (their sum + 1e-20) if normalize;
 *     * scale, normalised or not
 *
 * Ties go to the lower index, of groups and of experts. A choice that is not
 * a number counts as the worst, so that experts are in range and distinct
 * whatever the logits are.
 */
#ifndef KERNELS_MOE_GATE_H
#define KERNELS_MOE_GATE_H

#include <stdbool.h>
#include <stdint.h>

enum moe_gate_score {
    MOE_GATE_SIGMOID,
    MOE_GATE_SOFTMAX,
};

struct moe_gate_args {
    const float *logits; /* (n_tokens, n_experts) */
    const float *bias;   /* (n_experts); NULL: none */
    uint32_t *experts;   /* out: (n_tokens, top_k), best first */
    float *weights;      /* out: (n_tokens, top_k) */
    enum moe_gate_score score;
    uint32_t n_tokens;   /* 0 is allowed */
    uint32_t n_experts;  /* at most MOE_EXPERTS_MAX */
    uint32_t n_groups;   /* divides n_experts; 1: no groups */
    uint32_t groups_top; /* 1 to n_groups, holding at least top_k experts */
    uint32_t top_k;      /* 1 to n_experts */
    float scale;         /* routed_scaling_factor, or 1 */
    bool normalize;      /* norm_topk_prob */
};

enum {
    MOE_EXPERTS_MAX = 1024, /* the largest public model has 384; bounds the buffers on the stack */
};

#endif
