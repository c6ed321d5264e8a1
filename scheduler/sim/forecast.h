/* SPDX-License-Identifier: Apache-2.0
 *
 * forecast - how far off each predictor is, on a trace by windows.
 *
 * For every window the predictor has seen all before it, and says what comes
 * later: the window in which the moment 15 or 30 minutes after its end lies.
 * The error is the mean of |said - came| over the mean of what came. The first
 * hour only teaches.
 */
#ifndef SCHEDULER_SIM_FORECAST_H
#define SCHEDULER_SIM_FORECAST_H

#include <stdio.h>

#include "common/err.h"
#include "scheduler/predict.h"
#include "scheduler/sim/trace.h"

enum { FORECAST_AHEAD = 2, FORECAST_KINDS = 4 };

/* 15 and 30 minutes ahead. */
struct forecast_errors {
    double requests[FORECAST_AHEAD]; /* of requests/s */
    double tokens[FORECAST_AHEAD];   /* of output tokens/s */
};

/* The error of one predictor on a series of count windows; NaN: too short to tell. */
double forecast_error(const struct predict_params *params, const double *series, size_t count,
                      uint32_t windows_ahead, size_t teaching);

/* All predictors: a table, and with json the same as one object on a line of its own. lstm: NULL
 * leaves its row out. REJECT for windows that are too long or too few to tell anything. */
bool forecast_report(FILE *out, const struct trace_windows *windows, const struct lstm *lstm,
                     bool json, struct err *err);

#endif
