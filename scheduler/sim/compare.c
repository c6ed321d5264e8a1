/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/compare.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "scheduler/settings.h"
#include "scheduler/sim/crew.h"
#include "scheduler/sim/search.h"

enum {
    TASKS = 7, /* as many as the demo model has */
    EXPERTS = 256,
    RANKS = 8,
    SPARE_PLACES = 32, /* published for prefill: 32 redundant experts */
    TOP_K = 8,
};

static const int64_t heartbeat_us = 1000000;
static const double balance_gain_min = 1.02;
/* More late requests than this and the policy does not sustain the trace: its run ends here. */
static const double late_share = 0.01;
/* Of every run behind its last arrival, for the case that nothing ends any more, and before it,
 * since idle nodes cost time, too: a month of ticks takes a minute. */
static const int64_t day_us = (int64_t)24 * 3600 * 1000000;
enum { OUTLAST_DAYS = 7, TRACE_DAYS_MAX = 31 };

static bool setup_trace_options(struct sim_setup *setup, struct err *err)
{
    const struct sim_options *options = setup->options;

    setup->trace_options = (struct trace_options){.path = options->trace,
                                                  .scale = options->scale,
                                                  .from_us = options->from_us,
                                                  .length_us = options->length_us,
                                                  .seed = (uint64_t)options->seed};
    return sim_columns(options->columns, setup->columns, sizeof setup->columns,
                       &setup->trace_options.column_prompt, &setup->trace_options.column_output,
                       err);
}

static bool setup_routing(struct sim_setup *setup, struct err *err)
{
    const struct sim_options *options = setup->options;

    setup->routing = (struct routing){
        .tasks = TASKS,
        .experts = EXPERTS,
        .ranks = RANKS,
        .replicas = EXPERTS + SPARE_PLACES,
        .top_k = TOP_K,
        .predictor = predict_defaults((enum predict_kind)options->expert_predictor)};
    if (!*options->routing) {
        routing_skewed(&setup->routing, options->skew, (uint64_t)options->seed);
        return true;
    }
    if (!routing_read(&setup->routing, options->routing, err))
        return false;
    setup->routing.replicas = setup->routing.experts + setup->routing.experts / 8;
    if (setup->routing.ranks > setup->routing.experts)
        setup->routing.ranks = setup->routing.experts;
    return true;
}

bool sim_setup_models(struct sim_setup *setup, const struct sim_options *options, struct err *err)
{
    *setup = (struct sim_setup){.options = options};
    if (*options->predictor_path && !lstm_read(&setup->lstm, options->predictor_path, err))
        return false;
    if (!step_model_preset(options->model, &setup->model) &&
        !step_model_read(&setup->model, options->model, err))
        return false;
    return setup_routing(setup, err) && setup_trace_options(setup, err);
}

bool sim_setup(struct sim_setup *setup, const struct sim_options *options, struct err *err)
{
    if (!sim_setup_models(setup, options, err) ||
        !trace_read(&setup->trace, &setup->trace_options, err))
        return false;
    return setup->trace.duration_us <= TRACE_DAYS_MAX * day_us ||
           err_set(err, ERR_REJECT, "--scale %g makes %.0f days of the trace; at most %d are run",
                   options->scale, (double)setup->trace.duration_us / (double)day_us,
                   TRACE_DAYS_MAX);
}

void sim_setup_free(struct sim_setup *setup)
{
    trace_free(&setup->trace);
}

static struct batch_policy batch_policy(const struct sim_setup *setup, enum sim_policy policy,
                                        uint32_t base)
{
    const struct sim_options *options = setup->options;
    /* A fixed cap is what it says: only the memory that requests reserve may stop it. */
    bool fixed = policy == SIM_STATIC || policy == SIM_CLASSIC;
    int64_t max = fixed ? base : options->max;

    return (struct batch_policy){.kind = policy == SIM_FORMULA    ? BATCH_FORMULA
                                         : policy == SIM_ADAPTIVE ? BATCH_ADAPTIVE
                                                                  : BATCH_STATIC,
                                 .base = base,
                                 .max = max < base ? base : (uint32_t)max,
                                 .max_auto = !fixed && max == SETTINGS_BATCH_AUTO,
                                 .alpha = options->alpha,
                                 .threshold = options->threshold,
                                 .smoothing = options->smoothing,
                                 .window_ms = options->batch_window_us / 1000,
                                 .pressure_gain = options->pressure_gain,
                                 .kv_share = options->kv_share,
                                 .step_us_target = (double)options->step_target_us};
}

enum run_caches sim_caches(const struct sim_setup *setup)
{
    bool blocks = setup->trace.blocks_limit > 0 && setup->options->cached_share <= 0;

    return blocks ? (enum run_caches)setup->options->prefix_caches : RUN_CACHES_OFF;
}

void sim_run_config(const struct sim_setup *setup, enum sim_policy policy, uint32_t base,
                    struct run_config *config)
{
    const struct sim_options *options = setup->options;
    struct predict_params predictor = predict_defaults((enum predict_kind)options->predictor);

    const enum run_caches caches = sim_caches(setup);

