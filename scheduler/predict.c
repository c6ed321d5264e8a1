/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/predict.h"

#include <math.h>
#include <string.h>

#include "common/check.h"

/* The mean that scales the lstm's input follows the series over about a day of ten-minute windows.
 */
static const double mean_weight_min = 1.0 / 144;
/* Keeps log() finite for windows without traffic: a thousandth of the mean. */
static const double floor_share = 1e-3;

static const char *const kind_names[] = {"constant", "ewma", "holt-winters", "lstm"};

struct predict_params predict_defaults(enum predict_kind kind)
{
    return (struct predict_params){.kind = kind,
                                   .alpha = kind == PREDICT_EWMA ? 0.7 : 0.6,
                                   .beta = 0.2,
                                   .gamma = 0.3,
                                   .damping = 0.6};
}

bool predict_kind_parse(const char *name, enum predict_kind *kind)
{
    for (size_t i = 0; i < sizeof kind_names / sizeof *kind_names; i++)
        if (strcmp(name, kind_names[i]) == 0) {
            *kind = (enum predict_kind)i;
            return true;
        }
    return false;
}

const char *predict_kind_name(enum predict_kind kind)
{
    return kind_names[kind];
}

void predict_init(struct predict *predict, const struct predict_params *params)
{
    CHECK(params->season <= PREDICT_SEASON_MAX);
    CHECK(params->kind != PREDICT_LSTM || params->lstm);
    *predict = (struct predict){.params = *params};
}

static float scaled_log(const struct predict *predict, double value)
{
    double floor = predict->mean * floor_share;

    return predict->mean > 0 ? (float)log(fmax(value, floor) / predict->mean) : 0;
}

void predict_series_observe(const struct predict_params *params, struct predict_series *series,
                            double value)
{
    double level = series->level;

    if (series->count == 0)
        series->level = value;
    else if (params->kind == PREDICT_EWMA)
        series->level += params->alpha * (value - series->level);
    else if (params->kind == PREDICT_HOLT_WINTERS) {
        double gone_on = level + params->damping * series->trend;
        series->level = params->alpha * value + (1 - params->alpha) * gone_on;
        series->trend = params->beta * (series->level - level) +
                        (1 - params->beta) * params->damping * series->trend;
    }
    series->last = value;
    series->count++;
}

double predict_series_forecast(const struct predict_params *params,
                               const struct predict_series *series, uint32_t windows_ahead)
{
    double forecast = series->level, damping = 1;

    if (params->kind != PREDICT_HOLT_WINTERS)
        return params->kind == PREDICT_EWMA ? series->level : series->last;
    for (uint32_t k = 0; k < windows_ahead; k++) {
        damping *= params->damping;
        forecast += damping * series->trend;
    }
    return forecast;
}

/* The season is taken off before the series sees the value; it learns from what the level leaves.
 */
static void observe_season(struct predict *predict, double value)
{
    const struct predict_params *p = &predict->params;
    double *season = &predict->seasonal[predict->series.count % p->season];
    bool first = predict->series.count == 0;

    predict_series_observe(p, &predict->series, value - *season);
    if (!first)
        *season = p->gamma * (value - predict->series.level) + (1 - p->gamma) * *season;
    predict->series.last = value;
}

void predict_observe(struct predict *predict, double value)
{
    double mean_weight = fmax(mean_weight_min, 1.0 / ((double)predict->series.count + 1));

    CHECK(value >= 0);
    predict->mean += mean_weight * (value - predict->mean);
    if (predict->params.kind == PREDICT_LSTM)
        lstm_step(predict->params.lstm, &predict->lstm, scaled_log(predict, value));
    if (predict->params.kind == PREDICT_HOLT_WINTERS && predict->params.season > 0)
        observe_season(predict, value);
    else
        predict_series_observe(&predict->params, &predict->series, value);
}

double predict_forecast(const struct predict *predict, uint32_t windows_ahead)
{
    const struct predict_params *p = &predict->params;
    const struct predict_series *series = &predict->series;
    double forecast;

    CHECK(windows_ahead >= 1);
    if (series->count == 0)
        return 0;
    if (p->kind == PREDICT_LSTM)
        return fmax(series->last, predict->mean * floor_share) *
               exp((double)lstm_change(p->lstm, &predict->lstm, windows_ahead));
    forecast = predict_series_forecast(p, series, windows_ahead);
    if (p->kind == PREDICT_HOLT_WINTERS && p->season > 0)
        forecast += predict->seasonal[(series->count - 1 + windows_ahead) % p->season];
    return fmax(0, forecast);
}
