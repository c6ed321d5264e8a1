/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/eplb.h"

#include <stdlib.h>
#include <string.h>

#include "common/check.h"

/* Items to be packed: index into the caller's arrays, sorted by weight. */
struct item {
    double weight;
    uint32_t index;
};

struct pack {
    double weight;
    uint32_t count;
    uint32_t room;
};

static int heavier_first(const void *a, const void *b)
{
    const struct item *x = a, *y = b;

    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* The lightest pack that has room; the lower index wins a tie. */
static uint32_t lightest(const struct pack *packs, uint32_t n_packs)
{
    uint32_t best = n_packs;

    for (uint32_t p = 0; p < n_packs; p++)
        if (packs[p].count < packs[p].room &&
            (best == n_packs || packs[p].weight < packs[best].weight))
            best = p;
    CHECK(best < n_packs);
    return best;
}

/* out: for each item its pack and its place there. Packs take n_items / n_packs items, the first
 * n_items % n_packs of them one more. scratch: (n_items) items, (n_packs) packs. */
static void pack_balanced(const double *weight, uint32_t n_items, uint32_t n_packs,
                          uint32_t *item_pack, uint32_t *item_place, struct item *items,
                          struct pack *packs)
{
    for (uint32_t i = 0; i < n_items; i++)
        items[i] = (struct item){weight[i], i};
    qsort(items, n_items, sizeof *items, heavier_first);
    for (uint32_t p = 0; p < n_packs; p++)
        packs[p] = (struct pack){.room = n_items / n_packs + (p < n_items % n_packs)};

    for (uint32_t i = 0; i < n_items; i++) {
        uint32_t p = lightest(packs, n_packs);
        item_pack[items[i].index] = p;
        item_place[items[i].index] = packs[p].count++;
        packs[p].weight += items[i].weight;
    }
}

/* The first n_items places hold each item once; every further place goes to the item with the
 * highest load per replica. Without any load that is the one with the fewest replicas. */
static void replicate(const double *load, uint32_t n_items, uint32_t n_places, uint32_t *place_item,
                      uint32_t *item_count)
{
    for (uint32_t i = 0; i < n_items; i++) {
        place_item[i] = i;
        item_count[i] = 1;
    }
    for (uint32_t place = n_items; place < n_places; place++) {
        uint32_t best = 0;
        for (uint32_t i = 1; i < n_items; i++) {
            double a = load[i] / item_count[i], b = load[best] / item_count[best];
            if (a > b || (a == b && item_count[i] < item_count[best]))
                best = i;
        }
        place_item[place] = best;
        item_count[best]++;
    }
}

bool eplb_hierarchical_fits(const struct eplb_shape *shape)
{
    return shape->n_nodes > 1 && shape->n_groups % shape->n_nodes == 0;
}

static bool shape_check(const struct eplb_shape *shape, struct err *err)
{
    if (shape->n_experts == 0 || shape->n_gpus == 0 || shape->n_nodes == 0 || shape->n_groups == 0)
        return err_set(err, ERR_REJECT,
                       "expert plan: experts, groups, nodes and ranks are at least 1");
    if (shape->n_replicas < shape->n_experts)
        return err_set(err, ERR_REJECT, "expert plan: %u places cannot hold %u experts",
                       shape->n_replicas, shape->n_experts);
    if (shape->n_replicas < shape->n_gpus)
        return err_set(err, ERR_REJECT, "expert plan: %u places leave some of %u ranks empty",
                       shape->n_replicas, shape->n_gpus);
    if (shape->n_experts % shape->n_groups != 0)
        return err_set(err, ERR_REJECT, "expert plan: %u experts do not divide into %u groups",
                       shape->n_experts, shape->n_groups);
    if (shape->n_gpus % shape->n_nodes != 0 || shape->n_replicas % shape->n_nodes != 0)
        return err_set(err, ERR_REJECT,
                       "expert plan: %u ranks and %u places must divide by %u nodes", shape->n_gpus,
                       shape->n_replicas, shape->n_nodes);
    return true;
}

struct work {
    uint32_t *node_expert; /* (n_experts): experts in the order of their nodes */
    double *load;          /* (n_experts): their load in that order */
    double *place_load;    /* (n_replicas) */
    uint32_t *place_item;  /* (n_replicas) */
    uint32_t *count;       /* (n_experts) */
    uint32_t *pack;        /* (n_replicas) */
    uint32_t *place;       /* (n_replicas) */
    struct item *items;    /* (n_replicas) */
    struct pack *packs;    /* (n_gpus) */
    uint32_t *gpu_first;   /* (n_gpus + 1) */
};

static bool work_alloc(struct work *work, const struct eplb_shape *shape, struct err *err)
{
    size_t e = shape->n_experts, r = shape->n_replicas, g = shape->n_gpus;

    *work = (struct work){
        .node_expert = calloc(e, sizeof *work->node_expert),
        .load = calloc(e, sizeof *work->load),
        .place_load = calloc(r, sizeof *work->place_load),
        .place_item = calloc(r, sizeof *work->place_item),
        .count = calloc(e, sizeof *work->count),
        .pack = calloc(r, sizeof *work->pack),
        .place = calloc(r, sizeof *work->place),
        .items = calloc(r, sizeof *work->items),
        .packs = calloc(g, sizeof *work->packs),
        .gpu_first = calloc(g + 1, sizeof *work->gpu_first),
    };
    return (work->node_expert && work->load && work->place_load && work->place_item &&
            work->count && work->pack && work->place && work->items && work->packs &&
            work->gpu_first) ||
           err_set(err, ERR_RETRY, "expert plan: out of memory");
}

static void work_free(struct work *work)
{
    free(work->node_expert);
    free(work->load);
    free(work->place_load);
    free(work->place_item);
    free(work->count);
    free(work->pack);
    free(work->place);
    free(work->items);
    free(work->packs);
    free(work->gpu_first);
}

/* Step 1: groups to nodes. Fills node_expert and load. */
static void groups_to_nodes(const struct eplb_shape *shape, const double *load, uint32_t n_nodes,
                            struct work *work)
{
    const uint32_t group_size = shape->n_experts / shape->n_groups;
    const uint32_t groups_per_node = shape->n_groups / n_nodes;

    for (uint32_t g = 0; g < shape->n_groups; g++) {
        work->place_load[g] = 0;
        for (uint32_t i = 0; i < group_size; i++)
            work->place_load[g] += load[g * group_size + i];
    }
    pack_balanced(work->place_load, shape->n_groups, n_nodes, work->pack, work->place, work->items,
                  work->packs);
    for (uint32_t g = 0; g < shape->n_groups; g++) {
        uint32_t first = (work->pack[g] * groups_per_node + work->place[g]) * group_size;
        for (uint32_t i = 0; i < group_size; i++) {
            work->node_expert[first + i] = g * group_size + i;
            work->load[first + i] = load[g * group_size + i];
        }
    }
}

/* Steps 2 and 3 within one node: replicate its experts, then replicas to its ranks. */
static void plan_node(const struct eplb_shape *shape, uint32_t n_nodes, uint32_t node,
                      struct work *work, struct eplb_plan *plan)
{
    const uint32_t n_items = shape->n_experts / n_nodes, n_places = shape->n_replicas / n_nodes;
    const uint32_t n_gpus = shape->n_gpus / n_nodes;
    const double *load = work->load + (size_t)node * n_items;
    const uint32_t *expert = work->node_expert + (size_t)node * n_items;

    replicate(load, n_items, n_places, work->place_item, work->count);
    for (uint32_t p = 0; p < n_places; p++)
        work->place_load[p] = load[work->place_item[p]] / work->count[work->place_item[p]];
    pack_balanced(work->place_load, n_places, n_gpus, work->pack, work->place, work->items,
                  work->packs);

    work->gpu_first[0] = node * n_places;
    for (uint32_t g = 0; g < n_gpus; g++)
        work->gpu_first[g + 1] = work->gpu_first[g] + work->packs[g].room;
    for (uint32_t p = 0; p < n_places; p++) {
        uint32_t at = work->gpu_first[work->pack[p]] + work->place[p];
        plan->replica_expert[at] = expert[work->place_item[p]];
        plan->replica_gpu[at] = node * n_gpus + work->pack[p];
    }
    for (uint32_t i = 0; i < n_items; i++)
        plan->expert_count[expert[i]] = work->count[i];
}

bool eplb_plan(const struct eplb_shape *shape, const double *load, struct eplb_plan *plan,
               struct err *err)
{
    struct work work;
    bool ok = false;

    if (!shape_check(shape, err))
        return false;
    if (!work_alloc(&work, shape, err))
        goto out;
    if (eplb_hierarchical_fits(shape)) {
        groups_to_nodes(shape, load, shape->n_nodes, &work);
        for (uint32_t node = 0; node < shape->n_nodes; node++)
            plan_node(shape, shape->n_nodes, node, &work, plan);
    } else {
        for (uint32_t e = 0; e < shape->n_experts; e++) {
            work.node_expert[e] = e;
            work.load[e] = load[e];
        }
        plan_node(shape, 1, 0, &work, plan);
    }
    ok = true;
out:
    work_free(&work);
    return ok;
}

double eplb_imbalance(const struct eplb_shape *shape, const double *load,
                      const struct eplb_plan *plan)
{
    double total = 0, busiest = 0, rank = 0;

    for (uint32_t p = 0; p < shape->n_replicas; p++) {
        if (p > 0 && plan->replica_gpu[p] != plan->replica_gpu[p - 1])
            rank = 0;
        rank += load[plan->replica_expert[p]] / plan->expert_count[plan->replica_expert[p]];
        busiest = rank > busiest ? rank : busiest;
    }
    for (uint32_t e = 0; e < shape->n_experts; e++)
        total += load[e];
    return total > 0 ? busiest * shape->n_gpus / total : 1;
}