    predictor.lstm = &setup->lstm;
    /* An offline job has no time in which it must be sustained. */
    *config = (struct run_config){
        .model = &setup->model,
        .routing = &setup->routing,
        .policy = batch_policy(setup, policy, base),
        .classic = policy == SIM_CLASSIC,
        .nodes = (uint32_t)options->nodes,
        .cached_share = caches == RUN_CACHES_OFF ? options->cached_share
                                                 : (double)setup->trace.repeated_tokens /
                                                       (double)setup->trace.prompt_tokens,
        .caches = caches,
        .prefix_affinity_weight = caches == RUN_CACHES_OFF ? 0 : options->prefix_affinity_weight,
        .kv_share = options->kv_measured || policy == SIM_ADAPTIVE ? options->kv_share : 0,
        .assign_ahead_percent = (uint32_t)(100 * options->assign_ahead + 0.5),
        .long_request_tokens = (uint32_t)options->long_request_tokens,
        .long_share_percent = (uint32_t)(100 * options->long_share + 0.5),
        .tick_us = options->tick_us,
        .heartbeat_us = heartbeat_us,
        .step_us_target = (double)options->token_limit_us,
        .balance_us = options->balance_us,
        .balance_gain_min = balance_gain_min,
        .task_drift = options->task_drift,
        .task_period_us = options->task_period_us,
        .scale = options->autoscale,
        .capacity = {.planner = {.workers_min = (uint32_t)options->nodes_min,
                                 .workers_max = (uint32_t)options->nodes,
                                 .base_batch = base,
                                 .utilisation = options->utilisation,
                                 .drain_ms = options->drain_us / 1000,
                                 .scale_down_ms = options->scale_down_us / 1000},
                     .predictor = predictor,
                     .step_us_target = options->step_target_us,
                     .forecasts = true,
                     .windows_ahead = (uint32_t)(options->ahead_us / options->window_us) + 1,
                     .window_ms = options->window_us / 1000,
                     .interval_ms = options->plan_us / 1000},
        .node_start_us = options->node_start_us,
        .horizon_us = setup->trace.offline ? 0 : setup->trace.duration_us + OUTLAST_DAYS * day_us,
        .late_base_us = sim_sustained_us,
        .late_share = setup->trace.offline ? 0 : late_share,
        .limit_first_us = options->limit_first_us,
        .interactive = options->interactive,
        .split_tokens = sim_split_tokens(options),
        .seed = (uint64_t)options->seed,
        .progress = isatty(STDERR_FILENO)};
}

struct limit_job {
    const struct sim_setup *setup;
    struct sim_row *row;
    struct err err;
    bool ok;
};

static void *find_limit_thread(void *argument)
{
    struct limit_job *job = argument;

    job->ok = search_limit(job->setup, job->row, &job->err);
    return NULL;
}

static bool find_limits(const struct sim_setup *setup, struct sim_comparison *comparison,
                        struct err *err)
{
    struct limit_job jobs[SIM_POLICIES];
    pthread_t threads[SIM_POLICIES];
    const uint32_t at_a_time = (uint32_t)setup->options->threads;

    if (setup->trace.offline)
        return err_set(err, ERR_REJECT,
                       "--find-limit: an offline job has no arrival rate to scale");
    comparison->limit_searched = true;
    for (uint32_t first = 0; first < comparison->count; first += at_a_time) {
        uint32_t end = first;
        for (; end < comparison->count && end < first + at_a_time; end++) {
            jobs[end] = (struct limit_job){.setup = setup, .row = &comparison->rows[end]};
            if (pthread_create(&threads[end], NULL, find_limit_thread, &jobs[end]) != 0)
                return err_set(err, ERR_FATAL, "simulator: no thread for a search");
        }
        for (uint32_t i = first; i < end; i++)
            pthread_join(threads[i], NULL);
    }
    for (uint32_t i = 0; i < comparison->count; i++)
        if (!jobs[i].ok) {
            *err = jobs[i].err;
            return false;
        }
    return true;
}

static bool choose_bases(const struct sim_setup *setup, struct sim_comparison *comparison,
                         struct err *err)
{
    comparison->static_base = (uint32_t)setup->options->base;
    if (comparison->static_base == 0 &&
        !search_base(setup, SIM_STATIC, &comparison->static_base, err))
        return false;
    for (uint32_t i = 0; i < comparison->count; i++) {
        struct sim_row *row = &comparison->rows[i];
        row->base = comparison->static_base;
        if (row->policy == SIM_CLASSIC && setup->options->base == 0 &&
            !search_base(setup, SIM_CLASSIC, &row->base, err))
            return false;
    }
    return true;
}

bool sim_compare(const struct sim_setup *setup, struct sim_comparison *comparison, struct err *err)
{
    enum sim_policy policies[SIM_POLICIES];
    struct crew_job jobs[SIM_POLICIES] = {0};
    bool ok;

    *comparison = (struct sim_comparison){0};
    if (!sim_policies(setup->options, policies, &comparison->count, err))
        return false;
    for (uint32_t i = 0; i < comparison->count; i++)
        comparison->rows[i].policy = policies[i];
    if (!choose_bases(setup, comparison, err))
        return false;
    for (uint32_t i = 0; i < comparison->count; i++) {
        sim_run_config(setup, policies[i], comparison->rows[i].base, &jobs[i].config);
        jobs[i].trace = &setup->trace;
    }
    ok = crew_run(jobs, comparison->count, setup->options->threads, err);
    for (uint32_t i = 0; i < comparison->count; i++)
        if (jobs[i].ok)
            comparison->rows[i].result = jobs[i].result;
    ok = ok && (!setup->options->find_limit || find_limits(setup, comparison, err));
    if (isatty(STDERR_FILENO)) /* the line of what was going on */
        fputs("\r\033[K", stderr);
    return ok;
}

void sim_comparison_free(struct sim_comparison *comparison)
{
    for (uint32_t i = 0; i < comparison->count; i++)
        run_result_free(&comparison->rows[i].result);
}
