/* SPDX-License-Identifier: Apache-2.0
 *
 * matmul - activations times weights, as one product, one per head, or one
 * per expert.
 *
 *     out[b][r][o] (+)= sum over i of x[b][r][i] * w[b][o][i]
 *
 * Weights lie as Hugging Face files have them and are read in place: (n_out,
 * n_in) row-major, MATMUL_OUT_IN. MATMUL_IN_OUT takes the same bytes the other
 * way round, w[b][i][o]; the absorbed query projection of MLA needs it
 * (q_latent = q_nope * W_UK with W_UK as stored).
 *
 * NUMERICS_BF16 rounds x, not w; w is exact in either dtype.
 * out overlaps neither x nor w.
 */
#ifndef KERNELS_MATMUL_H
#define KERNELS_MATMUL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/numerics.h"

enum matmul_layout {
    MATMUL_OUT_IN, /* w is (n_out, n_in) */
    MATMUL_IN_OUT, /* w is (n_in, n_out) */
};

/* Strides in elements. A batch stride of 0 shares the matrix between batches. */
struct matmul_args {
    const float *x;        /* (n_batches, n_rows, n_in) */
    const void *w;         /* (n_batches, n_out, n_in) or (n_batches, n_in, n_out), w_dtype */
    float *out;            /* (n_batches, n_rows, n_out) */
    void *scratch;         /* matmul_scratch_size() bytes, 64-byte aligned; NULL where that is 0 */
    size_t x_stride;       /* from row to row, at least n_in */
    size_t w_stride;       /* from row to row of w, at least n_in (OUT_IN) or n_out (IN_OUT) */
    size_t out_stride;     /* from row to row, at least n_out */
    size_t x_batch_stride; /* from batch to batch; unused when n_batches is 1 */
    size_t w_batch_stride;
    size_t out_batch_stride;
    enum dtype w_dtype;
    enum matmul_layout layout;
    enum numerics numerics;
    uint32_t n_rows; /* 0 is allowed */
    uint32_t n_in;
    uint32_t n_out;
    uint32_t n_batches; /* heads; 1 for a plain product */
    bool accumulate;    /* add to out instead of setting it */
};

/* Experts: rows [offsets[g], offsets[g + 1]) of x are multiplied by w[g]. An expert without rows
 * costs nothing. Layout is MATMUL_OUT_IN. */
struct matmul_grouped_args {
    const float *x;          /* (n_rows_max, n_in), sorted by group */
    const void *const *w;    /* (n_groups) pointers to (n_out, n_in), w_dtype */
    const uint32_t *offsets; /* (n_groups + 1), ascending, the last at most n_rows_max */
    float *out;    /* (n_rows_max, n_out); rows from offsets[n_groups] on stay as they are */
    void *scratch; /* matmul_scratch_size(n_rows_max, n_in, 1, numerics) bytes */
    size_t x_stride;
    size_t out_stride;
    enum dtype w_dtype;
    enum numerics numerics;
    uint32_t n_rows_max; /* 0 is allowed */
    uint32_t n_in;
    uint32_t n_out;
    uint32_t n_groups;
};

/* Bytes of scratch for either form, the same for all back ends: the rounded copy of x. The
 * scratch of several calls on one stream may be the same memory. */
size_t matmul_scratch_size(uint32_t n_rows, uint32_t n_in, uint32_t n_batches,
                           enum numerics numerics);

#endif
