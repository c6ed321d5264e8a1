/* SPDX-License-Identifier: Apache-2.0
 *
 * timeline - what happens next: a heap of events by time, then by the order in
 * which they were put, so that a run repeats to the byte.
 */
#ifndef SCHEDULER_SIM_TIMELINE_H
#define SCHEDULER_SIM_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

struct moment {
    int64_t at_us;
    uint64_t order;
    uint32_t kind; /* the caller's */
    uint32_t slot;
};

/* Zero-initialise it. */
struct timeline {
    struct moment *moments;
    size_t count, capacity;
    uint64_t order;
};

bool timeline_put(struct timeline *timeline, int64_t at_us, uint32_t kind, uint32_t slot,
                  struct err *err);
/* The earliest leaves; false when there is none. */
bool timeline_take(struct timeline *timeline, struct moment *moment);
void timeline_free(struct timeline *timeline);

#endif
