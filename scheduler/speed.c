/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/speed.h"

#include <math.h>

/* Time after which a report has lost two thirds of its weight: in the line, which needs to have
 * seen different batches, and in the rows of now. */
static const double line_s = 1800, now_s = 30;
/* Rows that differ by less than this share of their mean are noise. */
static const double spread_min = 0.05;

/* step us = fixed + row * rows. */
struct line {
    double fixed, row;
};

static struct line fit(const struct speed *speed)
{
    double rows = speed->rows / speed->steps;
    double through_zero = speed->us / speed->rows;
    double noise = speed->steps * rows * rows * spread_min * spread_min;
    double spread = speed->rows2 - speed->steps * rows * rows;
    double together = speed->rows_us - rows * speed->us;
    double row = (together + noise * through_zero) / (fmax(spread, 0) + noise);

    row = fmin(fmax(row, 0), through_zero);
    return (struct line){.fixed = speed->us / speed->steps - row * rows, .row = row};
}

void speed_observe(struct speed *speed, uint64_t steps, uint64_t rows, uint64_t us, double seconds)
{
    if (steps == 0 || rows == 0 || us == 0)
        return;
    const double n = (double)steps, r = (double)rows, t = (double)us;
    double kept = exp(-seconds / line_s);
    double now = speed->steps > 0 ? 1 - exp(-seconds / now_s) : 1;

    speed->steps = kept * speed->steps + n;
    speed->rows = kept * speed->rows + r;
    speed->us = kept * speed->us + t;
    speed->rows2 = kept * speed->rows2 + r * r / n;
    speed->rows_us = kept * speed->rows_us + r * t / n;
    speed->rows_now += now * (r / n - speed->rows_now);
}

double speed_at(const struct speed *speed, double rows)
{
    if (speed->steps <= 0)
        return 0;
    const struct line line = fit(speed);

    return rows * 1e6 / (line.fixed + line.row * rows);
}

double speed_rows(const struct speed *speed, double step_us)
{
    if (speed->steps <= 0)
        return 0;
    const struct line line = fit(speed);

    return line.row > 0 ? fmax(0, (step_us - line.fixed) / line.row) : INFINITY;
}
