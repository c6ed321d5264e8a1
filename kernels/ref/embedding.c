/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/embedding.h"

#include "common/check.h"
#include "kernels/ref/element.h"
#include "kernels/ref/ref.h"

bool ref_embedding(struct stream *stream, const struct embedding_args *args, struct err *err)
{
    (void)stream;
    (void)err;
    for (size_t row = 0; row < args->n_rows; row++) {
        CHECK(args->tokens[row] < args->n_tokens_known);
        for (size_t i = 0; i < args->dim; i++)
            args->out[row * args->dim + i] = element_get(args->table, args->table_dtype,
                                                         args->tokens[row] * (size_t)args->dim + i);
    }
    return true;
}
