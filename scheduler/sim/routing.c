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
static void place(struct routing_batch *batch, const struct eplb_plan *plan)
{
    const struct routing *routing = batch->routing;

    memset(batch->rank_share, 0, sizeof batch->rank_share);
    for (uint32_t p = 0; p < routing->replicas; p++) {
        uint32_t expert = plan->replica_expert[p];
        for (uint32_t task = 0; task < routing->tasks; task++)
            batch->rank_share[task][plan->replica_gpu[p]] +=
                (double)routing->share[task][expert] / plan->expert_count[expert];
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

struct plan_memory {
    uint32_t expert[2 * ROUTING_EXPERTS_MAX], gpu[2 * ROUTING_EXPERTS_MAX];
    uint32_t count[ROUTING_EXPERTS_MAX];
};

static bool plan_for(const struct routing *routing, const double *load, struct plan_memory *memory,
                     struct eplb_plan *plan, struct err *err)
{
    const struct eplb_shape shape = {.n_experts = routing->experts,
                                     .n_replicas = routing->replicas,
                                     .n_groups = 1,
                                     .n_nodes = 1,
                                     .n_gpus = routing->ranks};

    CHECK(routing->replicas <= 2 * ROUTING_EXPERTS_MAX && routing->ranks <= ROUTING_RANKS_MAX);
    *plan = (struct eplb_plan){memory->expert, memory->gpu, memory->count};
    return eplb_plan(&shape, load, plan, err);
}

bool routing_batch_init(struct routing_batch *batch, const struct routing *routing, struct err *err)
{
    const double even[ROUTING_EXPERTS_MAX] = {0};
    struct plan_memory memory;
    struct eplb_plan plan;

    *batch = (struct routing_batch){.routing = routing, .imbalance = 1};
    if (!plan_for(routing, even, &memory, &plan, err))
        return false;
    place(batch, &plan);
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

bool routing_batch_replan(struct routing_batch *batch, double gain_min, double *gain,
                          struct err *err)
{
    struct routing_batch before = *batch;
    struct plan_memory memory;
    struct eplb_plan plan;

    *gain = 1;
    /* No placement gains more than what is uneven now. */
    if (batch->imbalance < gain_min) {
        memset(batch->seen, 0, sizeof batch->seen);
        return true;
    }
    if (!plan_for(batch->routing, batch->seen, &memory, &plan, err))
        return false;
    memset(batch->seen, 0, sizeof batch->seen);
    place(batch, &plan);
    batch->imbalance = expected_imbalance(batch);
    *gain = before.imbalance / batch->imbalance;
    if (*gain < gain_min) {
        memcpy(batch->rank_share, before.rank_share, sizeof batch->rank_share);
        batch->imbalance = before.imbalance;
    }
    return true;
}
