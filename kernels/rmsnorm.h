/* SPDX-License-Identifier: Apache-2.0
 *
 * rmsnorm - root mean square normalisation, with the residual addition before
 * it when there is one.
 *
 *     residual += x                                    (with residual)
 *     v = residual or x
 *     out = v / sqrt(mean(v * v) + eps) * w
 *
 * out may be x itself (same stride), nothing else may overlap.
 */
#ifndef KERNELS_RMSNORM_H
#define KERNELS_RMSNORM_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/numerics.h"

struct rmsnorm_args {
    const float *x;  /* (n_rows, dim), rows x_stride apart */
    float *residual; /* (n_rows, dim), rows residual_stride apart; NULL: none */
    const void *w;   /* (dim), w_dtype */
    float *out;      /* (n_rows, dim), rows out_stride apart */
    size_t x_stride; /* strides in elements, at least dim */
    size_t residual_stride;
    size_t out_stride;
    enum dtype w_dtype;
    uint32_t n_rows; /* 0 is allowed */
    uint32_t dim;
    float eps;
};

#endif
