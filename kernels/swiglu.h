/* SPDX-License-Identifier: Apache-2.0
 *
 * swiglu - out = gate / (1 + exp(-gate)) * up, element by element.
 *
 * out may be gate or up itself (same stride); nothing else may overlap.
 * n_rows may come from device memory, because only dispatch knows how many
 * rows the experts of this rank got.
 */
#ifndef KERNELS_SWIGLU_H
#define KERNELS_SWIGLU_H

#include <stddef.h>
#include <stdint.h>

struct swiglu_args {
    const float *gate;           /* (n_rows, dim), rows gate_stride apart */
    const float *up;             /* (n_rows, dim), rows up_stride apart */
    float *out;                  /* (n_rows, dim), rows out_stride apart */
    const uint32_t *n_rows_used; /* device memory, at most n_rows; NULL: n_rows */
    size_t gate_stride;          /* strides in elements, at least dim */
    size_t up_stride;
    size_t out_stride;
    uint32_t n_rows; /* 0 is allowed */
    uint32_t dim;
};

#endif
