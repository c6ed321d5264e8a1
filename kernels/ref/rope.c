/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/rope.h"

#include "common/check.h"
#include "kernels/ref/ref.h"

bool ref_rope(struct stream *stream, const struct rope_args *args, struct err *err)
{
    (void)stream;
    (void)err;
    for (size_t row = 0; row < args->n_rows; row++) {
        CHECK(args->positions[row] < args->n_positions);
        const float *cosines = args->table + args->positions[row] * (size_t)args->dim;
        const float *sines = cosines + args->dim / 2;

        for (size_t head = 0; head < args->n_heads; head++) {
            float *x = args->x + row * args->row_stride + head * args->head_stride;
            for (size_t i = 0; i < args->dim / 2; i++) {
                const float a = x[2 * i];
                const float b = x[2 * i + 1];
                x[2 * i] = a * cosines[i] - b * sines[i];
                x[2 * i + 1] = b * cosines[i] + a * sines[i];
            }
        }
    }
    return true;
}
