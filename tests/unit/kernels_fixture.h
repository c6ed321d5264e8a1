/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels_fixture - what the tests of kernels share: every back end that this
 * machine can run, devices of one to three threads, random numbers from a
 * fixed seed, and comparisons.
 *
 * Fast back ends are compared with ref within a tolerance, with themselves bit
 * for bit. Blocks of memory come from malloc at their exact size, so that the
 * address sanitizer sees a read beyond a tail.
 */
#ifndef TESTS_UNIT_KERNELS_FIXTURE_H
#define TESTS_UNIT_KERNELS_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "kernels/backend.h"

enum { N_BACKENDS_FAST_MAX = 3, N_THREADS_MAX = 3 };

struct fixture {
    const struct backend *ref;
    const struct backend *fast[N_BACKENDS_FAST_MAX];
    size_t n_fast;
    struct device *devices[N_THREADS_MAX]; /* of 1, 2 and 3 threads */
    struct stream *streams[N_THREADS_MAX];
};

static struct fixture fixture;

static inline int fixture_open(void **state)
{
    const char *names[] = {"cpu-avx2", "cpu-avx512", "cpu-avx512bf16"};
    struct err err;

    (void)state;
    CHECK(backend_find("ref", &fixture.ref, &err));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (backend_find(names[i], &fixture.fast[fixture.n_fast], &err))
            fixture.n_fast++;
        else
            printf("not tested here: %s\n", names[i]);
    }
    for (uint32_t i = 0; i < N_THREADS_MAX; i++) {
        const struct device_options options = {.kind = DEVICE_CPU, .n_threads = i + 1};
        CHECK(device_open(options, &fixture.devices[i], &err));
        CHECK(stream_open(fixture.devices[i], &fixture.streams[i], &err));
    }
    return 0;
}

static inline int fixture_close(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_THREADS_MAX; i++) {
        stream_close(fixture.streams[i]);
        device_close(fixture.devices[i]);
    }
    return 0;
}

static inline void *fixture_alloc(size_t size)
{
    void *memory = malloc(size ? size : 1);

    CHECK(memory);
    return memory;
}

/* Uniform in [-1, 1). */
static inline float random_float(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / (1 << 23) - 1;
}

static inline float *random_floats(size_t count, uint32_t *seed)
{
    float *values = fixture_alloc(count * sizeof *values);

    for (size_t i = 0; i < count; i++)
        values[i] = random_float(seed);
    return values;
}

static inline void *random_weights(size_t count, enum dtype dtype, uint32_t *seed)
{
    float *values = random_floats(count, seed);

    if (dtype == DTYPE_F32)
        return values;
    uint16_t *narrow = fixture_alloc(count * sizeof *narrow);
    for (size_t i = 0; i < count; i++)
        narrow[i] = bf16_from_f32(values[i]);
    free(values);
    return narrow;
}

static inline bool same_bits(const float *a, const float *b, size_t count)
{
    return memcmp(a, b, count * sizeof *a) == 0;
}

/* NaN is never close to anything. */
static inline bool all_close(const float *a, const float *b, size_t count, float tolerance)
{
    for (size_t i = 0; i < count; i++) {
        if (fabsf(a[i] - b[i]) <= tolerance)
            continue;
        printf("element %zu: %.9g and %.9g\n", i, (double)a[i], (double)b[i]);
        return false;
    }
    return true;
}

#endif
