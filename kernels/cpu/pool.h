/* SPDX-License-Identifier: Apache-2.0
 *
 * pool - the threads of the CPU device.
 *
 * pool_run cuts a task into parts and returns when all are done. Parts are a
 * fixed number for each pool; which thread computes which is left to chance,
 * and no kernel lets a sum cross the border of a part, so that neither that
 * nor the number of threads ever shows in a result. Threads spin for some
 * microseconds after a task, because the next kernel usually follows at once,
 * and then sleep, because machines are shared.
 */
#ifndef KERNELS_CPU_POOL_H
#define KERNELS_CPU_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

struct pool;

/* Computes part 0 <= part < n_parts of what args describe. */
typedef void pool_task(const void *args, uint32_t part, uint32_t n_parts);

/* n_threads counts the caller of pool_run; 1 starts none. ERR_FATAL when a thread cannot be
 * started. */
bool pool_open(uint32_t n_threads, struct pool **pool, struct err *err);
void pool_close(struct pool *pool); /* NULL is allowed */
uint32_t pool_n_threads(const struct pool *pool);

/* Runs the task in one part on the caller alone when work is small, else in some parts per thread.
 * work is about the number of multiplications and bytes touched, whichever is larger. Only one
 * thread at a time may call it. */
void pool_run(struct pool *pool, pool_task *task, const void *args, uint64_t work);

/* The half-open range of n items, in multiples of step, that a part computes. */
struct pool_range {
    uint32_t begin;
    uint32_t end;
};
struct pool_range pool_split(uint32_t n, uint32_t step, uint32_t part, uint32_t n_parts);

#endif
