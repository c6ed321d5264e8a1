/* SPDX-License-Identifier: Apache-2.0
 *
 * deadlines - a binary heap of the jobs that have a deadline, earliest first.
 *
 * Eight bytes a job; a job knows its place, so that finishing one costs log n and a tick looks at
 * the top only, however many wait.
 */
#ifndef SCHEDULER_DEADLINES_H
#define SCHEDULER_DEADLINES_H

#include "scheduler/jobs.h"

/* Zero-initialise it. */
struct deadlines {
    struct job **jobs;
    size_t count, capacity;
};

void deadlines_add(struct deadlines *heap, struct job *job); /* nothing where it has none */
void deadlines_remove(struct deadlines *heap, struct job *job);
/* The earliest job, if its deadline has come; it stays in the heap. */
struct job *deadlines_due(const struct deadlines *heap, int64_t now_ms);
void deadlines_free(struct deadlines *heap);

#endif
