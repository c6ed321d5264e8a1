/* SPDX-License-Identifier: Apache-2.0
 *
 * numerics - number formats, and how matmuls round.
 *
 * Activations are float everywhere; weights stay as they lie in the model
 * file. What differs between the two modes is one thing: NUMERICS_BF16 rounds
 * every activation that enters a matrix product to bfloat16 first (nearest,
 * ties to even), as GPUs do. Sums are float in both.
 *
 * The law of all kernels: an output element is reduced in an order that
 * follows from the model and the token's position alone. Which rows are its
 * neighbours, how many there are, how they were cut into chunks and how many
 * threads work never changes a bit of it.
 */
#ifndef KERNELS_NUMERICS_H
#define KERNELS_NUMERICS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

enum dtype {
    DTYPE_F32,
    DTYPE_BF16,
};

enum numerics {
    NUMERICS_F32,  /* activations keep 24 bits; KV cache in float */
    NUMERICS_BF16, /* activations rounded before they are multiplied; KV cache in bfloat16 */
};

static inline size_t dtype_size(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? 4 : 2;
}

/* The format of the KV cache in a mode. */
static inline enum dtype numerics_kv_dtype(enum numerics numerics)
{
    return numerics == NUMERICS_F32 ? DTYPE_F32 : DTYPE_BF16;
}

static inline float bf16_to_f32(uint16_t value)
{
    uint32_t bits = (uint32_t)value << 16;
    float result;

    memcpy(&result, &bits, sizeof result);
    return result;
}

/* Nearest, ties to even; a NaN stays a NaN. */
static inline uint16_t bf16_from_f32(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

#ifdef __cplusplus
}
#endif
#endif
