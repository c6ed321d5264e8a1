/* SPDX-License-Identifier: Apache-2.0
 *
 * vec_math - what both widths of vectors have in common: sums over lanes, the
 * exponential, loads by format. One of simd_avx2.h and simd_avx512.h is
 * included before it.
 */
#ifndef KERNELS_CPU_VEC_MATH_H
#define KERNELS_CPU_VEC_MATH_H

enum { LANES = 16 };

/* vec_fold added the lanes (i, i + 8) and (i, i + 4). */
static inline float vec_sum(struct vec a)
{
    const __m128 four = vec_fold(a);
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));

    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

/* Four sums at once, each by the tree of vec_sum. */
static inline __m128 vec_sum4(struct vec a, struct vec b, struct vec c, struct vec d)
{
    const __m128 a4 = vec_fold(a), b4 = vec_fold(b), c4 = vec_fold(c), d4 = vec_fold(d);
    const __m128 ab = _mm_add_ps(_mm_movelh_ps(a4, b4), _mm_movehl_ps(b4, a4));
    const __m128 cd = _mm_add_ps(_mm_movelh_ps(c4, d4), _mm_movehl_ps(d4, c4));

    return _mm_add_ps(_mm_shuffle_ps(ab, cd, _MM_SHUFFLE(2, 0, 2, 0)),
                      _mm_shuffle_ps(ab, cd, _MM_SHUFFLE(3, 1, 3, 1)));
}

/* e to the power of x within 2 units of the last place; 0 below -87.3 (no denormals), infinity
 * above 88.7. Cody and Waite reduction and the polynomial of Cephes' expf. */
static inline struct vec vec_exp(struct vec x)
{
    const struct vec low = vec_set(-87.33654f);
    const struct vec high = vec_set(88.72283f);
    const struct vec clamped = vec_min(high, vec_max(low, x));
    /* 127 at most, so that the power below is finite; the rest stays in the polynomial */
    const struct vec n =
        vec_min(vec_set(127), vec_round(vec_mul(clamped, vec_set(1.44269504088896341f))));
    struct vec r = vec_fma(n, vec_set(-0.693359375f), clamped);
    struct vec p = vec_set(1.9875691500e-4f);

    r = vec_fma(n, vec_set(2.12194440e-4f), r);
    p = vec_fma(p, r, vec_set(1.3981999507e-3f));
    p = vec_fma(p, r, vec_set(8.3334519073e-3f));
    p = vec_fma(p, r, vec_set(4.1665795894e-2f));
    p = vec_fma(p, r, vec_set(1.6666665459e-1f));
    p = vec_fma(p, r, vec_set(5.0000001201e-1f));
    p = vec_fma(p, vec_mul(r, r), vec_add(r, vec_set(1)));
    p = vec_mul(p, vec_exp2_int(n));
    p = vec_if_less(x, low, vec_set(0), p);
    return vec_if_less(high, x, vec_set(__builtin_inff()), p);
}

/* Sixteen elements from index on, or the n first of them and zeros. */
static inline struct vec vec_get(const void *array, enum dtype dtype, size_t index)
{
    if (dtype == DTYPE_F32)
        return vec_load((const float *)array + index);
    return vec_load_bf16((const uint16_t *)array + index);
}

static inline struct vec vec_get_n(const void *array, enum dtype dtype, size_t index, uint32_t n)
{
    if (dtype == DTYPE_F32)
        return vec_load_n((const float *)array + index, n);
    return vec_load_bf16_n((const uint16_t *)array + index, n);
}

#endif
