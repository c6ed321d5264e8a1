/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/options.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "scheduler/defaults.h"
#include "scheduler/predict.h"
#include "scheduler/settings.h"
#include "scheduler/sim/step_model.h"

const char *const sim_policy_names[SIM_POLICIES] = {"static", "formula", "adaptive", "classic"};

#define KEY(key, kind, member, initial, ...)                                                       \
    {                                                                                              \
        .name = key, .type = kind, .offset = offsetof(struct sim_options, member),                 \
        .default_value = initial, __VA_ARGS__                                                      \
    }

static const struct config_key keys[] = {
    KEY("trace", CONFIG_STRING, trace, "", .value_name = "FILE",
        .help = "Trace to run; its format is known by its first line."),
    KEY("columns", CONFIG_STRING, columns, "", .value_name = "prompt=NAME,output=NAME",
        .help = "Columns of any CSV, run as an offline job."),
    KEY("policy", CONFIG_LIST, policies, "static,formula,adaptive",
        .help = "Any of static, formula, adaptive, classic (a batch starts and ends together)."),
    KEY("model", CONFIG_STRING, model, "h800-node", .value_name = "NAME|FILE",
        .help = "Step times: h800-node, h100-node, or a file that --fit wrote."),
    KEY("routing", CONFIG_STRING, routing, "", .value_name = "FILE",
        .help = "Recorded routing (report.json of the demo model); without it, 256 experts by a "
                "Zipf law."),
    KEY("skew", CONFIG_DOUBLE, skew, "0.6", .min = 0, .max = 3,
        .help = "Exponent of that law; 0 is even."),
    KEY("nodes", CONFIG_INT, nodes, "4", .min = 1, .max = 10000,
        .help = "Nodes, or the most of them with --autoscale."),
    KEY("nodes_min", CONFIG_INT, nodes_min, "1", .min = 1, .max = 10000,
        .help = "The fewest of them with --autoscale, and how many there are at first."),
    KEY("base_batch_size", CONFIG_INT, base, "auto", .min = 1, .max = 1e6, .word = "auto",
        .word_value = 0,
        .help = "Base batch size; auto takes the best static one of a sweep on the trace's first "
                "half."),
    KEY("max_batch_size", CONFIG_INT, max, DEFAULT_BATCH_MAX, .min = 1, .max = 4096, .word = "auto",
        .word_value = SETTINGS_BATCH_AUTO,
        .help = "Largest batch of the dynamic policies; auto: what kv_share of the memory holds."),
    KEY("alpha", CONFIG_DOUBLE, alpha, DEFAULT_BATCH_ALPHA, .min = 0.2, .max = 0.8,
        .help = "Of the published formula."),
    KEY("expert_load_threshold", CONFIG_DOUBLE, threshold, DEFAULT_BATCH_THRESHOLD, .min = 0.01,
        .max = 100, .help = "Load at which the formula gives the base."),
    KEY("smoothing", CONFIG_DOUBLE, smoothing, DEFAULT_BATCH_SMOOTHING, .min = 0.001, .max = 1,
        .help = "Weight of the newest answer."),
    KEY("pressure_gain", CONFIG_DOUBLE, pressure_gain, DEFAULT_PRESSURE_GAIN, .min = 0, .max = 16,
        .help = "Adaptive: growth of the batch under full lag pressure."),
    KEY("kv_share", CONFIG_PERCENT, kv_share, DEFAULT_KV_SHARE, .min = 0.05, .max = 1,
        .help = "Adaptive: KV memory that batches may plan with."),
    KEY("kv_measured", CONFIG_BOOL, kv_measured, "false",
        .help = "Let the other policies plan with that share of measured use, too, instead of "
                "reserving each request's most."),
    KEY("dynamic_adjust_window", CONFIG_DURATION, batch_window_us, DEFAULT_BATCH_WINDOW,
        .min = 1000, .max = 3.6e9, .help = "Time between two changes of a batch size."),
    KEY("scale", CONFIG_DOUBLE, scale, "1", .min = 1e-6, .max = 1e6,
        .help = "Multiplies the arrival rate."),
    KEY("from", CONFIG_DURATION, from_us, "0s", .min = 0, .max = 1e15,
        .help = "Skip this much of the trace."),
    KEY("length", CONFIG_DURATION, length_us, "0s", .min = 0, .max = 1e15,
        .help = "Run this much of it; 0 is all."),
    KEY("cached", CONFIG_PERCENT, cached_share, "0%", .min = 0, .max = 0.99,
        .help = "Share of every prompt found in a prefix cache; above 0 it takes the place of the "
                "nodes' caches."),
    KEY("prefix_caches", CONFIG_CHOICE, prefix_caches, "node", .choices = "off|node|shared",
        .help = "Of a trace that names its blocks: each node's own in its KV memory, or an "
                "unbounded one for all as the ceiling."),
    KEY("prefix_affinity_weight", CONFIG_DOUBLE, prefix_affinity_weight,
        DEFAULT_PREFIX_AFFINITY_WEIGHT, .min = 0, .max = 100,
        .help = "Weight of prompt tokens to compute when a node is chosen; 0: nodes are filled "
                "evenly."),
    KEY("interactive", CONFIG_PERCENT, interactive, "0%", .min = 0, .max = 1,
        .help = "Share of the requests that are interactive, drawn by lot; latencies by class."),
    KEY("by_length", CONFIG_INT, by_length, "0", .min = 0, .max = 1e9,
        .help =
            "Latencies of requests below and from this many estimated tokens apart; 0: those of "
            "--long-request-tokens."),
    KEY("step_target", CONFIG_DURATION, step_target_us, DEFAULT_STEP_TARGET, .min = 1, .max = 1e9,
        .word = "none", .word_value = 0,
        .help = "Adaptive: slowest step that still meets the token latency wanted."),
    KEY("token_limit", CONFIG_DURATION, token_limit_us, "100ms", .min = 1, .max = 1e9,
        .help = "Time for an output token, by which requests are judged (--limit-first); a step "
                "that takes as long is load 1."),
    KEY("assign_ahead", CONFIG_PERCENT, assign_ahead, DEFAULT_ASSIGN_AHEAD, .min = 0, .max = 8,
        .help = "Requests queued at a node beyond its batch, as a share of the batch size."),
    KEY("long_request_tokens", CONFIG_INT, long_request_tokens, DEFAULT_LONG_REQUEST_TOKENS,
        .min = 0, .max = 1e9,
        .help = "From this many estimated tokens on a request is long; 0: none is."),
    KEY("long_share", CONFIG_PERCENT, long_share, DEFAULT_LONG_SHARE, .min = 0, .max = 1,
        .help = "Share of a batch that long requests may hold whatever short ones need; beside "
                "that they get what these leave. At least one may."),
    KEY("tick", CONFIG_DURATION, tick_us, "100ms", .min = 1000, .max = 1e7,
        .help = "Time between two transactions of the scheduler."),
    KEY("load_balance_interval", CONFIG_DURATION, balance_us, "10s", .min = 0, .max = 1e11,
        .help = "Time between two plans of expert placement; 0 never moves any."),
    KEY("expert_predictor", CONFIG_CHOICE, expert_predictor, "constant",
        .choices = "constant|ewma|holt-winters",
        .help = "Of the experts' loads, for these plans; constant: the loads measured last."),
    KEY("task_drift", CONFIG_DOUBLE, task_drift, "0", .min = 0, .max = 10,
        .help = "How much the mix of tasks changes in a period: the most frequent is exp(2x) times "
                "the rarest."),
    KEY("task_period", CONFIG_DURATION, task_period_us, "24h", .min = 1e6, .max = 1e15,
        .help = "That period."),
    KEY("autoscale", CONFIG_BOOL, autoscale, "false",
        .help = "Nodes come and go by the planner's word; node-hours are then what is compared."),
    KEY("predictor", CONFIG_CHOICE, predictor, "ewma", .choices = "constant|ewma|holt-winters|lstm",
        .help = "Of traffic, for the planner."),
    KEY("prediction_model_path", CONFIG_STRING, predictor_path, "", .value_name = "FILE",
        .help = "Weights of the lstm (safetensors)."),
    KEY("predict", CONFIG_BOOL, predict, "false",
        .help = "Only the errors of all predictors, 15 and 30 minutes ahead; trace by windows."),
    KEY("planner_window", CONFIG_DURATION, window_us, "1min", .min = 1e6, .max = 1e11,
        .help = "Traffic is averaged over such windows for the forecast."),
    KEY("planner_interval", CONFIG_DURATION, plan_us, DEFAULT_PLAN_INTERVAL, .min = 1e5,
        .max = 1e11, .help = "Time between two decisions."),
    KEY("planner_drain", CONFIG_DURATION, drain_us, DEFAULT_DRAIN, .min = 1e6, .max = 1e12,
        .help = "A backlog is to be worked off within this time."),
    KEY("prediction_window", CONFIG_DURATION, ahead_us, DEFAULT_PREDICTION_WINDOW, .min = 1e6,
        .max = 1e11, .help = "How far ahead the planner looks."),
    KEY("node_start", CONFIG_DURATION, node_start_us, "2min", .min = 0, .max = 1e11,
        .help = "From the decision to a node's first step."),
    KEY("scale_down_after", CONFIG_DURATION, scale_down_us, DEFAULT_SCALE_DOWN, .min = 1e6,
        .max = 1e11, .help = "How long a smaller wish must last."),
    KEY("utilisation_target", CONFIG_PERCENT, utilisation, DEFAULT_UTILISATION, .min = 0.05,
        .max = 1, .help = "Share of a node's speed the planner counts on."),
    KEY("find_limit", CONFIG_BOOL, find_limit, "false",
        .help = "Also find the highest --scale that holds the limit on latency."),
    KEY("limit_first", CONFIG_DURATION, limit_first_us, "10s", .min = 1000, .max = 1e11,
        .help = "A request is in time within this and --token-limit for every output token; the "
                "limit on latency: 99 % of them are."),
    KEY("fluid", CONFIG_BOOL, fluid, "false",
        .help = "Flows instead of requests; for traces by windows."),
    KEY("fluid_window", CONFIG_DURATION, fluid_step_us, "10s", .min = 1e5, .max = 6e8,
        .help = "Step of the fluid mode."),
    KEY("seed", CONFIG_INT, seed, "1", .min = 0, .max = 9e15,
        .help = "The same seed gives the same bytes."),
    KEY("json", CONFIG_BOOL, json, "false", .help = "One JSON object on the last line."),
    KEY("plot", CONFIG_STRING, plot, "", .value_name = "FOLDER",
        .help = "Write SVGs: cost and revenue by hour, nodes by hour, latency."),
    KEY("fit", CONFIG_STRING, fit, "", .value_name = "FILE",
        .help = "Fit a step model to measured steps (CSV: decode,prefill,kv_tokens,imbalance,us) "
                "and exit."),
    KEY("output", CONFIG_STRING, fit_out, "step-model.txt", .letter = 'o', .value_name = "FILE",
        .help = "Where --fit writes it."),
    KEY("threads", CONFIG_INT, threads, "2", .min = 1, .max = 64,
        .help = "Policies run side by side."),
};

