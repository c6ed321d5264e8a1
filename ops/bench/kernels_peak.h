/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels_peak - what this machine can do at most, measured: the limits that
 * bench_kernels compares kernels with.
 */
#ifndef OPS_BENCH_KERNELS_PEAK_H
#define OPS_BENCH_KERNELS_PEAK_H

#include <stddef.h>
#include <time.h>

#include "kernels/cpu/pool.h"

struct peak {
    double read_gbs;    /* memory reads, all threads, in 10^9 bytes a second */
    double f32_gflops;  /* multiply-adds of floats count as two operations */
    double bf16_gflops; /* vdpbf16ps; that of floats where there is no such instruction */
};

/* Takes about a second and 256 MB. */
struct peak peak_measure(struct pool *pool, clockid_t clock);

/* 10^9 bytes a second that all threads read from a buffer of this size (256 MB at most), which a
 * cache may hold; takes half a second. */
double peak_reads(struct pool *pool, clockid_t clock, size_t size);

/* Seconds since some start. */
double peak_now(clockid_t clock);

#endif
