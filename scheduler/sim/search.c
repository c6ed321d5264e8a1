/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/search.h"

#include <math.h>

#include "scheduler/sim/crew.h"

enum {
    CAP_MIN = 8,
    CAPS_AT_A_TIME = 2,
    CAPS_MAX = 32,
    LIMIT_HALVINGS = 7, /* within 1 % of the bracket */
};

static const double tokens_tolerance = 0.98;
static const double late_share = 0.01;  /* of the P99 */
static const double scale_share = 1.25; /* of what the step model says the nodes can do at most */

struct trial {
    uint32_t cap;
    double latency_s;    /* P99, infinite when given up */
    double tokens_per_s; /* 0 when given up: a part of the trace shows no rate of the whole */
    uint64_t tokens;
};

static bool better(const struct trial *trial, const struct trial *best, double tokens_most)
{
    bool enough = trial->tokens_per_s >= tokens_tolerance * tokens_most;
    bool best_enough = best->tokens_per_s >= tokens_tolerance * tokens_most;

    if (enough != best_enough)
        return enough;
    if (isinf(trial->latency_s) && isinf(best->latency_s))
        return trial->tokens > best->tokens; /* none keeps up: who got farthest */
    return trial->latency_s < best->latency_s;
}

static struct trial best_of(const struct trial *trials, uint32_t count)
{
    struct trial best = trials[0];
    double most = 0;

    for (uint32_t i = 0; i < count; i++)
        most = fmax(most, trials[i].tokens_per_s);
    for (uint32_t i = 1; i < count; i++)
        if (better(&trials[i], &best, most))
            best = trials[i];
    return best;
}

/* One pair of caps; nothing slower than the best one so far need be finished. */
static bool try_caps(const struct sim_setup *setup, enum sim_policy policy,
                     const struct trace *half, double bound_s, struct trial trials[CAPS_AT_A_TIME],
                     uint32_t count, struct err *err)
{
    struct crew_job jobs[CAPS_AT_A_TIME] = {0};
    bool ok;

    for (uint32_t i = 0; i < count; i++) {
        jobs[i].trace = half;
        sim_run_config(setup, policy, trials[i].cap, &jobs[i].config);
        if (isfinite(bound_s)) {
            jobs[i].config.late_base_us = (int64_t)(bound_s * 1e6);
            jobs[i].config.late_share = late_share;
        }
    }
    ok = crew_run(jobs, count, setup->options->threads, err);
    for (uint32_t i = 0; ok && i < count; i++) {
        const struct run_result *result = &jobs[i].result;
        trials[i].latency_s =
            result->given_up ? INFINITY : run_quantile(result->latency_s, result->requests, 0.99);
        trials[i].tokens = result->output_tokens;
        trials[i].tokens_per_s =
            result->given_up ? 0 : (double)result->output_tokens / result->duration_s;
    }
    crew_free(jobs, count);
    return ok;
}

/* The first half in time; an offline job has no time, so half of its requests. */
static bool first_half(const struct sim_setup *setup, struct trace *half, struct err *err)
{
    struct trace_options options = setup->trace_options;

    if (setup->trace.offline) {
        *half = setup->trace;
        half->count = (half->count + 1) / 2;
        half->prompt_tokens /= 2;
        half->output_tokens /= 2;
        half->context_tokens /= 2;
        return true;
    }
    options.length_us =
        (int64_t)((double)setup->trace.duration_us * setup->trace_options.scale / 2);
    return trace_read(half, &options, err);
}

static bool sweep(const struct sim_setup *setup, enum sim_policy policy, const struct trace *half,
                  uint32_t *base, struct err *err)
{
    struct trial trials[CAPS_MAX];
    uint32_t count = 0, cap = CAP_MIN;
    double bound_s = setup->trace.offline ? INFINITY : (double)sim_sustained_us / 1e6;

    int64_t most = setup->model.max_seqs;

    if (setup->options->max > 0 && setup->options->max < most)
        most = setup->options->max;
    if (most < CAP_MIN)
        return err_set(err, ERR_REJECT, "a largest batch of %d needs a --base-batch-size",
                       (int)most);
    while (2 * cap <= most)
        cap *= 2;
    while (cap >= CAP_MIN && count + CAPS_AT_A_TIME <= CAPS_MAX) {
        uint32_t pair = 0, before = count;
        for (; pair < CAPS_AT_A_TIME && cap >= CAP_MIN; cap /= 2)
            trials[count + pair++].cap = cap;
        if (!try_caps(setup, policy, half, bound_s, trials + count, pair, err))
            return false;
        count += pair;
        *base = best_of(trials, count).cap;
        double best_s = best_of(trials, count).latency_s;
        bool improved = *base <= trials[before].cap;
        if (isfinite(best_s) && !setup->trace.offline)
            bound_s = best_s;
        if (isfinite(best_s) && !improved)
            return true;
    }
    return true;
}

bool search_base(const struct sim_setup *setup, enum sim_policy policy, uint32_t *base,
                 struct err *err)
{
    struct trace half;
    bool ok;

    if (!first_half(setup, &half, err))
        return false;
    ok = sweep(setup, policy, &half, base, err);
    if (!setup->trace.offline)
        trace_free(&half);
    return ok;
}

/* Is this policy in time at the scale (of the trace as --scale has it)? */
static bool run_scaled(const struct sim_setup *setup, const struct sim_row *row, double scale,
                       bool *in_time, double *rate, struct err *err)
{
    struct trace_options options = setup->trace_options;
    struct run_config config;
    struct run_result result;
    struct trace trace;
    bool ok;

    options.scale *= scale;
    if (!trace_read(&trace, &options, err))
        return false;
    sim_run_config(setup, row->policy, row->base, &config);
    config.late_base_us = setup->options->limit_first_us;
    config.late_token_us = setup->options->token_limit_us;
    config.late_share = late_share;
    config.horizon_us += trace.duration_us - setup->trace.duration_us;
    ok = run_trace(&config, &trace, &result, err);
    if (ok) {
        *in_time = (double)result.late <= late_share * (double)result.requests;
        /* As it arrived: the longest answers of the last minute say nothing of the rate. */
        *rate = (double)trace.output_tokens * 1e6 / (double)trace.duration_us;
        run_result_free(&result);
    }
    trace_free(&trace);
    return ok;
}

bool search_limit(const struct sim_setup *setup, struct sim_row *row, struct err *err)
{
    struct run_config config;
    double offered = (double)setup->trace.output_tokens * 1e6 / (double)setup->trace.duration_us;
    double low = 0, high, rate;
    bool in_time;

    sim_run_config(setup, row->policy, row->base, &config);
    high = scale_share * config.nodes * run_node_speed(&config, &setup->trace) / offered;
    for (int i = 0; i < LIMIT_HALVINGS; i++) {
        double middle = (low + high) / 2;
        if (!run_scaled(setup, row, middle, &in_time, &rate, err))
            return false;
        if (in_time) {
            low = middle;
            row->limit_tokens_per_s = rate;
        } else {
            high = middle;
        }
    }
    row->limit_scale = low * setup->trace_options.scale;
    return true;
}
