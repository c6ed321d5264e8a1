/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/matmul.h"

#include "common/check.h"
#include "kernels/ref/element.h"
#include "kernels/ref/ref.h"

/* Element (out, in) of batch b's weights. */
static float weight(const struct matmul_args *args, size_t b, size_t out, size_t in)
{
    const size_t row = args->layout == MATMUL_OUT_IN ? out : in;
    const size_t column = args->layout == MATMUL_OUT_IN ? in : out;

    return element_get(args->w, args->w_dtype,
                       b * args->w_batch_stride + row * args->w_stride + column);
}

bool ref_matmul(struct stream *stream, const struct matmul_args *args, struct err *err)
{
    (void)stream;
    (void)err;
    for (size_t b = 0; b < args->n_batches; b++) {
        for (size_t row = 0; row < args->n_rows; row++) {
            const float *x = args->x + b * args->x_batch_stride + row * args->x_stride;
            float *out = args->out + b * args->out_batch_stride + row * args->out_stride;
            for (size_t o = 0; o < args->n_out; o++) {
                double sum = args->accumulate ? out[o] : 0;
                for (size_t i = 0; i < args->n_in; i++)
                    sum += (double)element_round(x[i], args->numerics) * weight(args, b, o, i);
                out[o] = (float)sum;
            }
        }
    }
    return true;
}

bool ref_matmul_grouped(struct stream *stream, const struct matmul_grouped_args *args,
                        struct err *err)
{
    for (size_t group = 0; group < args->n_groups; group++) {
        const uint32_t begin = args->offsets[group];
        const uint32_t end = args->offsets[group + 1];
        const struct matmul_args one = {
            .x = args->x + begin * args->x_stride,
            .w = args->w[group],
            .out = args->out + begin * args->out_stride,
            .x_stride = args->x_stride,
            .w_stride = args->n_in,
            .out_stride = args->out_stride,
            .w_dtype = args->w_dtype,
            .layout = MATMUL_OUT_IN,
            .numerics = args->numerics,
            .n_rows = end - begin,
            .n_in = args->n_in,
            .n_out = args->n_out,
            .n_batches = 1,
        };

        CHECK(begin <= end);
        CHECK(end <= args->n_rows_max);
        if (!ref_matmul(stream, &one, err))
            return false;
    }
    return true;
}
