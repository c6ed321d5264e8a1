/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/compare.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

enum {
    SWEEP_MAX = 24,
    JOBS_MAX = SWEEP_MAX,
    LIMIT_STEPS = 7, /* halvings of the search for a scale: within 1 % of the bracket */
    LIMIT_DOUBLINGS = 8,
    TASKS = 7, /* as many as the demo model has */
    EXPERTS = 256,
    RANKS = 8,
    SPARE_PLACES = 32, /* published for prefill: 32 redundant experts */
    TOP_K = 8,
    ASSIGN_AHEAD_PERCENT = 25,
};

static const double sweep_tolerance = 0.98;
static const int64_t heartbeat_us = 1000000;
static const double balance_gain_min = 1.02;
/* A run that needs longer than the trace and this is not going to hold any limit. */
static const int64_t horizon_rest_us = (int64_t)3600 * 1000000;

static bool setup_trace_options(struct sim_setup *setup, struct err *err)
{
    const struct sim_options *options = setup->options;

    if (!*options->trace)
        return err_set(err, ERR_REJECT, "--trace FILE is needed");
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

    setup->routing = (struct routing){.tasks = TASKS,
                                      .experts = EXPERTS,
                                      .ranks = RANKS,
                                      .replicas = EXPERTS + SPARE_PLACES,
                                      .top_k = TOP_K};
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
    if (options->predictor == PREDICT_LSTM && !*options->predictor_path)
        return err_set(err, ERR_REJECT, "--predictor lstm needs --prediction-model-path FILE");
    if (*options->predictor_path && !lstm_read(&setup->lstm, options->predictor_path, err))
        return false;
    if (!step_model_preset(options->model, &setup->model) &&
        !step_model_read(&setup->model, options->model, err))
        return false;
    return setup_routing(setup, err) && setup_trace_options(setup, err);
}

bool sim_setup(struct sim_setup *setup, const struct sim_options *options, struct err *err)
{
    return sim_setup_models(setup, options, err) &&
           trace_read(&setup->trace, &setup->trace_options, err);
}

void sim_setup_free(struct sim_setup *setup)
{
    trace_free(&setup->trace);
}

static struct batch_policy batch_policy(const struct sim_setup *setup, enum sim_policy policy,
                                        uint32_t base)
{
    const struct sim_options *options = setup->options;
    int64_t max = options->max > 0 ? options->max : 4 * (int64_t)base;

    return (struct batch_policy){.kind = policy == SIM_FORMULA    ? BATCH_FORMULA
                                         : policy == SIM_ADAPTIVE ? BATCH_ADAPTIVE
                                                                  : BATCH_STATIC,
                                 .base = base,
                                 .max = max < base ? base : (uint32_t)max,
                                 .alpha = options->alpha,
                                 .threshold = options->threshold,
                                 .smoothing = options->smoothing,
                                 .window_ms = options->batch_window_us / 1000,
                                 .pressure_gain = options->pressure_gain,
                                 .kv_share = options->kv_share,
                                 .step_us_target = (double)options->step_target_us};
}

void sim_run_config(const struct sim_setup *setup, enum sim_policy policy, uint32_t base,
                    struct run_config *config)
{
    const struct sim_options *options = setup->options;
    struct predict_params predictor = predict_defaults((enum predict_kind)options->predictor);
    int64_t windows = options->ahead_us / options->window_us;

    predictor.lstm = &setup->lstm;
    *config = (struct run_config){.model = &setup->model,
                                  .routing = &setup->routing,
                                  .policy = batch_policy(setup, policy, base),
                                  .classic = policy == SIM_CLASSIC,
                                  .nodes = (uint32_t)options->nodes,
                                  .cached_share = options->cached_share,
                                  .assign_ahead_percent = ASSIGN_AHEAD_PERCENT,
                                  .tick_us = options->tick_us,
                                  .heartbeat_us = heartbeat_us,
                                  .step_us_target = (double)options->step_target_us,
                                  .balance_us = options->balance_us,
                                  .balance_gain_min = balance_gain_min,
                                  .scale = options->autoscale,
                                  .planner = {.workers_min = 1,
                                              .workers_max = (uint32_t)options->nodes,
                                              .base_batch = base,
                                              .utilisation = options->utilisation,
                                              .drain_ms = 60000,
                                              .scale_down_ms = options->scale_down_us / 1000},
                                  .predictor = predictor,
                                  .window_us = options->window_us,
                                  .forecast_windows = (uint32_t)(windows < 1 ? 1 : windows),
                                  .node_start_us = options->node_start_us,
                                  .horizon_us = setup->trace.duration_us * 2 + horizon_rest_us,
                                  .seed = (uint64_t)options->seed};
}

