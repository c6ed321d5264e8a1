/* SPDX-License-Identifier: Apache-2.0
 *
 * routing - which experts the simulated requests use, and how uneven that is.
 *
 * Requests belong to tasks, and a task has a profile: the share of its tokens
 * that each expert gets. Profiles are drawn once from a seed as a Zipf law over
 * a permutation of the experts of its own (skewed routing), or read from a
 * measured table (recorded routing; ops/demo/model/report.json holds one). A
 * node keeps the summed profile of its batch; its imbalance is the busiest
 * rank's expected load over the mean under the node's expert placement, which
 * EPLB re-plans from the loads that a predictor expects of the next interval.
 * With the constant predictor these are the loads measured last.
 *
 * Finite batches are less even than their expectation: for a rank with m
 * expected tokens of n ranks the busiest has about m + sqrt(2 m ln n).
 */
#ifndef SCHEDULER_SIM_ROUTING_H
#define SCHEDULER_SIM_ROUTING_H

#include <stdint.h>

#include "common/err.h"
#include "scheduler/eplb.h"
#include "scheduler/predict.h"

enum { ROUTING_TASKS_MAX = 16, ROUTING_EXPERTS_MAX = 256, ROUTING_RANKS_MAX = 16 };

struct routing {
    uint32_t tasks;
    uint32_t experts;
    uint32_t ranks;    /* of one node */
    uint32_t replicas; /* places on the ranks together, at least experts */
    uint32_t top_k;
    struct predict_params predictor;                     /* of the experts' loads; not the lstm */
    float share[ROUTING_TASKS_MAX][ROUTING_EXPERTS_MAX]; /* each task's shares add up to 1 */
};

/* exponent 0 is even routing; the demo model's tasks measure like 0.5 to 0.8. */
void routing_skewed(struct routing *routing, double exponent, uint64_t seed);
/* report.json of the demo model: prompt counts by task, summed over layers. REJECT names file and
 * key. */
bool routing_read(struct routing *routing, const char *path, struct err *err);

/* Where the experts stand, as struct eplb_plan. */
struct routing_placement {
    uint32_t expert[2 * ROUTING_EXPERTS_MAX], rank[2 * ROUTING_EXPERTS_MAX];
    uint32_t count[ROUTING_EXPERTS_MAX];
};

/* The batch of one node, by expert and by rank. */
struct routing_batch {
    const struct routing *routing;
    uint32_t rows[ROUTING_TASKS_MAX]; /* sequences by task */
    uint32_t total;
    double rank_share[ROUTING_TASKS_MAX][ROUTING_RANKS_MAX]; /* under the placement */
    double seen[ROUTING_EXPERTS_MAX];                        /* load since the last plan */
    double imbalance; /* of the expected loads; 1 when empty */
    struct routing_placement placement;
    struct predict_series series[ROUTING_EXPERTS_MAX]; /* shares of the load, by interval */
    double forecast_off; /* summed over forecasts: |said - came| over all experts' shares */
    uint64_t forecasts;
};

/* Even spread over the ranks at first, as an unreplicated placement in index order. */
bool routing_batch_init(struct routing_batch *batch, const struct routing *routing,
                        struct err *err);
void routing_batch_add(struct routing_batch *batch, uint32_t task, int sequences);
/* The batch becomes an even mix of all tasks, of about that many sequences. */
void routing_batch_mix(struct routing_batch *batch, uint32_t sequences);
/* Busiest rank over mean for a step of that many rows, sampling noise included; at least 1. */
double routing_batch_imbalance(const struct routing_batch *batch, uint32_t rows);
/* Account the current batch's load for that many steps. */
void routing_batch_observe(struct routing_batch *batch, double steps);
/* Re-plan for what the predictor makes of the loads observed until now. *gain: imbalance before
 * over after, of the batch as it is where the predictor is constant, else of the loads forecast.
 * The plan is taken over when the gain is at least gain_min (a move costs weight traffic). */
bool routing_batch_replan(struct routing_batch *batch, double gain_min, double *gain,
                          struct err *err);

#endif
