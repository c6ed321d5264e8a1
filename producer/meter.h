/* SPDX-License-Identifier: Apache-2.0
 *
 * meter - how far a long command has come.
 *
 * On a terminal a bar that redraws itself, ten times a second; elsewhere plain lines, one a second;
 * with --json events on standard output, one a second. The first two go to standard error.
 */
#ifndef PRODUCER_METER_H
#define PRODUCER_METER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum meter_style { METER_BAR, METER_LINES, METER_JSON };

struct meter {
    enum meter_style style;
    const char *label;  /* "sending", "answers" */
    int64_t started_us; /* monotonic */
    int64_t shown_us;
    uint64_t first; /* done at the start: what the rate does not count */
    bool drawn;
};

struct meter meter_start(const char *label, bool json);

/* total 0: not known yet. note (may be "") follows the numbers. */
void meter_show(struct meter *meter, uint64_t done, uint64_t total, const char *note);
/* Shows the last state whatever the time, and leaves the line. */
void meter_end(struct meter *meter, uint64_t done, uint64_t total, const char *note);

/* The text without colours and carriage return, for tests: "answers  30/40  75%  10.0/s  ETA 0:01".
 */
void meter_format(char *text, size_t text_size, const char *label, uint64_t done, uint64_t total,
                  double per_second, const char *note);

#endif
