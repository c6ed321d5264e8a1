/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/report.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>

static const double usd_cached = 0.14e-6, usd_input = 0.55e-6, usd_output = 2.19e-6;

double report_revenue_usd(const struct sim_setup *setup, uint64_t prompt_tokens,
                          uint64_t output_tokens)
{
    double cached = setup->options->cached_share;

    return (double)prompt_tokens * (cached * usd_cached + (1 - cached) * usd_input) +
           (double)output_tokens * usd_output;
}

static double usd_per_million(const struct sim_setup *setup, double node_hours, double tokens)
{
    return tokens > 0 ? setup->model.usd_per_hour * node_hours / tokens * 1e6 : INFINITY;
}

static void print_header(FILE *out, const struct sim_setup *setup)
{
    const struct trace *trace = &setup->trace;

    fprintf(out, "trace %s: %zu requests, %" PRIu64 " prompt and %" PRIu64 " output tokens",
            setup->options->trace, trace->count, trace->prompt_tokens, trace->output_tokens);
    if (trace->offline)
        fprintf(out, ", all there at once\n");
    else
        fprintf(out, " in %.0f s\n", (double)trace->duration_us / 1e6);
    fprintf(out, "%s%" PRId64 " x %s, rate times %g, skew of routing %.2g, seed %" PRId64 "\n\n",
            setup->options->autoscale ? "up to " : "", setup->options->nodes, setup->model.name,
            setup->options->scale, setup->options->skew, setup->options->seed);
}

static const char busy_and_util[] =
    "busy: node time with a step under way. util: the least node time that the same work needs, in "
    "batches as\nfull as a node holds, experts loaded evenly, nothing padded or computed twice\n";

static const char *const class_names[CLASS_COUNT] = {"interactive", "bulk"};
static const char *const length_names[LENGTH_COUNT] = {"short", "long"};

static void print_parts(FILE *out, const char *policy, const struct run_part *parts,
                        const char *const *names, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct run_part *part = &parts[i];
        if (part->requests > 0)
            fprintf(out, "%-9s %-11s %9" PRIu64 " %7.1f s %7.1f s %6.2f s %6.2f s %6.2f%%\n",
                    policy, names[i], part->requests,
                    run_quantile(part->latency_s, part->requests, 0.5),
                    run_quantile(part->latency_s, part->requests, 0.99),
                    run_quantile(part->first_s, part->requests, 0.5),
                    run_quantile(part->first_s, part->requests, 0.99),
                    100 * (double)part->in_time / (double)part->requests);
    }
}

static void print_classes(FILE *out, const struct sim_comparison *comparison)
{
    fprintf(out, "\n%-9s %-11s %9s %9s %9s %8s %8s %7s\n", "policy", "requests", "count", "P50 lat",
            "P99 lat", "P50 ttft", "P99 ttft", "in time");
    for (uint32_t i = 0; i < comparison->count; i++) {
        const char *policy = sim_policy_names[comparison->rows[i].policy];
        const struct run_result *result = &comparison->rows[i].result;
        print_parts(out, policy, result->classes, class_names, CLASS_COUNT);
        print_parts(out, policy, result->lengths, length_names, LENGTH_COUNT);
    }
}

/* Did it answer everything, and the trace is not given up? */
static bool sustained(const struct run_result *result)
{
    return !result->given_up && result->unfinished == 0;
}

