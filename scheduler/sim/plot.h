/* SPDX-License-Identifier: Apache-2.0
 *
 * plot - the simulator's three pictures as SVG files, written by hand: cost
 * against theoretical revenue by hour, nodes by hour, latency distribution.
 *
 * An SVG of lines and bars is a page of code; a plotting library would be the
 * simulator's largest dependency.
 */
#ifndef SCHEDULER_SIM_PLOT_H
#define SCHEDULER_SIM_PLOT_H

#include <stddef.h>

#include "common/err.h"

enum { PLOT_SERIES_MAX = 4 };

struct plot_series {
    const char *name;
    const double *x; /* (count), non-decreasing */
    const double *y; /* (count) */
    size_t count;
};

struct plot {
    const char *title, *x_label, *y_label;
    bool log_x;   /* x above 0 */
    bool stepped; /* each y holds until the next x */
    struct plot_series series[PLOT_SERIES_MAX];
    size_t series_count;
};

bool plot_write(const struct plot *plot, const char *folder, const char *file, struct err *err);

#endif
