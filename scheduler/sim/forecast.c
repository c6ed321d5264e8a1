/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/forecast.h"

#include <math.h>
#include <stdlib.h>

static const double ahead_s[FORECAST_AHEAD] = {15 * 60, 30 * 60};
static const double teaching_s = 3600;

double forecast_error(const struct predict_params *params, const double *series, size_t count,
                      uint32_t windows_ahead, size_t teaching)
{
    double off = 0, came = 0;
    struct predict predict;

    predict_init(&predict, params);
    for (size_t t = 0; t + windows_ahead < count; t++) {
        predict_observe(&predict, series[t]);
        if (t + 1 < teaching)
            continue;
        off += fabs(predict_forecast(&predict, windows_ahead) - series[t + windows_ahead]);
        came += series[t + windows_ahead];
    }
    return off / came;
}

static void errors_of(const struct trace_windows *windows, const struct predict_params *params,
                      const double *series, double errors[FORECAST_AHEAD])
{
    for (int i = 0; i < FORECAST_AHEAD; i++)
        errors[i] = forecast_error(params, series, windows->count,
                                   (uint32_t)(ahead_s[i] / windows->window_s) + 1,
                                   (size_t)ceil(teaching_s / windows->window_s));
}

static void print_json(FILE *out, const struct forecast_errors *errors, int kinds)
{
    fprintf(out, "{");
    for (int kind = 0; kind < kinds; kind++) {
        const struct forecast_errors *e = &errors[kind];
        fprintf(out,
                "%s\"%s\": {\"requests\": {\"15min\": %.4f, \"30min\": %.4f}, "
                "\"tokens\": {\"15min\": %.4f, \"30min\": %.4f}}",
                kind ? ", " : "", predict_kind_name((enum predict_kind)kind), e->requests[0],
                e->requests[1], e->tokens[0], e->tokens[1]);
    }
    fprintf(out, "}\n");
}

static void print_table(FILE *out, const struct forecast_errors *errors, int kinds)
{
    fprintf(out, "error, %%       requests/s     output tokens/s\n");
    fprintf(out, "predictor     15 min  30 min   15 min  30 min\n");
    for (int kind = 0; kind < kinds; kind++) {
        const struct forecast_errors *e = &errors[kind];
        fprintf(out, "%-12s  %6.1f  %6.1f   %6.1f  %6.1f\n",
                predict_kind_name((enum predict_kind)kind), 100 * e->requests[0],
                100 * e->requests[1], 100 * e->tokens[0], 100 * e->tokens[1]);
    }
    if (kinds < FORECAST_KINDS)
        fprintf(out, "lstm          needs --prediction-model-path FILE\n");
}

bool forecast_report(FILE *out, const struct trace_windows *windows, const struct lstm *lstm,
                     bool json, struct err *err)
{
    const int kinds = lstm ? FORECAST_KINDS : FORECAST_KINDS - 1; /* the lstm is the last */
    struct forecast_errors errors[FORECAST_KINDS];
    double *requests, *tokens;

    if (windows->window_s > ahead_s[0] ||
        (double)windows->count * windows->window_s < 2 * teaching_s)
        return err_set(err, ERR_REJECT,
                       "--predict needs two hours in windows of at most 15 minutes, not %zu of "
                       "%.0f s",
                       windows->count, windows->window_s);
    requests = malloc(2 * windows->count * sizeof *requests);
    if (!requests)
        return err_set(err, ERR_FATAL, "--predict: out of memory for %zu windows", windows->count);
    tokens = requests + windows->count;
    for (size_t i = 0; i < windows->count; i++) {
        requests[i] = windows->windows[i].rate;
        tokens[i] = windows->windows[i].rate * windows->windows[i].output;
    }
    for (int kind = 0; kind < kinds; kind++) {
        struct predict_params params = predict_defaults((enum predict_kind)kind);
        params.lstm = lstm;
        errors_of(windows, &params, requests, errors[kind].requests);
        errors_of(windows, &params, tokens, errors[kind].tokens);
    }
    free(requests);
    print_table(out, errors, kinds);
    if (json)
        print_json(out, errors, kinds);
    return true;
}