const struct config_program sim_program = {
    .name = "pelton-sim",
    .version = PELTON_VERSION,
    .synopsis = "--trace FILE [--policy LIST] [--json] [options]",
    .summary = "Runs a public trace through the scheduler core of pelton-scheduler and simulated "
               "workers,\n"
               "and prints one table that compares the batching policies.",
    .epilogue =
        "in time: answered within --limit-first and --token-limit for every output token\n"
        "busy:    node time with a step under way\n"
        "util:    the least node time that the same work needs, in batches as full as a node\n"
        "         holds, experts loaded evenly, nothing padded or computed twice; at most busy\n\n"
        "What decides batches and workers has pelton-scheduler's defaults.\n\n"
        "Examples:\n"
        "  pelton-sim --trace azure-conv-2023.csv --nodes 2 --scale 8\n"
        "  pelton-sim --trace job.csv --columns prompt=in,output=out --policy static,adaptive\n"
        "  pelton-sim --trace servegen-deepseek-r1-day.csv --autoscale --nodes 12 --plot plots\n"
        "  pelton-sim --predict --trace servegen-deepseek-r1-day.csv\n"
        "  pelton-sim --fit steps.csv -o model.txt\n\n"
        "Exit codes: 0 done, 64 an option, 65 a file's data, or more of them than is run, 66 no\n"
        "such file, 70 a fault of ours or of the machine, 73 an output cannot be written, 78 the\n"
        "file of --config.",
    .keys = keys,
    .keys_count = sizeof keys / sizeof *keys,
    .without_kafka = true,
};

