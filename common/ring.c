/* SPDX-License-Identifier: Apache-2.0
 *
 * A mutex, not a lock-free ring: what passes here are requests and token chunks, thousands a second
 * at most, and an uncontended lock costs 20 ns. The condition is signalled only while the
 * consumer waits, so a busy consumer costs its producers no system call.
 */
#include "common/ring.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "common/check.h"

struct ring {
    pthread_mutex_t mutex;
    pthread_cond_t filled;
    size_t capacity;
    size_t count;
    size_t first; /* index of the oldest item */
    bool waiting;
    bool woken;
    void *items[];
};

struct ring *ring_open(size_t capacity)
{
    struct ring *ring;
    pthread_condattr_t attributes;

    CHECK(capacity >= 1);
    CHECK(capacity <= SIZE_MAX / sizeof(void *) / 2);
    ring = malloc(sizeof *ring + capacity * sizeof ring->items[0]);
    CHECK(ring);
    *ring = (struct ring){.capacity = capacity};
    CHECK(pthread_mutex_init(&ring->mutex, NULL) == 0);
    CHECK(pthread_condattr_init(&attributes) == 0);
    CHECK(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    CHECK(pthread_cond_init(&ring->filled, &attributes) == 0);
    pthread_condattr_destroy(&attributes);
    return ring;
}

void ring_close(struct ring *ring)
{
    if (!ring)
        return;
    pthread_cond_destroy(&ring->filled);
    pthread_mutex_destroy(&ring->mutex);
    free(ring);
}

bool ring_push(struct ring *ring, void *item)
{
    bool room;

    CHECK(item);
    pthread_mutex_lock(&ring->mutex);
    room = ring->count < ring->capacity;
    if (room) {
        ring->items[(ring->first + ring->count) % ring->capacity] = item;
        ring->count++;
        if (ring->waiting)
            pthread_cond_signal(&ring->filled);
    }
    pthread_mutex_unlock(&ring->mutex);
    return room;
}

void *ring_pop(struct ring *ring)
{
    void *item = NULL;

    pthread_mutex_lock(&ring->mutex);
    if (ring->count > 0) {
        item = ring->items[ring->first];
        ring->first = (ring->first + 1) % ring->capacity;
        ring->count--;
    }
    pthread_mutex_unlock(&ring->mutex);
    return item;
}

size_t ring_count(struct ring *ring)
{
    size_t count;

    pthread_mutex_lock(&ring->mutex);
    count = ring->count;
    pthread_mutex_unlock(&ring->mutex);
    return count;
}

bool ring_wait(struct ring *ring, int64_t timeout_ms)
{
    struct timespec until;
    bool filled;
    int rc = 0;

    CHECK(clock_gettime(CLOCK_MONOTONIC, &until) == 0);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&ring->mutex);
    ring->waiting = true;
    while (ring->count == 0 && !ring->woken && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&ring->filled, &ring->mutex, &until);
    ring->waiting = false;
    ring->woken = false;
    filled = ring->count > 0;
    pthread_mutex_unlock(&ring->mutex);
    return filled;
}

void ring_wake(struct ring *ring)
{
    pthread_mutex_lock(&ring->mutex);
    ring->woken = true;
    pthread_cond_signal(&ring->filled);
    pthread_mutex_unlock(&ring->mutex);
}