/* One run on a thread of its own. */
struct job {
    struct run_config config;
    const struct trace *trace;
    struct run_result result;
    struct err err;
    bool ok;
};

struct pool {
    struct job *jobs;
    uint32_t count, next;
    pthread_mutex_t mutex;
};

static void *work(void *argument)
{
    struct pool *pool = argument;

    for (;;) {
        pthread_mutex_lock(&pool->mutex);
        uint32_t mine = pool->next < pool->count ? pool->next++ : pool->count;
        pthread_mutex_unlock(&pool->mutex);
        if (mine == pool->count)
            return NULL;
        struct job *job = &pool->jobs[mine];
        job->ok = run_trace(&job->config, job->trace, &job->result, &job->err);
    }
}

/* All jobs, a few at a time. The first failure in their order is the answer. */
static bool run_jobs(struct job *jobs, uint32_t count, int64_t threads, struct err *err)
{
    struct pool pool = {.jobs = jobs, .count = count, .mutex = PTHREAD_MUTEX_INITIALIZER};
    pthread_t others[64];
    uint32_t started = 0;

    while (started + 1 < (uint32_t)threads && started + 1 < count &&
           pthread_create(&others[started], NULL, work, &pool) == 0)
        started++;
    work(&pool);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(others[i], NULL);
    for (uint32_t i = 0; i < count; i++)
        if (!jobs[i].ok) {
            *err = jobs[i].err;
            return false;
        }
    return true;
}

static void free_jobs(struct job *jobs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (jobs[i].ok)
            run_result_free(&jobs[i].result);
}

static double p99(const struct run_result *result)
{
    return run_quantile(result->latency_s, result->requests, 0.99);
}

static double tokens_per_s(const struct run_result *result)
{
    return (double)result->output_tokens / result->duration_s;
}

/* The first half of the requests; an offline job has no halves in time, so every second one. */
static bool first_half(const struct sim_setup *setup, struct trace *half, struct err *err)
{
    struct trace_options options = setup->trace_options;

    if (setup->trace.offline) {
        *half = setup->trace;
        half->count = (half->count + 1) / 2;
        half->prompt_tokens /= 2;
        half->output_tokens /= 2;
        return true;
    }
    options.length_us =
        (int64_t)((double)setup->trace.duration_us * setup->trace_options.scale / 2);
    return trace_read(half, &options, err);
}

static uint32_t best_of(const struct job *jobs, uint32_t count)
{
    double most = 0;
    uint32_t best = count;

    for (uint32_t i = 0; i < count; i++)
        most = fmax(most, tokens_per_s(&jobs[i].result));
    for (uint32_t i = 0; i < count; i++)
        if (tokens_per_s(&jobs[i].result) >= sweep_tolerance * most &&
            (best == count || p99(&jobs[i].result) < p99(&jobs[best].result)))
            best = i;
    return best;
}

/* Caps 8, 16, ... to what the node's buffers hold. */
static bool sweep(const struct sim_setup *setup, enum sim_policy policy, uint32_t *base,
                  struct err *err)
{
    struct job jobs[SWEEP_MAX] = {0};
    struct trace half;
    uint32_t count = 0;
    bool ok;

    if (!first_half(setup, &half, err))
        return false;
    for (uint32_t cap = 8; count < SWEEP_MAX && cap <= setup->model.max_seqs; cap *= 2) {
        sim_run_config(setup, policy, cap, &jobs[count].config);
        jobs[count].config.horizon_us = half.duration_us * 2 + horizon_rest_us;
        jobs[count++].trace = &half;
    }
    ok = run_jobs(jobs, count, setup->options->threads, err);
    if (ok)
        *base = jobs[best_of(jobs, count)].config.policy.base;
    free_jobs(jobs, count);
    if (!setup->trace.offline)
        trace_free(&half);
    return ok;
}

