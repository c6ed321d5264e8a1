/* SPDX-License-Identifier: Apache-2.0
 *
 * clock - the two clocks. Policies take time as an argument; only shells call this.
 *
 * The wall clock stamps records and may jump; the monotonic clock measures durations, leases
 * and timeouts. Any thread.
 */
#ifndef COMMON_CLOCK_H
#define COMMON_CLOCK_H

#include <stddef.h>
#include <stdint.h>

enum { CLOCK_TEXT_SIZE = 25 }; /* "2026-11-30T12:00:00.123Z" and NUL */

int64_t clock_wall_ms(void);     /* since 1970 UTC */
int64_t clock_mono_us(void);     /* since an arbitrary start */
void clock_sleep_ms(int64_t ms); /* returns early on a signal */
void clock_format_ms(int64_t wall_ms, char text[CLOCK_TEXT_SIZE]);

#endif
