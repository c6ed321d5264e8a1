/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/rmsnorm.h"

#include <math.h>

#include "kernels/ref/element.h"
#include "kernels/ref/ref.h"

bool ref_rmsnorm(struct stream *stream, const struct rmsnorm_args *args, struct err *err)
{
    (void)stream;
    (void)err;
    for (size_t row = 0; row < args->n_rows; row++) {
        const float *v = args->x + row * args->x_stride;
        float *out = args->out + row * args->out_stride;

        if (args->residual) {
            float *residual = args->residual + row * args->residual_stride;
            for (size_t i = 0; i < args->dim; i++)
                residual[i] += v[i];
            v = residual;
        }
        double sum = 0;
        for (size_t i = 0; i < args->dim; i++)
            sum += (double)v[i] * v[i];
        const double scale = 1 / sqrt(sum / args->dim + args->eps);
        for (size_t i = 0; i < args->dim; i++)
            out[i] = (float)(v[i] * scale * element_get(args->w, args->w_dtype, i));
    }
    return true;
}
