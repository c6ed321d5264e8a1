/* SPDX-License-Identifier: Apache-2.0
 *
 * simd_avx512 - sixteen floats in one register.
 *
 * The same names and the same arithmetic as simd_avx2.h, bit for bit: sixteen
 * lanes, fused multiply-adds, and sums over the lanes as the tree
 * (i, i + 8), (i, i + 4), (i, i + 2), (i, i + 1).
 */
#ifndef KERNELS_CPU_SIMD_AVX512_H
#define KERNELS_CPU_SIMD_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#include "kernels/numerics.h"

enum {
    TILE_ROWS = 6, /* 6 * 4 sums and 4 weights of 32 registers; activations come from memory */
    TILE_OUTS = 4,
    TILE_VECS = 4, /* vectors of outputs in the other layout: 6 * 4 sums as well */
};

struct vec {
    __m512 v;
};

/* Lanes below n, n from 0 to 16. */
static inline __mmask16 vec_mask(uint32_t n)
{
    return (__mmask16)((1u << n) - 1);
}

static inline struct vec vec_set(float value)
{
    return (struct vec){_mm512_set1_ps(value)};
}

static inline struct vec vec_load(const float *from)
{
    return (struct vec){_mm512_loadu_ps(from)};
}

/* The lanes from n on are 0, and what lies there in memory is not touched. */
static inline struct vec vec_load_n(const float *from, uint32_t n)
{
    return (struct vec){_mm512_maskz_loadu_ps(vec_mask(n), from)};
}

static inline __m512 vec_widen(__m256i bf16)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16));
}

static inline struct vec vec_load_bf16(const uint16_t *from)
{
    return (struct vec){vec_widen(_mm256_loadu_si256((const __m256i *)from))};
}

static inline struct vec vec_load_bf16_n(const uint16_t *from, uint32_t n)
{
    return (struct vec){vec_widen(_mm256_maskz_loadu_epi16(vec_mask(n), from))};
}

static inline void vec_store(float *to, struct vec a)
{
    _mm512_storeu_ps(to, a.v);
}

static inline void vec_store_n(float *to, uint32_t n, struct vec a)
{
    _mm512_mask_storeu_ps(to, vec_mask(n), a.v);
}

static inline struct vec vec_add(struct vec a, struct vec b)
{
    return (struct vec){_mm512_add_ps(a.v, b.v)};
}

static inline struct vec vec_sub(struct vec a, struct vec b)
{
    return (struct vec){_mm512_sub_ps(a.v, b.v)};
}

static inline struct vec vec_mul(struct vec a, struct vec b)
{
    return (struct vec){_mm512_mul_ps(a.v, b.v)};
}

static inline struct vec vec_div(struct vec a, struct vec b)
{
    return (struct vec){_mm512_div_ps(a.v, b.v)};
}

/* a * b + c */
static inline struct vec vec_fma(struct vec a, struct vec b, struct vec c)
{
    return (struct vec){_mm512_fmadd_ps(a.v, b.v, c.v)};
}

/* b where one of them is not a number. */
static inline struct vec vec_max(struct vec a, struct vec b)
{
    return (struct vec){_mm512_max_ps(a.v, b.v)};
}

/* b where one of them is not a number. */
static inline struct vec vec_min(struct vec a, struct vec b)
{
    return (struct vec){_mm512_min_ps(a.v, b.v)};
}

static inline struct vec vec_round(struct vec a)
{
    return (struct vec){_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

/* 2 to the power of a, which holds integers from -126 to 127. */
static inline struct vec vec_exp2_int(struct vec a)
{
    const __m512i exponent = _mm512_add_epi32(_mm512_cvtps_epi32(a.v), _mm512_set1_epi32(127));

    return (struct vec){_mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23))};
}

/* Lane by lane: condition < limit ? a : b; b where condition is not a number. */
static inline struct vec vec_if_less(struct vec condition, struct vec limit, struct vec a,
                                     struct vec b)
{
    const __mmask16 less = _mm512_cmp_ps_mask(condition.v, limit.v, _CMP_LT_OQ);

    return (struct vec){_mm512_mask_blend_ps(less, b.v, a.v)};
}

/* a in the lanes below n, b in the others. */
static inline struct vec vec_head(uint32_t n, struct vec a, struct vec b)
{
    return (struct vec){_mm512_mask_blend_ps(vec_mask(n), b.v, a.v)};
}

/* Each lane as the bfloat16 next to it, ties to even; not a number stays not a number. */
static inline struct vec vec_to_bf16(struct vec a)
{
    const __m512i bits = _mm512_castps_si512(a.v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    const __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
    __m512i rounded = _mm512_add_epi32(bits, bias);

    rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
    rounded = _mm512_and_si512(rounded, _mm512_set1_epi32((int)0xffff0000u));
    return (struct vec){_mm512_castsi512_ps(rounded)};
}

/* Stores the upper halves of the lanes below n, which is exact after vec_to_bf16. */
static inline void vec_store_bf16_n(uint16_t *to, uint32_t n, struct vec a)
{
    const __m512i upper = _mm512_srli_epi32(_mm512_castps_si512(a.v), 16);

    _mm256_mask_storeu_epi16(to, vec_mask(n), _mm512_cvtepi32_epi16(upper));
}

static inline __m128 vec_fold(struct vec a)
{
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));

    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

static inline float vec_max_across(struct vec a)
{
    return _mm512_reduce_max_ps(a.v);
}

#endif
