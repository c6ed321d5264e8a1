/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_windows - a day as rates and mean lengths of windows of equal width, read from its file.
 *
 * What is drawn from them, and how a file of this format is known, is in trace.h.
 */
#ifndef SCHEDULER_SIM_TRACE_WINDOWS_H
#define SCHEDULER_SIM_TRACE_WINDOWS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"
#include "scheduler/sim/trace_lines.h"

struct trace_window {
    double rate;           /* requests/s */
    double prompt, output; /* means */
    double prompt_sigma, output_sigma;
};

struct trace_windows {
    struct trace_window *windows;
    size_t count;
    double window_s;
};

/* Mean context of a running sequence: long answers run longer, so they weigh more than their share.
 * Prompt and answer are independent. */
double trace_window_context(const struct trace_window *window);

/* Is the line that was split last the header of such a file? */
bool trace_windows_header(const struct trace_lines *lines);
/* Appends what stands behind the header to windows, which begin as zeros and are to be freed also
 * when this fails. Rates are multiplied by scale. REJECT names file and line, also for windows of
 * unequal width. */
bool trace_windows_parse(struct trace_windows *windows, struct trace_lines *lines, double scale,
                         struct err *err);
/* How many requests the rates make from one second to another. */
double trace_windows_requests(const struct trace_windows *windows, double from_s, double to_s);
void trace_windows_free(struct trace_windows *windows);

#endif
