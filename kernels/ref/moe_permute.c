/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/moe_permute.h"

#include <string.h>

#include "common/check.h"
#include "kernels/ref/ref.h"

bool ref_moe_permute(struct stream *stream, const struct moe_permute_args *args, struct err *err)
{
    const size_t n_pairs = (size_t)args->n_tokens * args->top_k;
    uint32_t row = 0;

    (void)stream;
    (void)err;
    for (size_t pair = 0; pair < n_pairs; pair++)
        CHECK(args->experts[pair] < args->n_experts);
    for (uint32_t expert = 0; expert < args->n_experts; expert++) {
        args->offsets[expert] = row;
        for (size_t pair = 0; pair < n_pairs; pair++) {
            if (args->experts[pair] != expert)
                continue;
            memcpy(args->rows + row * (size_t)args->dim,
                   args->x + pair / args->top_k * args->x_stride, args->dim * sizeof *args->x);
            args->row_of[pair] = row++;
        }
    }
    args->offsets[args->n_experts] = row;
    return true;
}

bool ref_moe_combine(struct stream *stream, const struct moe_combine_args *args, struct err *err)
{
    (void)stream;
    (void)err;
    for (size_t token = 0; token < args->n_tokens; token++) {
        const uint32_t *row_of = args->row_of + token * args->top_k;
        const float *weights = args->weights + token * args->top_k;
        float *out = args->out + token * args->out_stride;
        for (size_t i = 0; i < args->dim; i++) {
            double sum = 0;
            for (size_t slot = 0; slot < args->top_k; slot++)
                sum += (double)weights[slot] * args->rows[row_of[slot] * (size_t)args->dim + i];
            if (args->shared)
                sum += args->shared[token * args->shared_stride + i];
            out[i] = (float)(args->accumulate ? out[i] + sum : sum);
        }
    }
    return true;
}
