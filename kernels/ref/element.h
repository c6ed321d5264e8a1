/* SPDX-License-Identifier: Apache-2.0
 *
 * element - one number of an array in either format, for the reference loops.
 */
#ifndef KERNELS_REF_ELEMENT_H
#define KERNELS_REF_ELEMENT_H

#include "kernels/numerics.h"

static inline float element_get(const void *array, enum dtype dtype, size_t index)
{
    if (dtype == DTYPE_F32)
        return ((const float *)array)[index];
    return bf16_to_f32(((const uint16_t *)array)[index]);
}

static inline void element_set(void *array, enum dtype dtype, size_t index, float value)
{
    if (dtype == DTYPE_F32)
        ((float *)array)[index] = value;
    else
        ((uint16_t *)array)[index] = bf16_from_f32(value);
}

/* An activation as it enters a matrix product. */
static inline float element_round(float value, enum numerics numerics)
{
    return numerics == NUMERICS_BF16 ? bf16_to_f32(bf16_from_f32(value)) : value;
}

#endif
