/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/bench/kernels_peak.h"

#include <immintrin.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"

enum {
    READ_SIZE = 256 << 20, /* eight times the largest cache seen so far */
    BLOCK_SIZE = 128,      /* that a buffer is read in */
    N_TRIES = 5,
    N_ROUNDS = 2000000,
    N_PARTS_MAX = 4096,
    N_CHAINS = 12, /* independent sums: 2 units of latency 4, and some to spare */
};

double peak_now(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

struct read_task {
    const float *memory;
    float *sums;       /* (N_PARTS_MAX), so that nothing is optimised away */
    size_t size;       /* of memory */
    uint32_t n_rounds; /* of multiply-adds, in all parts together */
};

__attribute__((target("avx2"))) static void read_part(const void *context, uint32_t part,
                                                      uint32_t n_parts)
{
    const struct read_task *task = context;
    const struct pool_range range =
        pool_split((uint32_t)(task->size / BLOCK_SIZE), 1, part, n_parts);
    const float *memory = task->memory + (size_t)range.begin * BLOCK_SIZE / sizeof *memory;
    __m256 sums[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                      _mm256_setzero_ps()};

    for (uint32_t i = range.begin; i < range.end; i++, memory += BLOCK_SIZE / sizeof *memory) {
        /* 4 KB ahead: the processor's own prefetcher stops at the end of every page */
        const uintptr_t ahead = (uintptr_t)memory + 4096;
        _mm_prefetch((const void *)ahead, _MM_HINT_T1);
        _mm_prefetch((const void *)(ahead + 64), _MM_HINT_T1);
#pragma GCC unroll 4
        for (uint32_t k = 0; k < 4; k++)
            sums[k] = _mm256_add_ps(sums[k], _mm256_load_ps(memory + 8 * k));
    }
    sums[0] = _mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3]));
    CHECK(part < N_PARTS_MAX);
    task->sums[part] = _mm256_cvtss_f32(sums[0]);
}

/* Multiply-adds of one kind of vector, nothing else: N_CHAINS sums that do not wait for each other.
 */
#define SUM_PART(name, features, bits, factor_type, add)                                           \
    __attribute__((target(features))) static void name(const void *context, uint32_t part,         \
                                                       uint32_t n_parts)                           \
    {                                                                                              \
        const struct read_task *task = context;                                                    \
        const struct pool_range rounds = pool_split(task->n_rounds, 1, part, n_parts);             \
        const factor_type factor = (factor_type)_mm##bits##_set1_ps(task->memory[0]);              \
        __m##bits sums[N_CHAINS];                                                                  \
                                                                                                   \
        _Pragma("GCC unroll 12") for (int c = 0; c < N_CHAINS; c++) sums[c] =                      \
            _mm##bits##_set1_ps((float)c);                                                         \
        for (uint32_t i = rounds.begin; i < rounds.end; i++)                                       \
            _Pragma("GCC unroll 12") for (int c = 0; c < N_CHAINS; c++) sums[c] =                  \
                add(sums[c], factor);                                                              \
        for (int c = 1; c < N_CHAINS; c++)                                                         \
            sums[0] = _mm##bits##_add_ps(sums[0], sums[c]);                                        \
        CHECK(part < N_PARTS_MAX);                                                                 \
        task->sums[part] = _mm##bits##_cvtss_f32(sums[0]);                                         \
    }

#define ADD_AVX2(sum, factor)   _mm256_fmadd_ps(factor, factor, sum)
#define ADD_AVX512(sum, factor) _mm512_fmadd_ps(factor, factor, sum)
#define ADD_BF16(sum, factor)   _mm512_dpbf16_ps(sum, factor, factor)
SUM_PART(fma_avx2_part, "avx2,fma", 256, __m256, ADD_AVX2)
SUM_PART(fma_avx512_part, "avx512f", 512, __m512, ADD_AVX512)
SUM_PART(dpbf16_part, "avx512f,avx512bf16", 512, __m512bh, ADD_BF16)

/* Shortest of some runs, in seconds: others use the machine too. */
static double shortest(struct pool *pool, clockid_t clock, pool_task *task,
                       const struct read_task *args)
{
    double best = 1e9;

    for (int i = 0; i < N_TRIES; i++) {
        const double start = peak_now(clock);
        pool_run(pool, task, args, UINT64_MAX);
        const double seconds = peak_now(clock) - start;
        best = seconds < best ? seconds : best;
    }
    return best;
}

double peak_reads(struct pool *pool, clockid_t clock, size_t size)
{
    const size_t least = size < 1 << 16 ? 1 << 16 : size;
    const size_t most = least < READ_SIZE ? least : READ_SIZE;
    struct read_task task = {.size = most / 4096 * 4096};
    float *memory = aligned_alloc(4096, task.size);
    double best = 0;

    task.sums = calloc(N_PARTS_MAX, sizeof *task.sums);
    CHECK(memory);
    CHECK(task.sums);
    memset(memory, 0, task.size);
    task.memory = memory;
    /* Half a second: a buffer that a cache holds is read often enough to be there. */
    for (const double end = peak_now(clock) + 0.5; peak_now(clock) < end;) {
        const double start = peak_now(clock);
        pool_run(pool, read_part, &task, UINT64_MAX);
        const double seconds = peak_now(clock) - start;
        if (seconds > 0 && (double)task.size / seconds > best)
            best = (double)task.size / seconds;
    }
    free(memory);
    free(task.sums);
    return best * 1e-9;
}

struct peak peak_measure(struct pool *pool, clockid_t clock)
{
    const uint32_t n_rounds = pool_n_threads(pool) * N_ROUNDS;
    const double n_fma = (double)n_rounds * N_CHAINS;
    const float one = 1;
    float *sums = calloc(N_PARTS_MAX, sizeof *sums);
    struct peak peak;

    CHECK(sums);
    const struct read_task task = {.memory = &one, .sums = sums, .n_rounds = n_rounds};
    peak.read_gbs = peak_reads(pool, clock, READ_SIZE);
    if (__builtin_cpu_supports("avx512f"))
        peak.f32_gflops = 32 * n_fma / shortest(pool, clock, fma_avx512_part, &task) * 1e-9;
    else
        peak.f32_gflops = 16 * n_fma / shortest(pool, clock, fma_avx2_part, &task) * 1e-9;
    peak.bf16_gflops = peak.f32_gflops;
    if (__builtin_cpu_supports("avx512bf16"))
        peak.bf16_gflops = 64 * n_fma / shortest(pool, clock, dpbf16_part, &task) * 1e-9;
    free(sums);
    return peak;
}
