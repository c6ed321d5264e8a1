/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/swiglu.h"

#include <math.h>

#include "common/check.h"
#include "kernels/ref/ref.h"

bool ref_swiglu(struct stream *stream, const struct swiglu_args *args, struct err *err)
{
    const size_t n_rows = args->n_rows_used ? *args->n_rows_used : args->n_rows;

    (void)stream;
    (void)err;
    CHECK(n_rows <= args->n_rows);
    for (size_t row = 0; row < n_rows; row++) {
        const float *gate = args->gate + row * args->gate_stride;
        const float *up = args->up + row * args->up_stride;
        float *out = args->out + row * args->out_stride;
        for (size_t i = 0; i < args->dim; i++)
            out[i] = (float)(gate[i] / (1 + exp(-(double)gate[i])) * up[i]);
    }
    return true;
}
