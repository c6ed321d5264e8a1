/* SPDX-License-Identifier: Apache-2.0
 *
 * A ticket holds the number of the task and its next part that nobody has
 * taken. Whoever has time takes parts, the caller too, so that a worker that
 * sleeps, or that the system keeps off its core, delays nothing but the part
 * it has begun. The number of the task in the ticket lets an exchange that
 * comes too late fail; a part once taken keeps the caller, and with it the
 * task's arguments, until it is done.
 *
 * Who wants to sleep first says so, then looks once more for work; who brings
 * work first writes the ticket, then looks for sleepers. Both steps are
 * sequentially consistent, so one of the two sees the other and no wake-up is
 * lost. The end of a task works the same way.
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
    WORK_INLINE = 500000,
    /* More parts than threads, for those threads that have a core only at times. */
    PARTS_PER_THREAD = 4,
};

struct pool {
    pool_task *task; /* published by ticket */
    const void *args;
    pthread_t *threads; /* (n_threads - 1) */
    uint32_t n_threads;
    uint32_t n_started;
    uint32_t n_parts;
    pthread_mutex_t mutex;
    pthread_cond_t work;
    pthread_cond_t done;
    atomic_bool stop;
    _Alignas(64) atomic_uint_fast64_t ticket; /* task number << 32 | next part */
    _Alignas(64) atomic_uint n_done;          /* parts of this task */
    _Alignas(64) atomic_uint n_sleeping;      /* workers */
    atomic_bool caller_sleeps;
};

static bool part_open(const struct pool *pool, uint64_t ticket)
{
    return (uint32_t)ticket < pool->n_parts;
}

/* Takes parts until none is left. */
static void run_parts(struct pool *pool)
{
    /* acquire: task and args, and with a new task the results of the one before */
    uint64_t ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);

    while (part_open(pool, ticket)) {
        if (!atomic_compare_exchange_weak_explicit(&pool->ticket, &ticket, ticket + 1,
                                                   memory_order_acq_rel, memory_order_acquire))
            continue;
        pool->task(pool->args, (uint32_t)ticket, pool->n_parts);
        /* seq_cst, see the head; it also releases this part's results */
        if (atomic_fetch_add(&pool->n_done, 1) + 1 == pool->n_parts &&
            atomic_load(&pool->caller_sleeps)) {
            pthread_mutex_lock(&pool->mutex);
            pthread_cond_signal(&pool->done);
            pthread_mutex_unlock(&pool->mutex);
        }
        ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
    }
}

static bool work_waits(struct pool *pool)
{
    return part_open(pool, atomic_load(&pool->ticket)) || atomic_load(&pool->stop);
}

static void wait_for_work(struct pool *pool)
{
    for (int i = 0; i < SPINS; i++) {
        if (work_waits(pool))
            return;
        _mm_pause();
    }
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->n_sleeping, 1); /* seq_cst, see the head */
    while (!work_waits(pool))
        pthread_cond_wait(&pool->work, &pool->mutex);
    atomic_fetch_sub(&pool->n_sleeping, 1);
    pthread_mutex_unlock(&pool->mutex);
}

static void *worker_main(void *context)
{
    struct pool *pool = context;

    for (;;) {
        wait_for_work(pool);
        if (atomic_load(&pool->stop))
            return NULL;
        run_parts(pool);
    }
}

static void wake_workers(struct pool *pool)
{
    if (atomic_load(&pool->n_sleeping) == 0) /* seq_cst, see the head */
        return;
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
}

static void wait_for_parts(struct pool *pool)
{
    for (int i = 0; i < SPINS; i++) {
        /* acquire: the results of the other parts */
        if (atomic_load_explicit(&pool->n_done, memory_order_acquire) == pool->n_parts)
            return;
        _mm_pause();
    }
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->caller_sleeps, true); /* seq_cst, see the head */
    while (atomic_load(&pool->n_done) < pool->n_parts)
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
    /* relaxed: no part of this task can be taken before the ticket is written below */
    const uint64_t ticket = atomic_load_explicit(&pool->ticket, memory_order_relaxed);
    atomic_store_explicit(&pool->n_done, 0, memory_order_relaxed);
    pool->task = task;
    pool->args = args;
    atomic_store(&pool->ticket, ((ticket >> 32) + 1) << 32); /* seq_cst, see the head */
    wake_workers(pool);
    run_parts(pool);
    wait_for_parts(pool);
}

struct pool_range pool_split(uint32_t n, uint32_t step, uint32_t part, uint32_t n_parts)
{
    const uint64_t n_steps = ((uint64_t)n + step - 1) / step;
    const uint64_t begin = n_steps * part / n_parts * step;
    const uint64_t end = n_steps * (part + 1) / n_parts * step;

    return (struct pool_range){(uint32_t)(begin < n ? begin : n), (uint32_t)(end < n ? end : n)};
}

bool pool_open(uint32_t n_threads, struct pool **pool, struct err *err)
{
    CHECK(n_threads >= 1);

    struct pool *opened = aligned_alloc(64, sizeof *opened); /* its size is a multiple of 64 */
    pthread_t *threads = calloc(n_threads, sizeof *threads);
    if (!opened || !threads) {
        free(opened);
        free(threads);
        return err_set(err, ERR_FATAL, "cpu device: no memory for %u threads", n_threads);
    }
    memset(opened, 0, sizeof *opened);
    opened->threads = threads;
    opened->n_threads = n_threads;
    opened->n_parts = n_threads * PARTS_PER_THREAD;
    atomic_init(&opened->ticket, opened->n_parts); /* all parts of task 0 are taken */
    pthread_mutex_init(&opened->mutex, NULL);
    pthread_cond_init(&opened->work, NULL);
    pthread_cond_init(&opened->done, NULL);
    for (uint32_t i = 0; i + 1 < n_threads; i++) {
        int error = pthread_create(&threads[i], NULL, worker_main, opened);
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
    atomic_store(&pool->stop, true); /* seq_cst, as for a ticket */
    wake_workers(pool);
    for (uint32_t i = 0; i < pool->n_started; i++)
        pthread_join(pool->threads[i], NULL);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->mutex);
    free(pool->threads);
    free(pool);
}

uint32_t pool_n_threads(const struct pool *pool)
{
    return pool->n_threads;
}
