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

static bool in_time(const struct run *run, size_t i)
{
    const struct trace_request *request = &run->trace->requests[i];
    const struct request_times *times = &run->times[i];

    return times->end_us >= 0 &&
           times->end_us - request->arrival_us <=
               run->config->limit_first_us +
                   (int64_t)(run->config->step_us_target * request->output_tokens);
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
    result->in_time += in_time(run, i);
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

static uint32_t class_of(const struct run *run, uint64_t i)
{
    return arrivals_class(run, i);
}

static uint32_t length_of(const struct run *run, uint64_t i)
{
    return arrivals_tokens(run, i) < run->config->split_tokens ? LENGTH_SHORT : LENGTH_LONG;
}

/* The requests that part_of says are of this part; before the times of all are sorted. */
static bool sum_part(const struct run *run, uint32_t (*part_of)(const struct run *, uint64_t),
                     uint32_t number, struct run_part *part, struct err *err)
{
    const struct run_result *result = run->result;
    uint64_t count = 0;

    for (uint64_t i = 0; i < result->requests; i++)
        part->requests += part_of(run, i) == number;
    part->latency_s = malloc((part->requests + 1) * sizeof *part->latency_s);
    part->first_s = malloc((part->requests + 1) * sizeof *part->first_s);
    if (!part->latency_s || !part->first_s)
        return err_set(err, ERR_FATAL, "simulator: out of memory");
    for (uint64_t i = 0; i < result->requests; i++)
        if (part_of(run, i) == number) {
            part->latency_s[count] = result->latency_s[i];
            part->first_s[count++] = result->first_s[i];
            part->in_time += in_time(run, i);
        }
    sort(part->latency_s, count);
    sort(part->first_s, count);
    return true;
}

static bool sum_parts(struct run *run, struct err *err)
{
    struct run_result *result = run->result;

    for (uint32_t kind = 0; run->config->interactive > 0 && kind < CLASS_COUNT; kind++)
        if (!sum_part(run, class_of, kind, &result->classes[kind], err))
            return false;
    for (uint32_t kind = 0; run->config->split_tokens > 0 && kind < LENGTH_COUNT; kind++)
        if (!sum_part(run, length_of, kind, &result->lengths[kind], err))
            return false;
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
    if (!sum_parts(run, err))
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

static void free_part(struct run_part *part)
{
    free(part->latency_s);
    free(part->first_s);
    *part = (struct run_part){0};
}

void run_result_free(struct run_result *result)
{
    free(result->latency_s);
    free(result->first_s);
    free(result->token_ms);
    result->latency_s = result->first_s = result->token_ms = NULL;
    for (int kind = 0; kind < CLASS_COUNT; kind++)
        free_part(&result->classes[kind]);
    for (int kind = 0; kind < LENGTH_COUNT; kind++)
        free_part(&result->lengths[kind]);
}

double run_quantile(const float *sorted, uint64_t count, double q)
{
    uint64_t rank = (uint64_t)ceil(q * (double)count);

    return (double)sorted[rank > 0 ? rank - 1 : 0];
}
