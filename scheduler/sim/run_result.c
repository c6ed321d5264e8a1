/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>

#include "scheduler/sim/arrivals.h"

double run_node_speed(const struct run_config *config, const struct trace *trace)
{
    double count = (double)trace->count, output = (double)trace->output_tokens;
    const struct step_lengths lengths = {.prompt = (double)trace->prompt_tokens / count *
                                                   (1 - config->cached_share),
                                         .output = output / count,
                                         .context = trace->context_tokens / output};

    return step_model_speed(config->model, &lengths, config->step_us_target);
}

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return x < y ? -1 : x > y;
}

static void take_times(struct run *run, size_t i)
{
    struct run_result *result = run->result;
    const struct trace_request *request = &run->trace->requests[i];
    const struct request_times *times = &run->times[i];
    int64_t made = request->output_tokens > 1 ? request->output_tokens - 1 : 1;

    result->first_s[i] =
        times->first_us < 0 ? INFINITY : (float)(times->first_us - request->arrival_us) / 1e6f;
    if (times->end_us < 0) {
        result->latency_s[i] = result->token_ms[i] = INFINITY;
        result->unfinished++;
        return;
    }
    result->latency_s[i] = (float)(times->end_us - request->arrival_us) / 1e6f;
    result->token_ms[i] = (float)(times->end_us - times->first_us) / 1e3f / (float)made;
    result->prompt_tokens += request->prompt_tokens;
    result->output_tokens += request->output_tokens;
    result->in_time += times->end_us - request->arrival_us <=
                       run->config->limit_first_us +
                           (int64_t)(run->config->step_us_target * request->output_tokens);
}

static void sum_nodes(struct run *run, int64_t end_us)
{
    struct run_result *result = run->result;
    double work_us = 0;

    for (uint32_t slot = 0; slot < run->fleet.count; slot++) {
        const struct member *member = &run->fleet.members[slot];
        if (member->state != MEMBER_OFF)
            result->node_hours += (double)(end_us - member->on_us) / (double)RUN_HOUR_US;
        result->busy_hours += (double)member->node.busy_us / (double)RUN_HOUR_US;
        result->steps += member->node.step;
        result->preemptions += member->node.preemptions;
        work_us += member->node.work_us;
    }
    result->imbalance = result->steps ? run->imbalance_sum / (double)result->steps : 1;
    result->utilisation = work_us / (double)RUN_HOUR_US / result->node_hours;
}

static void sum_prefixes(struct run *run)
{
    struct run_result *result = run->result;
    struct scheduler_gauges gauges;

    scheduler_gauges(run->core, &gauges);
    const struct scheduler_prefixes *prefixes = &gauges.prefixes;
    result->affinity_assignments = prefixes->affinity_assignments;
    if (prefixes->prompt_tokens > 0)
        result->cached_share = (double)prefixes->cached_tokens / (double)prefixes->prompt_tokens;
    if (prefixes->prompt_tokens_expected > 0)
        result->cached_share_expected =
            (double)prefixes->cached_tokens_expected / (double)prefixes->prompt_tokens_expected;
}

static void sort(float *values, uint64_t count)
{
    qsort(values, count, sizeof *values, ascending);
}

/* Before the times of all are sorted. */
static bool sum_classes(struct run *run, struct err *err)
{
    struct run_result *result = run->result;

    for (uint64_t i = 0; i < result->requests; i++)
        result->classes[arrivals_class(run, i)].requests++;
    for (int kind = 0; kind < CLASS_COUNT; kind++) {
        struct run_class *class = &result->classes[kind];
        uint64_t count = 0;
        class->latency_s = malloc((class->requests + 1) * sizeof *class->latency_s);
        class->first_s = malloc((class->requests + 1) * sizeof *class->first_s);
        if (!class->latency_s || !class->first_s)
            return err_set(err, ERR_FATAL, "simulator: out of memory");
        for (uint64_t i = 0; i < result->requests; i++)
            if (arrivals_class(run, i) == (enum service_class)kind) {
                class->latency_s[count] = result->latency_s[i];
                class->first_s[count++] = result->first_s[i];
            }
        sort(class->latency_s, count);
        sort(class->first_s, count);
    }
    return true;
}

bool run_sum_up(struct run *run, struct err *err)
{
    struct run_result *result = run->result;
    size_t count = run->trace->count;
    int64_t end_us = run->ended == count ? run->last_end_us : run->now_us;

    result->latency_s = malloc(count * sizeof *result->latency_s);
    result->first_s = malloc(count * sizeof *result->first_s);
    result->token_ms = malloc(count * sizeof *result->token_ms);
    if (!result->latency_s || !result->first_s || !result->token_ms)
        return err_set(err, ERR_FATAL, "simulator: out of memory");
    result->requests = count;
    for (size_t i = 0; i < count; i++)
        take_times(run, i);
    result->late += result->unfinished;
    for (size_t i = 0; i < count; i++)
        result->latency_mean_s += (double)result->latency_s[i] / (double)count;
    if (run->config->interactive > 0 && !sum_classes(run, err))
        return false;
    sort(result->latency_s, count);
    sort(result->first_s, count);
    sort(result->token_ms, count);
    result->duration_s = (double)end_us / 1e6;
    result->hours_count = (uint32_t)(end_us / RUN_HOUR_US) + 1;
    if (result->hours_count > RUN_HOURS_MAX)
        result->hours_count = RUN_HOURS_MAX;
    sum_nodes(run, end_us);
    sum_prefixes(run);
    return true;
}

void run_result_free(struct run_result *result)
{
    free(result->latency_s);
    free(result->first_s);
    free(result->token_ms);
    result->latency_s = result->first_s = result->token_ms = NULL;
    for (int kind = 0; kind < CLASS_COUNT; kind++) {
        free(result->classes[kind].latency_s);
        free(result->classes[kind].first_s);
        result->classes[kind] = (struct run_class){0};
    }
}

double run_quantile(const float *sorted, uint64_t count, double q)
{
    uint64_t rank = (uint64_t)ceil(q * (double)count);

    return (double)sorted[rank > 0 ? rank - 1 : 0];
}
