/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/routing.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/check.h"
#include "scheduler/sim/random.h"

void routing_skewed(struct routing *routing, double exponent, uint64_t seed)
{
    struct random random = {seed};
    uint32_t order[ROUTING_EXPERTS_MAX];

    CHECK(routing->tasks <= ROUTING_TASKS_MAX && routing->experts <= ROUTING_EXPERTS_MAX);
    for (uint32_t task = 0; task < routing->tasks; task++) {
        double sum = 0;
        for (uint32_t e = 0; e < routing->experts; e++) {
            uint32_t swap = (uint32_t)(random_u64(&random) % (e + 1));
            order[e] = e == swap ? e : order[swap];
            order[swap] = e;
        }
        for (uint32_t e = 0; e < routing->experts; e++)
            sum += pow(e + 1, -exponent);
        for (uint32_t e = 0; e < routing->experts; e++)
            routing->share[task][order[e]] = (float)(pow(e + 1, -exponent) / sum);
    }
}

/* Adds a task's counts over layers; false when the table has another shape. */
static bool read_task(struct routing *routing, uint32_t task, const json_t *layers)
{
    size_t layer, expert;
    json_t *counts, *count;
    double sum = 0;

    if (!json_is_array(layers) || json_array_size(layers) == 0)
        return false;
    json_array_foreach(layers, layer, counts)
    {
        if (json_array_size(counts) == 0 || json_array_size(counts) > ROUTING_EXPERTS_MAX ||
            (routing->experts != 0 && json_array_size(counts) != routing->experts))
            return false;
        routing->experts = (uint32_t)json_array_size(counts);
        json_array_foreach(counts, expert, count)
        {
            if (!json_is_number(count) || json_number_value(count) < 0)
                return false;
            routing->share[task][expert] += (float)json_number_value(count);
            sum += json_number_value(count);
        }
    }
    for (uint32_t e = 0; e < routing->experts; e++)
        routing->share[task][e] /= (float)sum;
    return sum > 0;
}

/* NULL for what is no file of JSON, with the line where it has one. */
static json_t *load(const char *path, struct err *err)
{
    FILE *file = fopen(path, "r");
    json_error_t error;
    json_t *root;

    root = file ? json_loadf(file, 0, &error) : NULL;
    if (!root && (!file || ferror(file)))
        err_set(err, ERR_REJECT, "routing %s: %s", path, strerror(errno));
    else if (!root)
        err_set(err, ERR_REJECT, "routing %s, line %d: %s", path, error.line, error.text);
    if (file)
        fclose(file);
    return root;
}

bool routing_read(struct routing *routing, const char *path, struct err *err)
{
    json_t *root = load(path, err), *layers;
    json_t *tasks =
        json_object_get(json_object_get(json_object_get(root, "experts"), "prompt"), "counts");
    const char *name;
    bool ok = true;

    if (!root)
        return false;
    routing->tasks = 0;
    routing->experts = 0;
    memset(routing->share, 0, sizeof routing->share);
    if (json_object_size(tasks) == 0 || json_object_size(tasks) > ROUTING_TASKS_MAX)
        ok = err_set(err, ERR_REJECT, "routing %s: experts.prompt.counts holds no 1 to %d tasks",
                     path, ROUTING_TASKS_MAX);
    json_object_foreach(tasks, name, layers)
    {
        if (ok && !read_task(routing, routing->tasks++, layers))
            ok = err_set(err, ERR_REJECT,
                         "routing %s: experts.prompt.counts.%s is no table of counts", path, name);
    }
    json_decref(root);
    return ok;
}

/* Share of every task's tokens that each rank gets under a plan. */
static void place(struct routing_batch *batch)
{
    const struct routing_placement *placement = &batch->placement;
    const struct routing *routing = batch->routing;

    memset(batch->rank_share, 0, sizeof batch->rank_share);
    for (uint32_t p = 0; p < routing->replicas; p++) {
        uint32_t expert = placement->expert[p];
        for (uint32_t task = 0; task < routing->tasks; task++)
            batch->rank_share[task][placement->rank[p]] +=
                (double)routing->share[task][expert] / placement->count[expert];
    }
}

static double expected_imbalance(const struct routing_batch *batch)
{
    const struct routing *routing = batch->routing;
    double busiest = 0;

    if (batch->total == 0)
        return 1;
    for (uint32_t rank = 0; rank < routing->ranks; rank++) {
        double load = 0;
        for (uint32_t task = 0; task < routing->tasks; task++)
            load += batch->rows[task] * batch->rank_share[task][rank];
        busiest = fmax(busiest, load);
    }
    return fmax(1, busiest * routing->ranks / batch->total);
}

static struct eplb_shape shape_of(const struct routing *routing)
{
    return (struct eplb_shape){.n_experts = routing->experts,
                               .n_replicas = routing->replicas,
                               .n_groups = 1,
                               .n_nodes = 1,
                               .n_gpus = routing->ranks};
}

