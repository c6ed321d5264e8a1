/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/crew.h"

#include <pthread.h>

enum { THREADS_MAX = 64 };

struct pool {
    struct crew_job *jobs;
    uint32_t count, next;
    pthread_mutex_t mutex;
};

static void *work(void *argument)
{
    struct pool *pool = argument;

    for (;;) {
        pthread_mutex_lock(&pool->mutex);
        uint32_t mine = pool->next < pool->count ? pool->next++ : pool->count;
        pthread_mutex_unlock(&pool->mutex);
        if (mine == pool->count)
            return NULL;
        struct crew_job *job = &pool->jobs[mine];
        job->ok = run_trace(&job->config, job->trace, &job->result, &job->err);
    }
}

bool crew_run(struct crew_job *jobs, uint32_t count, int64_t threads, struct err *err)
{
    struct pool pool = {.jobs = jobs, .count = count, .mutex = PTHREAD_MUTEX_INITIALIZER};
    pthread_t others[THREADS_MAX];
    uint32_t started = 0;

    while (started + 1 < (uint32_t)threads && started + 1 < count && started < THREADS_MAX &&
           pthread_create(&others[started], NULL, work, &pool) == 0)
        started++;
    work(&pool);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(others[i], NULL);
    for (uint32_t i = 0; i < count; i++)
        if (!jobs[i].ok) {
            *err = jobs[i].err;
            return false;
        }
    return true;
}

void crew_free(struct crew_job *jobs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (jobs[i].ok)
            run_result_free(&jobs[i].result);
}