static void print_notes(FILE *out, const struct sim_setup *setup,
                        const struct sim_comparison *comparison)
{
    for (uint32_t i = 0; i < comparison->count; i++) {
        const struct run_result *r = &comparison->rows[i].result;
        const char *name = sim_policy_names[comparison->rows[i].policy];
        if (r->given_up)
            fprintf(out,
                    "%s: not sustained: after %.1f h more than 1 %% of the requests had taken over "
                    "an hour; %" PRIu64 " were unfinished\n",
                    name, r->duration_s / 3600, r->unfinished);
        else if (!sustained(r))
            fprintf(out, "%s: not sustained: %" PRIu64 " requests were unfinished after %.1f h\n",
                    name, r->unfinished, r->duration_s / 3600);
        if (setup->options->autoscale)
            fprintf(out, "%s: %u to %u nodes\n", name, r->nodes_min, r->nodes_max);
    }
    for (uint32_t i = 0; sim_caches(setup) != RUN_CACHES_OFF && i < comparison->count; i++) {
        const struct run_result *r = &comparison->rows[i].result;
        fprintf(out,
                "%s: %.1f %% of the prompt tokens cached (%.1f %% expected, %.1f %% came before), "
                "%" PRIu64 " requests not to the emptiest node\n",
                sim_policy_names[comparison->rows[i].policy], 100 * r->cached_share,
                100 * r->cached_share_expected,
                100 * (double)setup->trace.repeated_tokens / (double)setup->trace.prompt_tokens,
                r->affinity_assignments);
    }
    fprintf(out, "in time: answered within %.0f s and %.0f ms for every output token\n",
            (double)setup->options->limit_first_us / 1e6,
            (double)setup->options->token_limit_us / 1e3);
    fputs(busy_and_util, out);
}

static void print_limits(FILE *out, const struct sim_comparison *comparison)
{
    fprintf(out, "\nhighest --scale at which 99 %% of the requests are in time:\n");
    for (uint32_t i = 0; i < comparison->count; i++)
        fprintf(out, "%-9s %7.3f  %9.0f tokens/s\n", sim_policy_names[comparison->rows[i].policy],
                comparison->rows[i].limit_scale, comparison->rows[i].limit_tokens_per_s);
}

void report_table(FILE *out, const struct sim_setup *setup, const struct sim_comparison *comparison)
{
    print_header(out, setup);
    fprintf(out, "%-9s %5s %9s %7s %9s %9s %8s %8s %7s %7s %6s %6s %7s %9s\n", "policy", "base",
            "tokens/s", "req/s", "P50 lat", "P99 lat", "P50 ttft", "P99 ttft", "P99 tpt", "in time",
            "busy", "util", "$/Mtok", "node-h");
    for (uint32_t i = 0; i < comparison->count; i++) {
        const struct sim_row *row = &comparison->rows[i];
        const struct run_result *r = &row->result;
        uint64_t n = r->requests;
        fprintf(out,
                "%-9s %5u %9.0f %7.2f %7.1f s %7.1f s %6.2f s %6.2f s %4.0f ms %6.2f%% %5.1f%% "
                "%5.1f%% %7.3f %9.2f\n",
                sim_policy_names[row->policy], row->base, (double)r->output_tokens / r->duration_s,
                (double)(n - r->unfinished) / r->duration_s, run_quantile(r->latency_s, n, 0.5),
                run_quantile(r->latency_s, n, 0.99), run_quantile(r->first_s, n, 0.5),
                run_quantile(r->first_s, n, 0.99), run_quantile(r->token_ms, n, 0.99),
                100 * (double)r->in_time / (double)n, 100 * r->busy_hours / r->node_hours,
                100 * r->utilisation,
                usd_per_million(setup, r->node_hours, (double)r->output_tokens), r->node_hours);
    }
    print_notes(out, setup, comparison);
    if (setup->options->interactive > 0 || sim_split_tokens(setup->options) > 0)
        print_classes(out, comparison);
    if (comparison->limit_searched)
        print_limits(out, comparison);
}

/* Infinite times (of a run that did not finish) are null. */
static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *hours_json(const struct run_hour *hours, uint32_t count)
{
    json_t *array = json_array();

    for (uint32_t h = 0; h < count; h++)
        json_array_append_new(array,
                              json_pack("{s:I,s:I,s:f,s:f}", "prompt_tokens",
                                        (json_int_t)hours[h].prompt_tokens, "output_tokens",
                                        (json_int_t)hours[h].output_tokens, "node_hours",
                                        hours[h].node_hours, "busy_hours", hours[h].busy_hours));
    return array;
}

