/* SPDX-License-Identifier: Apache-2.0
 *
 * A task is announced by a new epoch. Who wants to sleep first says so, then
 * looks at the epoch once more; who announces first sets the epoch, then looks
 * for sleepers. Both steps are sequentially consistent, so one of the two sees
 * the other and no wake-up is lost. The end of a task works the same way.
 */
#include "kernels/cpu/pool.h"

#include <immintrin.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"

enum {
    /* About 20 us at 45 cycles a pause: longer than the gap between two kernels of a step, and
     * little beside the 50 us that waking a sleeping thread takes. */
    SPINS = 1500,
    /* Below this a task takes less time than handing it over: about 10 us. */
    WORK_INLINE = 300000,
};

struct worker {
    struct pool *pool;
    pthread_t thread;
    uint32_t part;
};

struct pool {
    pool_task *task; /* published by epoch */
    const void *args;
    struct worker *workers; /* (n_threads - 1) */
    uint32_t n_threads;
    uint32_t n_started;
    bool stop; /* published by epoch */
    pthread_mutex_t mutex;
    pthread_cond_t work;
    pthread_cond_t done;
    _Alignas(64) atomic_uint epoch;
    _Alignas(64) atomic_uint n_pending;
    _Alignas(64) atomic_uint n_sleeping; /* workers */
    atomic_bool caller_sleeps;
};

static void wait_for_epoch(struct pool *pool, unsigned seen)
{
    for (int i = 0; i < SPINS; i++) {
        /* acquire: what the announcer wrote before the epoch */
        if (atomic_load_explicit(&pool->epoch, memory_order_acquire) != seen)
            return;
        _mm_pause();
    }
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->n_sleeping, 1); /* seq_cst, see the head */
    while (atomic_load(&pool->epoch) == seen)
        pthread_cond_wait(&pool->work, &pool->mutex);
    atomic_fetch_sub(&pool->n_sleeping, 1);
    pthread_mutex_unlock(&pool->mutex);
}

static void *worker_main(void *context)
{
    const struct worker *worker = context;
    struct pool *pool = worker->pool;

    for (unsigned seen = 0;; seen++) {
        wait_for_epoch(pool, seen);
        if (pool->stop)
            return NULL;
        pool->task(pool->args, worker->part, pool->n_threads);
        /* seq_cst, see the head; it also releases this part's results */
        if (atomic_fetch_sub(&pool->n_pending, 1) == 1 && atomic_load(&pool->caller_sleeps)) {
            pthread_mutex_lock(&pool->mutex);
            pthread_cond_signal(&pool->done);
            pthread_mutex_unlock(&pool->mutex);
        }
    }
}

static void announce(struct pool *pool)
{
    atomic_store(&pool->n_pending, pool->n_started);
    atomic_fetch_add(&pool->epoch, 1); /* seq_cst, see the head */
    if (atomic_load(&pool->n_sleeping) > 0) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_broadcast(&pool->work);
        pthread_mutex_unlock(&pool->mutex);
    }
}

static void wait_for_parts(struct pool *pool)
{
    for (int i = 0; i < SPINS; i++) {
        /* acquire: the results of the other parts */
        if (atomic_load_explicit(&pool->n_pending, memory_order_acquire) == 0)
            return;
        _mm_pause();
    }
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->caller_sleeps, true); /* seq_cst, see the head */
    while (atomic_load(&pool->n_pending) > 0)
        pthread_cond_wait(&pool->done, &pool->mutex);
    atomic_store(&pool->caller_sleeps, false);
    pthread_mutex_unlock(&pool->mutex);
}

void pool_run(struct pool *pool, pool_task *task, const void *args, uint64_t work)
{
    if (pool->n_threads == 1 || work < WORK_INLINE) {
        task(args, 0, 1);
        return;
    }
    pool->task = task;
    pool->args = args;
    announce(pool);
    task(args, 0, pool->n_threads);
    wait_for_parts(pool);
}

struct pool_range pool_split(uint32_t n, uint32_t step, uint32_t part, uint32_t n_parts)
{
    const uint64_t n_steps = ((uint64_t)n + step - 1) / step;
    const uint64_t begin = n_steps * part / n_parts * step;
    const uint64_t end = n_steps * (part + 1) / n_parts * step;

    return (struct pool_range){(uint32_t)(begin < n ? begin : n), (uint32_t)(end < n ? end : n)};
}

static void stop_workers(struct pool *pool)
{
    pool->stop = true;
    announce(pool);
    for (uint32_t i = 0; i < pool->n_started; i++)
        pthread_join(pool->workers[i].thread, NULL);
}

bool pool_open(uint32_t n_threads, struct pool **pool, struct err *err)
{
    struct pool *opened = aligned_alloc(64, sizeof *opened); /* its size is a multiple of 64 */
    struct worker *workers = calloc(n_threads, sizeof *workers);

    CHECK(n_threads >= 1);
    if (!opened || !workers) {
        free(opened);
        free(workers);
        return err_set(err, ERR_FATAL, "cpu device: no memory for %u threads", n_threads);
    }
    memset(opened, 0, sizeof *opened);
    opened->workers = workers;
    opened->n_threads = n_threads;
    pthread_mutex_init(&opened->mutex, NULL);
    pthread_cond_init(&opened->work, NULL);
    pthread_cond_init(&opened->done, NULL);
    for (uint32_t i = 0; i + 1 < n_threads; i++) {
        workers[i] = (struct worker){.pool = opened, .part = i + 1};
        int error = pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]);
        if (error != 0) {
            pool_close(opened);
            return err_set(err, ERR_FATAL, "cpu device: thread %u of %u cannot be started: %s",
                           i + 2, n_threads, strerror(error));
        }
        opened->n_started++;
    }
    *pool = opened;
    return true;
}

void pool_close(struct pool *pool)
{
    if (!pool)
        return;
    stop_workers(pool);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->mutex);
    free(pool->workers);
    free(pool);
}

uint32_t pool_n_threads(const struct pool *pool)
{
    return pool->n_threads;
}