bool sim_policies(const struct sim_options *options, enum sim_policy policies[SIM_POLICIES],
                  uint32_t *count, struct err *err)
{
    *count = 0;
    for (size_t i = 0; i < options->policies.count; i++) {
        const char *name = options->policies.items[i];
        uint32_t policy = 0, before = 0;

        while (policy < SIM_POLICIES && strcmp(name, sim_policy_names[policy]) != 0)
            policy++;
        if (policy == SIM_POLICIES)
            return err_set(err, ERR_REJECT,
                           "--policy: \"%s\" is none of static, formula, adaptive, classic", name);
        while (before < *count && policies[before] != policy)
            before++;
        if (before < *count)
            return err_set(err, ERR_REJECT, "--policy: %s is named twice", name);
        policies[(*count)++] = (enum sim_policy)policy;
    }
    return *count > 0 || err_set(err, ERR_REJECT, "--policy names no policy");
}

uint32_t sim_split_tokens(const struct sim_options *options)
{
    return (uint32_t)(options->by_length ? options->by_length : options->long_request_tokens);
}

bool sim_columns(const char *columns, char *buffer, size_t size, const char **prompt,
                 const char **output, struct err *err)
{
    *prompt = *output = NULL;
    if (strlen(columns) >= size)
        return err_set(err, ERR_REJECT, "--columns is longer than %zu bytes", size - 1);
    snprintf(buffer, size, "%s", columns);
    for (char *part = buffer; part && *part;) {
        char *next = strchr(part, ',');
        if (next)
            *next++ = 0;
        if (strncmp(part, "prompt=", 7) == 0 && !*prompt)
            *prompt = part + 7;
        else if (strncmp(part, "output=", 7) == 0 && !*output)
            *output = part + 7;
        else
            return err_set(err, ERR_REJECT,
                           "--columns: \"%s\" is neither prompt=NAME nor output=NAME", part);
        part = next;
    }
    return !*columns || (*prompt && *output) ||
           err_set(err, ERR_REJECT, "--columns names prompt and output both");
}