static json_t *parts_json(const struct run_part *parts, const char *const *names, uint32_t count)
{
    json_t *object = json_object();

    for (uint32_t i = 0; i < count; i++) {
        const struct run_part *c = &parts[i];
        if (c->requests > 0)
            json_object_set_new(
                object, names[i],
                json_pack("{s:I,s:f,s:o,s:o,s:o,s:o}", "requests", (json_int_t)c->requests,
                          "in_time", (double)c->in_time / (double)c->requests, "latency_p50_s",
                          number(run_quantile(c->latency_s, c->requests, 0.5)), "latency_p99_s",
                          number(run_quantile(c->latency_s, c->requests, 0.99)),
                          "first_token_p50_s", number(run_quantile(c->first_s, c->requests, 0.5)),
                          "first_token_p99_s",
                          number(run_quantile(c->first_s, c->requests, 0.99))));
    }
    return object;
}

static json_t *row_json(const struct sim_setup *setup, const struct sim_row *row)
{
    const struct run_result *r = &row->result;
    uint64_t n = r->requests;

    return json_pack(
        "{s:s,s:i,s:I,s:I,s:b,s:f,s:f,s:f,s:o,s:o,s:o,s:o,s:o,s:o,s:f,s:o,s:f,s:i,s:i,s:I,s:f,"
        "s:i,s:f,s:f,s:f,s:f,s:I,s:o,s:o,s:o,s:f,s:f}",
        "policy", sim_policy_names[row->policy], "base", (int)row->base, "requests", (json_int_t)n,
        "unfinished", (json_int_t)r->unfinished, "sustained", sustained(r), "in_time",
        (double)r->in_time / (double)n, "tokens_per_s", (double)r->output_tokens / r->duration_s,
        "requests_per_s", (double)(n - r->unfinished) / r->duration_s, "latency_mean_s",
        number(r->latency_mean_s), "latency_p50_s", number(run_quantile(r->latency_s, n, 0.5)),
        "latency_p99_s", number(run_quantile(r->latency_s, n, 0.99)), "first_token_p50_s",
        number(run_quantile(r->first_s, n, 0.5)), "first_token_p99_s",
        number(run_quantile(r->first_s, n, 0.99)), "token_p99_ms",
        number(run_quantile(r->token_ms, n, 0.99)), "utilisation", r->utilisation,
        "usd_per_million_tokens",
        number(usd_per_million(setup, r->node_hours, (double)r->output_tokens)), "node_hours",
        r->node_hours, "nodes_min", (int)r->nodes_min, "nodes_max", (int)r->nodes_max,
        "preemptions", (json_int_t)r->preemptions, "imbalance", r->imbalance, "replans",
        (int)r->replans, "limit_scale", row->limit_scale, "limit_tokens_per_s",
        row->limit_tokens_per_s, "cached_share", r->cached_share, "cached_share_expected",
        r->cached_share_expected, "affinity_assignments", (json_int_t)r->affinity_assignments,
        "classes", parts_json(r->classes, class_names, CLASS_COUNT), "lengths",
        parts_json(r->lengths, length_names, LENGTH_COUNT), "hours",
        hours_json(r->hours, r->hours_count), "busy", r->busy_hours / r->node_hours,
        "expert_forecast_error", r->expert_forecast_error);
}

static bool dump(FILE *out, json_t *root, struct err *err)
{
    bool ok = root && json_dumpf(root, out, JSON_COMPACT | JSON_REAL_PRECISION(9)) == 0;

    json_decref(root);
    if (!ok)
        return err_set(err, ERR_FATAL, "report: the JSON object cannot be written");
    fputc('\n', out);
    return true;
}

bool report_json(FILE *out, const struct sim_setup *setup, const struct sim_comparison *comparison,
                 struct err *err)
{
    json_t *rows = json_array();

