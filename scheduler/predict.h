/* SPDX-License-Identifier: Apache-2.0
 *
 * predict - a series of equal windows, and what it will be some windows ahead.
 *
 * Used twice: for traffic (tokens per second in windows of minutes, forecast
 * 15 to 30 minutes ahead, for the planner) and for expert load (each expert's
 * share, forecast one re-planning interval ahead, for the placement). A model
 * has hundreds of experts, so those are the bare struct predict_series without
 * season and network.
 *
 *   constant      the last value: hard to beat where load jumps
 *   ewma          level' = level + alpha (x - level)
 *   holt-winters  additive level, damped trend, and a season when season > 0
 *                 (Holt 1957, Winters 1960; damping: Gardner and McKenzie 1985)
 *   lstm          a small network on the log of the series over its own mean
 *                 (scheduler/lstm.h), trained by ops/train-predictor
 *
 * Plain values without a clock: the caller closes windows. Forecasts are never
 * negative. Missing windows are observed as the caller thinks right.
 */
#ifndef SCHEDULER_PREDICT_H
#define SCHEDULER_PREDICT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "scheduler/lstm.h"

enum predict_kind { PREDICT_CONSTANT, PREDICT_EWMA, PREDICT_HOLT_WINTERS, PREDICT_LSTM };

enum { PREDICT_SEASON_MAX = 288 }; /* windows: a day of five minutes */

struct predict_params {
    enum predict_kind kind;
    double alpha;            /* level, 0 < alpha <= 1 */
    double beta;             /* trend, 0 to 1 */
    double gamma;            /* season, 0 to 1 */
    double damping;          /* of the trend per window, 0 to 1 */
    uint32_t season;         /* windows in a season, 0 none, at most PREDICT_SEASON_MAX */
    const struct lstm *lstm; /* LSTM only; must outlive the predictor */
};

/* What constant, ewma and holt-winters without a season remember; zeroed before the first value. */
struct predict_series {
    uint64_t count; /* windows observed */
    double last;
    double level;
    double trend;
};

struct predict {
    struct predict_params params;
    struct predict_series series;
    double mean; /* EWMA over a day, the lstm's scale */
    double seasonal[PREDICT_SEASON_MAX];
    struct lstm_state lstm;
};

/* The defaults that did best on the public day trace (docs/DECISIONS.md, Scheduler). */
struct predict_params predict_defaults(enum predict_kind kind);

/* "constant", "ewma", "holt-winters", "lstm". */
bool predict_kind_parse(const char *name, enum predict_kind *kind);
const char *predict_kind_name(enum predict_kind kind);

void predict_init(struct predict *predict, const struct predict_params *params);

/* The next window's mean, not negative. */
void predict_observe(struct predict *predict, double value);

/* The mean of the window that lies windows_ahead (at least 1) after the last observed one; 0 before
 * the first observation. */
double predict_forecast(const struct predict *predict, uint32_t windows_ahead);

/* The same for a bare series: not the lstm, params->season counts as 0. A value may be negative,
 * and so may the forecast be. */
void predict_series_observe(const struct predict_params *params, struct predict_series *series,
                            double value);
double predict_series_forecast(const struct predict_params *params,
                               const struct predict_series *series, uint32_t windows_ahead);

#endif