bool sim_check(const struct sim_options *options, struct err *err)
{
    enum sim_policy policies[SIM_POLICIES];
    const char *prompt, *output;
    char columns[SIM_COLUMNS_SIZE_MAX];
    uint32_t count;

    if (*options->fit)
        return true;
    if (!*options->trace)
        return err_set(err, ERR_REJECT, "--trace FILE is needed");
    if (!sim_columns(options->columns, columns, sizeof columns, &prompt, &output, err) ||
        !sim_policies(options, policies, &count, err))
        return false;
    if (options->predict)
        return !*options->columns ||
               err_set(err, ERR_REJECT, "--columns makes an offline job, --predict takes a day");
    if (options->nodes_min > options->nodes)
        return err_set(err, ERR_REJECT, "--nodes-min %" PRId64 " is above --nodes %" PRId64,
                       options->nodes_min, options->nodes);
    if (options->max > 0 && options->base > options->max)
        return err_set(err, ERR_REJECT,
                       "--base-batch-size %" PRId64 " is above --max-batch-size %" PRId64,
                       options->base, options->max);
    if (options->predictor == PREDICT_LSTM && !*options->predictor_path)
        return err_set(err, ERR_REJECT, "--predictor lstm needs --prediction-model-path FILE");
    return !options->fluid || options->base > 0 ||
           err_set(err, ERR_REJECT,
                   "--fluid needs --base-batch-size: flows have no P99 to sweep by");
}

static bool check_file(const char *what, const char *path, struct err *err)
{
    return !*path || access(path, R_OK) == 0 ||
           err_set(err, ERR_REJECT, "%s %s: %s", what, path, strerror(errno));
}

bool sim_check_files(const struct sim_options *options, struct err *err)
{
    struct step_model preset;
    const char *model = step_model_preset(options->model, &preset) ? "" : options->model;

    if (*options->fit)
        return check_file("--fit", options->fit, err) && check_file("step model", model, err);
    return check_file("trace", options->trace, err) &&
           check_file("predictor", options->predictor_path, err) &&
           (options->predict ||
            (check_file("step model", model, err) && check_file("routing", options->routing, err)));
}
