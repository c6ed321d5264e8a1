/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/trace_windows.h"

#include <math.h>
#include <stdlib.h>

#include "scheduler/sim/csv.h"

static const double prompt_sigma_usual = 0.9, output_sigma_usual = 1.0;
static const double sigma_max = 4;

double trace_window_context(const struct trace_window *window)
{
    return window->prompt + window->output / 2 * exp(window->output_sigma * window->output_sigma);
}

bool trace_windows_header(const struct trace_lines *lines)
{
    return trace_lines_field_is(lines, 0, "window_start_s") &&
           trace_lines_field_is(lines, 1, "rate_rps");
}

static bool append_window(struct trace_windows *windows, const struct trace_window *window,
                          size_t *capacity, struct err *err)
{
    if (windows->count == *capacity) {
        *capacity = *capacity ? 2 * *capacity : 256;
        void *grown = realloc(windows->windows, *capacity * sizeof *windows->windows);
        if (!grown)
            return err_set(err, ERR_FATAL, "trace: out of memory for %zu windows", *capacity);
        windows->windows = grown;
    }
    windows->windows[windows->count++] = *window;
    return true;
}

static bool parse_sigmas(const struct trace_lines *lines, struct trace_window *window)
{
    return lines->field_count == 5 ||
           (csv_number(lines->fields[5], &window->prompt_sigma) &&
            csv_number(lines->fields[6], &window->output_sigma) && window->prompt_sigma >= 0 &&
            window->output_sigma >= 0 && window->prompt_sigma <= sigma_max &&
            window->output_sigma <= sigma_max);
}

bool trace_windows_parse(struct trace_windows *windows, struct trace_lines *lines, double scale,
                         struct err *err)
{
    size_t capacity = 0;

    /* A single window is ten minutes wide, as those of the public day. */
    windows->window_s = 600;
    while (trace_lines_next(lines)) {
        struct trace_window window = {.prompt_sigma = prompt_sigma_usual,
                                      .output_sigma = output_sigma_usual};
        double start_s;

        trace_lines_split(lines);
        if ((lines->field_count != 5 && lines->field_count != 7) ||
            !csv_number(lines->fields[0], &start_s) ||
            !csv_number(lines->fields[1], &window.rate) ||
            !csv_number(lines->fields[3], &window.prompt) ||
            !csv_number(lines->fields[4], &window.output) || window.rate < 0 || window.prompt < 0 ||
            window.output < 0 || !parse_sigmas(lines, &window))
            return trace_lines_reject(lines,
                                      "expected window_start_s,rate_rps,clients,mean_input_tokens,"
                                      "mean_output_tokens[,input_sigma,output_sigma]",
                                      err);
        if (windows->count == 1)
            windows->window_s = start_s;
        if (start_s != (double)windows->count * windows->window_s || windows->window_s <= 0)
            return trace_lines_reject(lines, "windows start at 0 and are of equal width", err);
        window.rate *= scale;
        if (!append_window(windows, &window, &capacity, err))
            return false;
    }
    return true;
}

double trace_windows_requests(const struct trace_windows *windows, double from_s, double to_s)
{
    double requests = 0;

    for (size_t w = 0; w < windows->count; w++) {
        double start_s = (double)w * windows->window_s;
        double time_s = fmin(start_s + windows->window_s, to_s) - fmax(start_s, from_s);
        requests += windows->windows[w].rate * fmax(0, time_s);
    }
    return requests;
}

void trace_windows_free(struct trace_windows *windows)
{
    free(windows->windows);
    *windows = (struct trace_windows){0};
}
