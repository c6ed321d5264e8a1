/* SPDX-License-Identifier: Apache-2.0
 *
 * pelton-sim - the batching policies on public traces. See scheduler/sim/run.h
 * for what is simulated, and --help for what can be told.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/exits.h"
#include "scheduler/sim/compare.h"
#include "scheduler/sim/fluid.h"
#include "scheduler/sim/forecast.h"
#include "scheduler/sim/plot.h"
#include "scheduler/sim/report.h"

enum { LATENCY_POINTS = 200, SAMPLES_MAX = 1000000 };

/* Asked before the run, which may take minutes. */
static bool make_folder(const char *path, struct err *err)
{
    struct stat status;

    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return err_set(err, ERR_REJECT, "plot folder %s: %s", path, strerror(errno));
    if (stat(path, &status) != 0 || !S_ISDIR(status.st_mode))
        return err_set(err, ERR_REJECT, "plot folder %s: it is no folder", path);
    return access(path, W_OK | X_OK) == 0 ||
           err_set(err, ERR_REJECT, "plot folder %s: %s", path, strerror(errno));
}

static bool plot_hours(const struct sim_setup *setup, const char *const *names,
                       const struct run_hour *const *hours, const uint32_t *hours_count,
                       uint32_t count, struct err *err)
{
    static double x[RUN_HOURS_MAX], cost[RUN_HOURS_MAX], revenue[RUN_HOURS_MAX];
    static double nodes[SIM_POLICIES][RUN_HOURS_MAX];
    struct plot money = {.title = "Cost and theoretical revenue by hour (last policy)",
                         .x_label = "hour",
                         .y_label = "US dollars",
                         .stepped = true,
                         .series_count = 2};
    struct plot fleet = {.title = "Nodes by hour",
                         .x_label = "hour",
                         .y_label = "nodes",
                         .stepped = true,
                         .series_count = count};

    for (uint32_t h = 0; h < RUN_HOURS_MAX; h++)
        x[h] = h;
    for (uint32_t p = 0; p < count; p++) {
        for (uint32_t h = 0; h < hours_count[p]; h++) {
            nodes[p][h] = hours[p][h].node_hours;
            cost[h] = hours[p][h].node_hours * setup->model.usd_per_hour;
            revenue[h] =
                report_revenue_usd(setup, hours[p][h].prompt_tokens, hours[p][h].output_tokens);
        }
        fleet.series[p] = (struct plot_series){names[p], x, nodes[p], hours_count[p]};
    }
    money.series[0] = (struct plot_series){"cost", x, cost, hours_count[count - 1]};
    money.series[1] = (struct plot_series){"revenue", x, revenue, hours_count[count - 1]};
    return plot_write(&money, setup->options->plot, "cost-revenue.svg", err) &&
           plot_write(&fleet, setup->options->plot, "nodes.svg", err);
}

static bool plot_latency(const struct sim_setup *setup, const struct sim_comparison *comparison,
                         struct err *err)
{
    static double x[SIM_POLICIES][LATENCY_POINTS], y[LATENCY_POINTS];
    struct plot plot = {.title = "Latency distribution",
                        .x_label = "seconds from arrival to result",
                        .y_label = "percent of requests",
                        .log_x = true,
                        .series_count = comparison->count};

    for (uint32_t p = 0; p < comparison->count; p++) {
        const struct run_result *r = &comparison->rows[p].result;
        for (int i = 0; i < LATENCY_POINTS; i++) {
            double q = (i + 1.0) / LATENCY_POINTS;
            y[i] = 100 * q;
            x[p][i] = run_quantile(r->latency_s, r->requests, q);
        }
        plot.series[p] = (struct plot_series){sim_policy_names[comparison->rows[p].policy], x[p], y,
                                              LATENCY_POINTS};
    }
    return plot_write(&plot, setup->options->plot, "latency.svg", err);
}

static bool plot_all(const struct sim_setup *setup, const struct sim_comparison *comparison,
                     struct err *err)
{
    const char *names[SIM_POLICIES];
    const struct run_hour *hours[SIM_POLICIES];
    uint32_t hours_count[SIM_POLICIES];

    for (uint32_t p = 0; p < comparison->count; p++) {
        names[p] = sim_policy_names[comparison->rows[p].policy];
        hours[p] = comparison->rows[p].result.hours;
        hours_count[p] = comparison->rows[p].result.hours_count;
    }
    return plot_hours(setup, names, hours, hours_count, comparison->count, err) &&
           plot_latency(setup, comparison, err);
}

/* *code is the exit code for a REJECT: it changes where outputs are written. */
static bool simulate(const struct sim_options *options, int *code, struct err *err)
{
    static struct sim_setup setup;
    struct sim_comparison comparison = {0};
    bool ok = sim_setup(&setup, options, err) && sim_compare(&setup, &comparison, err);

    if (ok)
        report_table(stdout, &setup, &comparison);
    ok = ok && (!options->json || report_json(stdout, &setup, &comparison, err));
    if (ok && *options->plot) {
        *code = EX_CANTCREAT;
        ok = plot_all(&setup, &comparison, err);
    }
    sim_comparison_free(&comparison);
    sim_setup_free(&setup);
    return ok;
}

/* The trace's windows as it stands; --scale multiplies their rates. */
static bool fluid_policies(struct sim_setup *setup, struct trace_windows *windows, int *code,
                           struct err *err)
{
    const struct sim_options *options = setup->options;
    static struct fluid_result results[SIM_POLICIES];
    const char *names[SIM_POLICIES];
    const struct run_hour *hours[SIM_POLICIES];
    uint32_t hours_count[SIM_POLICIES], count;
    enum sim_policy policies[SIM_POLICIES];

