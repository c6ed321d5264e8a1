/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/deadlines.h"

#include <stdlib.h>

#include "common/check.h"

static void place(struct deadlines *heap, size_t index, struct job *job)
{
    heap->jobs[index] = job;
    job->deadline_index = (uint32_t)(index + 1);
}

static void move_up(struct deadlines *heap, size_t index, struct job *job)
{
    while (index > 0) {
        size_t parent = (index - 1) / 2;
        if (heap->jobs[parent]->deadline_ms <= job->deadline_ms)
            break;
        place(heap, index, heap->jobs[parent]);
        index = parent;
    }
    place(heap, index, job);
}

static void move_down(struct deadlines *heap, size_t index, struct job *job)
{
    for (;;) {
        size_t child = 2 * index + 1;
        if (child >= heap->count)
            break;
        if (child + 1 < heap->count &&
            heap->jobs[child + 1]->deadline_ms < heap->jobs[child]->deadline_ms)
            child++;
        if (heap->jobs[child]->deadline_ms >= job->deadline_ms)
            break;
        place(heap, index, heap->jobs[child]);
        index = child;
    }
    place(heap, index, job);
}

void deadlines_add(struct deadlines *heap, struct job *job)
{
    if (job->deadline_ms == 0)
        return;
    CHECK(job->deadline_index == 0);
    if (heap->count == heap->capacity) {
        size_t capacity = heap->capacity ? heap->capacity + heap->capacity / 8 : 64;
        struct job **jobs = realloc(heap->jobs, capacity * sizeof *jobs);
        CHECK(jobs);
        heap->jobs = jobs;
        heap->capacity = capacity;
    }
    heap->count++;
    move_up(heap, heap->count - 1, job);
}

void deadlines_remove(struct deadlines *heap, struct job *job)
{
    size_t index;
    struct job *last;

    if (job->deadline_index == 0)
        return;
    index = job->deadline_index - 1;
    job->deadline_index = 0;
    last = heap->jobs[--heap->count];
    if (last == job)
        return;
    if (last->deadline_ms < job->deadline_ms)
        move_up(heap, index, last);
    else
        move_down(heap, index, last);
}

struct job *deadlines_due(const struct deadlines *heap, int64_t now_ms)
{
    if (heap->count == 0 || heap->jobs[0]->deadline_ms > now_ms)
        return NULL;
    return heap->jobs[0];
}

void deadlines_free(struct deadlines *heap)
{
    free(heap->jobs);
    *heap = (struct deadlines){0};
}
