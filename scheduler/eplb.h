/* SPDX-License-Identifier: Apache-2.0
 *
 * eplb - which ranks hold which experts: replicate the hot, pack by weight.
 *
 * Each layer has n_experts logical experts with a measured load and n_replicas
 * physical places on n_gpus ranks. First the experts with the highest load per
 * replica get the spare places one by one; then the replicas are packed onto
 * ranks, the heaviest first, each to the lightest rank that has room.
 *
 * The hierarchical form packs expert groups onto nodes first, so that a token
 * that is limited to few groups leaves its node rarely; the global form treats
 * the whole machine as one node and balances better where crossing is cheap.
 *
 * Source: DeepSeek EPLB (deepseek-ai/EPLB, eplb.py), whose published example
 * is tests/unit/test_eplb.c's golden value. Different here: n_replicas need not
 * divide by n_gpus (ranks then differ by one place), ties go to the lower index
 * everywhere, and a layer without load gets an even spread.
 *
 * Pure functions; the caller owns all arrays.
 */
#ifndef SCHEDULER_EPLB_H
#define SCHEDULER_EPLB_H

#include <stdint.h>

#include "common/err.h"

struct eplb_shape {
    uint32_t n_experts;  /* at least 1 */
    uint32_t n_replicas; /* at least n_experts */
    uint32_t n_groups;   /* expert groups of the gate; divides n_experts */
    uint32_t n_nodes;    /* divides n_gpus and n_replicas */
    uint32_t n_gpus;     /* ranks; each gets n_replicas / n_gpus places, some one more */
};

struct eplb_plan {
    uint32_t *replica_expert; /* (n_replicas): the logical expert at each place */
    uint32_t *replica_gpu;    /* (n_replicas): the rank of each place, non-decreasing */
    uint32_t *expert_count;   /* (n_experts): replicas of each expert, at least 1 */
};

/* Can groups be packed onto nodes as they are? Otherwise use the global form. */
bool eplb_hierarchical_fits(const struct eplb_shape *shape);

/* load: (n_experts), not negative. Hierarchical where the shape allows it, global otherwise or
 * when n_nodes is 1. REJECT when the shape breaks a rule above. */
bool eplb_plan(const struct eplb_shape *shape, const double *load, struct eplb_plan *plan,
               struct err *err);

/* Busiest rank's load over the mean, when each expert's load is spread over its replicas evenly;
 * 1 for no load. */
double eplb_imbalance(const struct eplb_shape *shape, const double *load,
                      const struct eplb_plan *plan);

#endif