/* P99 latency and tokens/s at another arrival scale. */
static bool run_scaled(const struct sim_setup *setup, const struct sim_row *row, double scale,
                       double *latency_s, double *rate, struct err *err)
{
    struct trace_options options = setup->trace_options;
    struct run_config config;
    struct run_result result;
    struct trace trace;

    options.scale *= scale;
    if (!trace_read(&trace, &options, err))
        return false;
    sim_run_config(setup, row->policy, row->base, &config);
    config.horizon_us = trace.duration_us * 2 + horizon_rest_us;
    bool ok = run_trace(&config, &trace, &result, err);
    if (ok) {
        *latency_s = p99(&result);
        *rate = tokens_per_s(&result);
        run_result_free(&result);
    }
    trace_free(&trace);
    return ok;
}

static bool find_limit(const struct sim_setup *setup, struct sim_row *row, double limit_s,
                       struct err *err)
{
    double low = 0, high = 1, latency_s, rate;

    for (int i = 0;; i++) {
        if (!run_scaled(setup, row, high, &latency_s, &rate, err))
            return false;
        if (latency_s > limit_s || i == LIMIT_DOUBLINGS)
            break;
        low = high;
        row->limit_tokens_per_s = rate;
        high *= 2;
    }
    for (int i = 0; i < LIMIT_STEPS; i++) {
        double middle = (low + high) / 2;
        if (!run_scaled(setup, row, middle, &latency_s, &rate, err))
            return false;
        if (latency_s <= limit_s) {
            low = middle;
            row->limit_tokens_per_s = rate;
        } else {
            high = middle;
        }
    }
    row->limit_scale = low;
    return true;
}

struct limit_job {
    const struct sim_setup *setup;
    struct sim_row *row;
    double limit_s;
    struct err err;
    bool ok;
};

static void *find_limit_thread(void *argument)
{
    struct limit_job *job = argument;

    job->ok = find_limit(job->setup, job->row, job->limit_s, &job->err);
    return NULL;
}

static bool find_limits(const struct sim_setup *setup, struct sim_comparison *comparison,
                        struct err *err)
{
    struct limit_job jobs[SIM_POLICIES];
    pthread_t threads[SIM_POLICIES];
    struct sim_row light = {.policy = SIM_STATIC, .base = comparison->static_base};
    double rate;
    bool ok = true;

    if (setup->trace.offline)
        return err_set(err, ERR_REJECT,
                       "--find-limit: an offline job has no arrival rate to scale");
    if (!run_scaled(setup, &light, 0.1, &comparison->limit_s, &rate, err))
        return false;
    comparison->limit_s *= setup->options->limit_factor;
    for (uint32_t first = 0; first < comparison->count;
         first += (uint32_t)setup->options->threads) {
        uint32_t end = first;
        for (; end < comparison->count && end < first + (uint32_t)setup->options->threads; end++) {
            jobs[end] =
                (struct limit_job){setup, &comparison->rows[end], comparison->limit_s, {0}, false};
            if (pthread_create(&threads[end], NULL, find_limit_thread, &jobs[end]) != 0)
                return err_set(err, ERR_FATAL, "simulator: no thread for a search");
        }
        for (uint32_t i = first; i < end; i++)
            pthread_join(threads[i], NULL);
    }
    for (uint32_t i = 0; i < comparison->count && ok; i++)
        if (!jobs[i].ok) {
            *err = jobs[i].err;
            ok = false;
        }
    return ok;
}

static bool choose_bases(const struct sim_setup *setup, struct sim_comparison *comparison,
                         struct err *err)
{
    comparison->static_base = (uint32_t)setup->options->base;
    if (comparison->static_base == 0 && !sweep(setup, SIM_STATIC, &comparison->static_base, err))
        return false;
    for (uint32_t i = 0; i < comparison->count; i++) {
        struct sim_row *row = &comparison->rows[i];
        row->base = comparison->static_base;
        if (row->policy == SIM_CLASSIC && setup->options->base == 0 &&
            !sweep(setup, SIM_CLASSIC, &row->base, err))
            return false;
    }
    return true;
}

bool sim_compare(const struct sim_setup *setup, struct sim_comparison *comparison, struct err *err)
{
    enum sim_policy policies[SIM_POLICIES];
    struct job jobs[SIM_POLICIES] = {0};
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
    ok = run_jobs(jobs, comparison->count, setup->options->threads, err);
    for (uint32_t i = 0; i < comparison->count; i++)
        if (jobs[i].ok)
            comparison->rows[i].result = jobs[i].result;
    return ok && (!setup->options->find_limit || find_limits(setup, comparison, err));
}

void sim_comparison_free(struct sim_comparison *comparison)
{
    for (uint32_t i = 0; i < comparison->count; i++)
        run_result_free(&comparison->rows[i].result);
}