static struct eplb_plan plan_in(struct routing_placement *placement)
{
    return (struct eplb_plan){placement->expert, placement->rank, placement->count};
}

static bool plan_for(const struct routing *routing, const double *load,
                     struct routing_placement *placement, struct err *err)
{
    const struct eplb_shape shape = shape_of(routing);
    struct eplb_plan plan = plan_in(placement);

    CHECK(routing->replicas <= 2 * ROUTING_EXPERTS_MAX && routing->ranks <= ROUTING_RANKS_MAX);
    return eplb_plan(&shape, load, &plan, err);
}

bool routing_batch_init(struct routing_batch *batch, const struct routing *routing, struct err *err)
{
    const double even[ROUTING_EXPERTS_MAX] = {0};

    *batch = (struct routing_batch){.routing = routing, .imbalance = 1};
    if (!plan_for(routing, even, &batch->placement, err))
        return false;
    place(batch);
    return true;
}

void routing_batch_add(struct routing_batch *batch, uint32_t task, int sequences)
{
    CHECK(sequences >= 0 || batch->rows[task] >= (uint32_t)-sequences);
    batch->rows[task] += (uint32_t)sequences;
    batch->total += (uint32_t)sequences;
    batch->imbalance = expected_imbalance(batch);
}

void routing_batch_mix(struct routing_batch *batch, uint32_t sequences)
{
    uint32_t each = sequences / batch->routing->tasks + 1;

    batch->total = 0;
    for (uint32_t task = 0; task < batch->routing->tasks; task++) {
        batch->rows[task] = each;
        batch->total += each;
    }
    batch->imbalance = expected_imbalance(batch);
}

double routing_batch_imbalance(const struct routing_batch *batch, uint32_t rows)
{
    const struct routing *routing = batch->routing;
    double mean = (double)rows * routing->top_k / routing->ranks;

    if (rows == 0 || routing->ranks == 1)
        return 1;
    double busiest = mean * batch->imbalance;
    return (busiest + sqrt(2 * busiest * log(routing->ranks))) / mean;
}

void routing_batch_observe(struct routing_batch *batch, double steps)
{
    const struct routing *routing = batch->routing;

    for (uint32_t task = 0; task < routing->tasks; task++)
        for (uint32_t e = 0; batch->rows[task] > 0 && e < routing->experts; e++)
            batch->seen[e] += steps * batch->rows[task] * (double)routing->share[task][e];
}

/* What was seen becomes a value of each expert's series; the forecasts made before are judged by
 * it. An interval without work says nothing. */
static void learn(struct routing_batch *batch)
{
    const struct predict_params *predictor = &batch->routing->predictor;
    const uint32_t experts = batch->routing->experts;
    double sum = 0, off = 0;

    for (uint32_t e = 0; e < experts; e++)
        sum += batch->seen[e];
    if (sum <= 0)
        return;
    batch->forecasts += batch->series[0].count > 0;
    for (uint32_t e = 0; e < experts; e++) {
        struct predict_series *series = &batch->series[e];
        double share = batch->seen[e] / sum;
        if (series->count > 0)
            off += fabs(predict_series_forecast(predictor, series, 1) - share);
        predict_series_observe(predictor, series, share);
    }
    batch->forecast_off += off;
}

/* The loads to plan for, in place of what was seen. */
static void forecast_loads(struct routing_batch *batch)
{
    for (uint32_t e = 0; e < batch->routing->experts; e++)
        batch->seen[e] =
            fmax(0, predict_series_forecast(&batch->routing->predictor, &batch->series[e], 1));
}

static bool replan(struct routing_batch *batch, double gain_min, double *gain, struct err *err)
{
    const struct eplb_shape shape = shape_of(batch->routing);
    const bool constant = batch->routing->predictor.kind == PREDICT_CONSTANT;
    struct routing_batch before = *batch;
    struct eplb_plan was = plan_in(&before.placement), is = plan_in(&batch->placement);

    if (!constant)
        forecast_loads(batch);
    if (!plan_for(batch->routing, batch->seen, &batch->placement, err))
        return false;
    place(batch);
    batch->imbalance = expected_imbalance(batch);
    *gain = constant ? before.imbalance / batch->imbalance
                     : eplb_imbalance(&shape, batch->seen, &was) /
                           eplb_imbalance(&shape, batch->seen, &is);
    if (*gain < gain_min) {
        batch->placement = before.placement;
        memcpy(batch->rank_share, before.rank_share, sizeof batch->rank_share);
        batch->imbalance = before.imbalance;
    }
    return true;
}

bool routing_batch_replan(struct routing_batch *batch, double gain_min, double *gain,
                          struct err *err)
{
    bool even = batch->routing->predictor.kind == PREDICT_CONSTANT && batch->imbalance < gain_min;
    bool ok;

    *gain = 1;
    learn(batch);
    /* No placement gains more than what is uneven now. */
    ok = even || replan(batch, gain_min, gain, err);
    memset(batch->seen, 0, sizeof batch->seen);
    return ok;
}