    if (!sim_policies(options, policies, &count, err))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        struct run_config config;
        struct fluid_input input = {
            .windows = windows->windows, .count = windows->count, .window_s = windows->window_s};
        sim_run_config(setup, policies[i], (uint32_t)options->base, &config);
        if (!fluid_imbalance(&setup->routing, (uint32_t)options->base, options->balance_us > 0,
                             &input.imbalance, err) ||
            !fluid_run(&config, &input, (double)options->fluid_step_us / 1e6, &results[i], err))
            return false;
        names[i] = sim_policy_names[policies[i]];
        hours[i] = results[i].hours;
        hours_count[i] = results[i].hours_count;
    }
    report_fluid_table(stdout, setup, names, results, count);
    if (options->json && !report_fluid_json(stdout, setup, names, results, count, err))
        return false;
    *code = EX_CANTCREAT;
    return !*options->plot || plot_hours(setup, names, hours, hours_count, count, err);
}

static bool simulate_fluid(const struct sim_options *options, int *code, struct err *err)
{
    static struct sim_setup setup;
    struct trace_windows windows = {0};
    bool ok = sim_setup_models(&setup, options, err) &&
              trace_read_windows(&windows, &setup.trace_options, err) &&
              fluid_policies(&setup, &windows, code, err);

    trace_windows_free(&windows);
    return ok;
}

static bool predict(const struct sim_options *options, struct err *err)
{
    const struct trace_options trace = {.path = options->trace, .scale = 1};
    struct trace_windows windows = {0};
    static struct lstm lstm;
    bool with_lstm = *options->predictor_path;
    bool ok = (!with_lstm || lstm_read(&lstm, options->predictor_path, err)) &&
              trace_read_windows(&windows, &trace, err) &&
              forecast_report(stdout, &windows, with_lstm ? &lstm : NULL, options->json, err);

    trace_windows_free(&windows);
    return ok;
}

static bool read_samples(const char *path, struct step_sample *samples, size_t *count,
                         struct err *err)
{
    FILE *file = fopen(path, "r");
    char line[256];
    bool ok = true;

    if (!file)
        return err_set(err, ERR_REJECT, "--fit %s: %s", path, strerror(errno));
    *count = 0;
    for (unsigned number = 1; ok && fgets(line, sizeof line, file); number++) {
        struct step_sample *s = &samples[*count];
        if (number == 1 && strncmp(line, "decode,prefill,kv_tokens,imbalance,us", 37) == 0)
            continue;
        if (*count == SAMPLES_MAX ||
            sscanf(line, "%" SCNu32 ",%" SCNu32 ",%" SCNu64 ",%lf,%lf", &s->shape.decode_rows,
                   &s->shape.prefill_rows, &s->shape.kv_tokens, &s->shape.imbalance, &s->us) != 5 ||
            !(s->us > 0) || !(s->shape.imbalance >= 1))
            ok = err_set(
                err, ERR_REJECT,
                "--fit %s, line %u: expected decode,prefill,kv_tokens,imbalance,us (at most "
                "%d lines)",
                path, number, SAMPLES_MAX);
        else
            ++*count;
    }
    fclose(file);
    return ok;
}

static bool fit(const struct sim_options *options, int *code, struct err *err)
{
    struct step_sample *samples = malloc(SAMPLES_MAX * sizeof *samples);
    struct step_model model;
    size_t count = 0;
    double error;
    bool ok = false;

    if (!samples)
        return err_set(err, ERR_FATAL, "--fit: out of memory");
    if ((step_model_preset(options->model, &model) ||
         step_model_read(&model, options->model, err)) &&
        read_samples(options->fit, samples, &count, err) &&
        step_model_fit(&model, samples, count, &error, err)) {
        *code = EX_CANTCREAT;
        ok = step_model_write(&model, options->fit_out, err);
    }
    if (ok)
        printf("%zu steps: %.1f us + %.3f us a decode row + %.3f us a prefill row + %.6f us a "
               "token of context; median error %.1f %%\nwritten to %s\n",
               count, model.fixed_us, model.decode_us, model.prefill_us, model.kv_us, 100 * error,
               options->fit_out);
    free(samples);
    return ok;
}

/* The exit code, with err where it is not EX_OK. */
static int run(const struct sim_options *options, struct err *err)
{
    int code = EX_DATAERR;

    if (!sim_check(options, err))
        return EX_USAGE;
    if (!sim_check_files(options, err))
        return EX_NOINPUT;
    if (*options->plot && !*options->fit && !options->predict && !make_folder(options->plot, err))
        return EX_CANTCREAT;
    bool ok = *options->fit      ? fit(options, &code, err)
              : options->predict ? predict(options, err)
              : options->fluid   ? simulate_fluid(options, &code, err)
                                 : simulate(options, &code, err);
    return ok ? EX_OK : err->kind == ERR_REJECT ? code : EX_SOFTWARE;
}

int main(int argc, char **argv)
{
    struct sim_options options = {0};
    struct config *config;
    enum config_outcome outcome;
    struct err err;

    if (!config_load(&config, &sim_program, argc, argv, &options, &outcome, &err)) {
        return exits_with(exits_config_code(outcome), sim_program.name, &err);
    }
    if (outcome == CONFIG_EXIT) {
        config_free(config);
        return EX_OK;
    }
    int code = run(&options, &err);
    if (code != EX_OK)
        exits_with(code, sim_program.name, &err);
    config_free(config);
    return code;
}
