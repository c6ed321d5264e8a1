/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/timeline.h"

#include <stdlib.h>

static bool before(const struct moment *a, const struct moment *b)
{
    return a->at_us < b->at_us || (a->at_us == b->at_us && a->order < b->order);
}

static void swap(struct moment *a, struct moment *b)
{
    struct moment t = *a;

    *a = *b;
    *b = t;
}

bool timeline_put(struct timeline *timeline, int64_t at_us, uint32_t kind, uint32_t slot,
                  struct err *err)
{
    if (timeline->count == timeline->capacity) {
        size_t capacity = timeline->capacity ? 2 * timeline->capacity : 256;
        void *moments = realloc(timeline->moments, capacity * sizeof *timeline->moments);
        if (!moments)
            return err_set(err, ERR_FATAL, "timeline: out of memory for %zu events", capacity);
        timeline->moments = moments;
        timeline->capacity = capacity;
    }
    size_t at = timeline->count++;
    struct moment *heap = timeline->moments;
    heap[at] = (struct moment){at_us, timeline->order++, kind, slot};
    for (; at > 0 && before(&heap[at], &heap[(at - 1) / 2]); at = (at - 1) / 2)
        swap(&heap[at], &heap[(at - 1) / 2]);
    return true;
}

bool timeline_take(struct timeline *timeline, struct moment *moment)
{
    struct moment *heap = timeline->moments;

    if (timeline->count == 0)
        return false;
    *moment = heap[0];
    heap[0] = heap[--timeline->count];
    for (size_t at = 0;;) {
        size_t first = at;
        for (size_t child = 2 * at + 1; child < 2 * at + 3 && child < timeline->count; child++)
            if (before(&heap[child], &heap[first]))
                first = child;
        if (first == at)
            return true;
        swap(&heap[at], &heap[first]);
        at = first;
    }
}

void timeline_free(struct timeline *timeline)
{
    free(timeline->moments);
    *timeline = (struct timeline){0};
}