    for (uint32_t i = 0; i < comparison->count; i++)
        json_array_append_new(rows, row_json(setup, &comparison->rows[i]));
    return dump(out,
                json_pack("{s:s,s:s,s:f,s:I,s:I,s:I,s:I,s:o}", "trace", setup->options->trace,
                          "model", setup->model.name, "scale", setup->options->scale, "nodes",
                          (json_int_t)setup->options->nodes, "prompt_tokens",
                          (json_int_t)setup->trace.prompt_tokens, "output_tokens",
                          (json_int_t)setup->trace.output_tokens, "seed",
                          (json_int_t)setup->options->seed, "policies", rows),
                err);
}

void report_fluid_table(FILE *out, const struct sim_setup *setup, const char *const *names,
                        const struct fluid_result *results, uint32_t count)
{
    fprintf(out, "trace %s as flows, windows of %.0f s, %s%" PRId64 " x %s\n\n",
            setup->options->trace, (double)setup->options->fluid_step_us / 1e6,
            setup->options->autoscale ? "up to " : "", setup->options->nodes, setup->model.name);
    fprintf(out, "%-9s %11s %9s %10s %6s %6s %8s %10s %8s %12s %12s %7s\n", "policy", "tokens/s",
            "req/s", "mean lat", "busy", "util", "$/Mtok", "node-h", "nodes", "cost $", "revenue $",
            "margin");
    for (uint32_t i = 0; i < count; i++) {
        const struct fluid_result *r = &results[i];
        double cost = r->node_hours * setup->model.usd_per_hour;
        double revenue =
            report_revenue_usd(setup, (uint64_t)r->prompt_tokens, (uint64_t)r->output_tokens);
        fprintf(out,
                "%-9s %11.0f %9.1f %8.1f s %5.1f%% %5.1f%% %8.3f %10.1f %3u-%-4u %12.0f %12.0f "
                "%6.0f%%\n",
                names[i], r->output_tokens / r->duration_s, r->requests / r->duration_s,
                r->latency_mean_s, 100 * r->busy_hours / r->node_hours, 100 * r->utilisation,
                usd_per_million(setup, r->node_hours, r->output_tokens), r->node_hours,
                r->nodes_min, r->nodes_max, cost, revenue,
                cost > 0 ? 100 * (revenue - cost) / cost : 0);
    }
    fputs(busy_and_util, out);
}

bool report_fluid_json(FILE *out, const struct sim_setup *setup, const char *const *names,
                       const struct fluid_result *results, uint32_t count, struct err *err)
{
    json_t *rows = json_array();

    for (uint32_t i = 0; i < count; i++) {
        const struct fluid_result *r = &results[i];
        json_array_append_new(
            rows,
            json_pack(
                "{s:s,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:i,s:i,s:f,s:f,s:f,s:o}", "policy",
                names[i], "tokens_per_s", r->output_tokens / r->duration_s, "requests_per_s",
                r->requests / r->duration_s, "prompt_tokens", r->prompt_tokens, "output_tokens",
                r->output_tokens, "latency_mean_s", r->latency_mean_s, "busy",
                r->busy_hours / r->node_hours, "utilisation", r->utilisation, "node_hours",
                r->node_hours, "nodes_mean", r->nodes_mean, "nodes_min", (int)r->nodes_min,
                "nodes_max", (int)r->nodes_max, "waiting_max", r->waiting_max, "cost_usd",
                r->node_hours * setup->model.usd_per_hour, "revenue_usd",
                report_revenue_usd(setup, (uint64_t)r->prompt_tokens, (uint64_t)r->output_tokens),
                "hours", hours_json(r->hours, r->hours_count)));
    }
    return dump(out,
                json_pack("{s:s,s:s,s:b,s:I,s:o}", "trace", setup->options->trace, "model",
                          setup->model.name, "fluid", 1, "nodes", (json_int_t)setup->options->nodes,
                          "policies", rows),
                err);
}
