/* SPDX-License-Identifier: Apache-2.0
 *
 * moe_permute - rows of tokens to rows of experts, and back.
 *
 * moe_permute sorts the (token, slot) pairs by expert, tokens ascending
 * within an expert, and copies each token's row to the place of each of its
 * pairs. moe_combine adds the experts' rows up again, always in slot order,
 * whatever order the rows were computed in:
 *
 *     sum = weights[t][0] * rows[row_of[t][0]] + weights[t][1] * ... (+ shared[t])
 *     out[t] = sum, or out[t] + sum with accumulate
 *
 * Transports use both (kernels/transport.h); the forward pass does not.
 */
#ifndef KERNELS_MOE_PERMUTE_H
#define KERNELS_MOE_PERMUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct moe_permute_args {
    const float *x;          /* (n_tokens, dim), rows x_stride apart */
    const uint32_t *experts; /* (n_tokens, top_k), each below n_experts */
    float *rows;             /* out: (n_tokens * top_k, dim) */
    uint32_t *offsets;       /* out: (n_experts + 1), rows [offsets[e], offsets[e + 1]) are e's */
    uint32_t *row_of;        /* out: (n_tokens, top_k), the row of each pair */
    size_t x_stride;         /* in elements */
    uint32_t n_tokens;       /* 0 is allowed */
    uint32_t n_experts;      /* at most MOE_EXPERTS_MAX */
    uint32_t top_k;
    uint32_t dim;
};

struct moe_combine_args {
    const float *rows;      /* (n_tokens * top_k, dim), the experts' output */
    const float *weights;   /* (n_tokens, top_k) */
    const uint32_t *row_of; /* (n_tokens, top_k) */
    const float *shared;    /* (n_tokens, dim), rows shared_stride apart; NULL: none */
    float *out;             /* (n_tokens, dim), rows out_stride apart */
    size_t shared_stride;   /* strides in elements */
    size_t out_stride;
    uint32_t n_tokens; /* 0 is allowed */
    uint32_t top_k;
    uint32_t dim;
    bool accumulate; /* add to out, the residual stream, instead of setting it */
};

#endif
