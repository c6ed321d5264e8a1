/* SPDX-License-Identifier: Apache-2.0
 *
 * simd_avx2 - sixteen floats in two registers.
 *
 * The same names and the same arithmetic as simd_avx512.h, bit for bit; that
 * file says what the functions do.
 */
#ifndef KERNELS_CPU_SIMD_AVX2_H
#define KERNELS_CPU_SIMD_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "kernels/numerics.h"

/* 2 * 2 sums and 2 weights of two registers each. A third row would fit the 16 registers too, but
 * three rows of 2,048 inputs and two of weights no longer fit the first-level cache: 50 instead of
 * 70 GFLOP/s. */
enum {
    TILE_ROWS = 2,
    TILE_OUTS = 2,
    TILE_VECS = 2,
};

struct vec {
    __m256 lo;
    __m256 hi;
};

/* All ones in the lanes first to first + 7 of sixteen that are below n. */
static inline __m256i vec_mask(uint32_t n, int first)
{
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);

    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n - first), lanes);
}

static inline struct vec vec_set(float value)
{
    return (struct vec){_mm256_set1_ps(value), _mm256_set1_ps(value)};
}

static inline struct vec vec_load(const float *from)
{
    return (struct vec){_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}

static inline struct vec vec_load_n(const float *from, uint32_t n)
{
    return (struct vec){_mm256_maskload_ps(from, vec_mask(n, 0)),
                        _mm256_maskload_ps(from + 8, vec_mask(n, 8))};
}

static inline __m256 vec_widen(__m128i bf16)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bf16), 16));
}

static inline struct vec vec_load_bf16(const uint16_t *from)
{
    return (struct vec){vec_widen(_mm_loadu_si128((const __m128i *)from)),
                        vec_widen(_mm_loadu_si128((const __m128i *)(from + 8)))};
}

/* There is no masked load of 16-bit elements before AVX-512. */
static inline struct vec vec_load_bf16_n(const uint16_t *from, uint32_t n)
{
    uint16_t padded[16] = {0};

    memcpy(padded, from, n * sizeof *from);
    return vec_load_bf16(padded);
}

static inline void vec_store(float *to, struct vec a)
{
    _mm256_storeu_ps(to, a.lo);
    _mm256_storeu_ps(to + 8, a.hi);
}

static inline void vec_store_n(float *to, uint32_t n, struct vec a)
{
    _mm256_maskstore_ps(to, vec_mask(n, 0), a.lo);
    _mm256_maskstore_ps(to + 8, vec_mask(n, 8), a.hi);
}

static inline struct vec vec_add(struct vec a, struct vec b)
{
    return (struct vec){_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}

static inline struct vec vec_sub(struct vec a, struct vec b)
{
    return (struct vec){_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}

static inline struct vec vec_mul(struct vec a, struct vec b)
{
    return (struct vec){_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}

static inline struct vec vec_div(struct vec a, struct vec b)
{
    return (struct vec){_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}

static inline struct vec vec_fma(struct vec a, struct vec b, struct vec c)
{
    return (struct vec){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}

static inline struct vec vec_max(struct vec a, struct vec b)
{
    return (struct vec){_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}

static inline struct vec vec_min(struct vec a, struct vec b)
{
    return (struct vec){_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}

static inline struct vec vec_round(struct vec a)
{
    return (struct vec){_mm256_round_ps(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                        _mm256_round_ps(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

static inline __m256 vec_exp2_half(__m256 a)
{
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(a), _mm256_set1_epi32(127));

    return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}

static inline struct vec vec_exp2_int(struct vec a)
{
    return (struct vec){vec_exp2_half(a.lo), vec_exp2_half(a.hi)};
}

static inline struct vec vec_if_less(struct vec condition, struct vec limit, struct vec a,
                                     struct vec b)
{
    return (struct vec){
        _mm256_blendv_ps(b.lo, a.lo, _mm256_cmp_ps(condition.lo, limit.lo, _CMP_LT_OQ)),
        _mm256_blendv_ps(b.hi, a.hi, _mm256_cmp_ps(condition.hi, limit.hi, _CMP_LT_OQ))};
}

static inline struct vec vec_head(uint32_t n, struct vec a, struct vec b)
{
    return (struct vec){_mm256_blendv_ps(b.lo, a.lo, _mm256_castsi256_ps(vec_mask(n, 0))),
                        _mm256_blendv_ps(b.hi, a.hi, _mm256_castsi256_ps(vec_mask(n, 8)))};
}

static inline __m256 vec_to_bf16_half(__m256 a)
{
    const __m256i bits = _mm256_castps_si256(a);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    const __m256i rounded = _mm256_blendv_epi8(_mm256_add_epi32(bits, bias), quiet, nan);

    return _mm256_castsi256_ps(_mm256_and_si256(rounded, _mm256_set1_epi32((int)0xffff0000u)));
}

static inline struct vec vec_to_bf16(struct vec a)
{
    return (struct vec){vec_to_bf16_half(a.lo), vec_to_bf16_half(a.hi)};
}

static inline void vec_store_bf16_n(uint16_t *to, uint32_t n, struct vec a)
{
    const __m256i lo = _mm256_srli_epi32(_mm256_castps_si256(a.lo), 16);
    const __m256i hi = _mm256_srli_epi32(_mm256_castps_si256(a.hi), 16);
    /* packus works within the halves of a register: put the quarters in order again. */
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(lo, hi), 0xd8);
    uint16_t all[16];

    _mm256_storeu_si256((__m256i *)all, packed);
    memcpy(to, all, n * sizeof *to);
}

static inline __m128 vec_fold(struct vec a)
{
    const __m256 half = _mm256_add_ps(a.lo, a.hi);

    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

static inline float vec_max_across(struct vec a)
{
    const __m256 eight = _mm256_max_ps(a.lo, a.hi);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));

    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

#endif
