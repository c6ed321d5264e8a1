/* SPDX-License-Identifier: Apache-2.0
 *
 * steady - a wall clock that never jumps, for leases that are counted in wall time.
 *
 * The core knows one clock and counts leases and deadlines by it. The system's wall clock may be
 * set: a step of five seconds forward would end every lease at once. So time advances by the
 * monotonic clock, and a difference to the wall clock is worked off at a tenth of the speed: 5 s in
 * 50 s. A plain value; pure.
 */
#ifndef SCHEDULER_STEADY_H
#define SCHEDULER_STEADY_H

#include <stdint.h>

struct steady {
    int64_t wall_ns; /* the answer at mono_us; fine enough for a tenth of a microsecond */
    int64_t mono_us;
};

void steady_init(struct steady *steady, int64_t wall_ms, int64_t mono_us);

/* Milliseconds since 1970, never less than an earlier answer. */
int64_t steady_now_ms(struct steady *steady, int64_t wall_ms, int64_t mono_us);

#endif
