/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/matmul.h"

size_t matmul_scratch_size(uint32_t n_rows, uint32_t n_in, uint32_t n_batches,
                           enum numerics numerics)
{
    /* Rows are padded to 32 elements. Back ends that have no products of bfloat16 keep the
     * rounded values as floats. */
    const size_t row_size = ((size_t)n_in + 31) / 32 * 32 * sizeof(float);

    return numerics == NUMERICS_BF16 ? n_batches * (size_t)n_rows * row_size : 0;
}
