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

static double *season_at(struct predict *predict, uint64_t window)
{
    return &predict->seasonal[window % predict->params.season];
}

static void observe_holt_winters(struct predict *predict, double value)
{
    const struct predict_params *p = &predict->params;
    double season = p->season ? *season_at(predict, predict->count) : 0;
    double level = predict->level;

    if (predict->count == 0) {
        predict->level = value;
        return;
    }
    predict->level =
        p->alpha * (value - season) + (1 - p->alpha) * (level + p->damping * predict->trend);
    predict->trend =
        p->beta * (predict->level - level) + (1 - p->beta) * p->damping * predict->trend;
    if (p->season)
        *season_at(predict, predict->count) =
            p->gamma * (value - predict->level) + (1 - p->gamma) * season;
}

void predict_observe(struct predict *predict, double value)
{
    double mean_weight = fmax(mean_weight_min, 1.0 / ((double)predict->count + 1));

    CHECK(value >= 0);
    predict->mean += mean_weight * (value - predict->mean);
    switch (predict->params.kind) {
    case PREDICT_CONSTANT:
        break;
    case PREDICT_EWMA:
        predict->level = predict->count == 0
                             ? value
                             : predict->level + predict->params.alpha * (value - predict->level);
        break;
    case PREDICT_HOLT_WINTERS:
        observe_holt_winters(predict, value);
        break;
    case PREDICT_LSTM:
        lstm_step(predict->params.lstm, &predict->lstm, scaled_log(predict, value));
        break;
    }
    predict->last = value;
    predict->count++;
}

static double forecast_holt_winters(const struct predict *predict, uint32_t windows_ahead)
{
    const struct predict_params *p = &predict->params;
    double forecast = predict->level, damping = 1;

    for (uint32_t k = 0; k < windows_ahead; k++) {
        damping *= p->damping;
        forecast += damping * predict->trend;
    }
    if (p->season)
        forecast += predict->seasonal[(predict->count - 1 + windows_ahead) % p->season];
    return forecast;
}

double predict_forecast(const struct predict *predict, uint32_t windows_ahead)
{
    CHECK(windows_ahead >= 1);
    if (predict->count == 0)
        return 0;
    switch (predict->params.kind) {
    case PREDICT_CONSTANT:
        return predict->last;
    case PREDICT_EWMA:
        return predict->level;
    case PREDICT_HOLT_WINTERS:
        return fmax(0, forecast_holt_winters(predict, windows_ahead));
    case PREDICT_LSTM:
        return fmax(predict->last, predict->mean * floor_share) *
               exp((double)lstm_change(predict->params.lstm, &predict->lstm, windows_ahead));
    }
    return predict->last;
}
