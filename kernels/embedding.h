/* SPDX-License-Identifier: Apache-2.0
 *
 * embedding - rows of a table, widened to float.
 */
#ifndef KERNELS_EMBEDDING_H
#define KERNELS_EMBEDDING_H

#include <stdint.h>

#include "kernels/numerics.h"

struct embedding_args {
    const uint32_t *tokens; /* (n_rows), each below n_tokens_known */
    const void *table;      /* (n_tokens_known, dim), table_dtype */
    float *out;             /* (n_rows, dim) */
    enum dtype table_dtype;
    uint32_t n_rows; /* 0 is allowed */
    uint32_t n_tokens_known;
    uint32_t dim;
};

#endif
