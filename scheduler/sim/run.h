/* SPDX-License-Identifier: Apache-2.0
 *
 * run - one simulated run of a trace: the real scheduler core, simulated workers.
 *
 * Discrete events on a virtual clock: arrivals, scheduler ticks, heartbeats,
 * step ends, re-planning of expert placement, planner decisions. The core is
 * the one of pelton-scheduler and gets the events its shell would make of
 * Kafka messages; its assignments and renewals act on the nodes at the tick
 * that carries them. Every transaction commits: what aborts and takeovers do
 * is tests/sim's subject, not this program's.
 *
 * Interactive requests come on a topic of their own, which a core without room
 * pauses together with the other.
 *
 * What a request is to the core: a body as long as four bytes a prompt token,
 * and as max_tokens the power of two that holds its answer, since users guess.
 * Where the trace names the blocks of prompts, each block's text begins with its
 * id, so that the core sees which requests begin alike as it does in real bodies.
 */
#ifndef SCHEDULER_SIM_RUN_H
#define SCHEDULER_SIM_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "scheduler/batch_size.h"
#include "scheduler/capacity.h"
#include "scheduler/jobs.h"
#include "scheduler/sim/routing.h"
#include "scheduler/sim/step_model.h"
#include "scheduler/sim/trace.h"

/* Prefix caches of the nodes; all but off need a trace that names its blocks. */
enum run_caches {
    RUN_CACHES_OFF,    /* cached_share is taken off every prompt */
    RUN_CACHES_NODE,   /* each node has its own, in its KV memory */
    RUN_CACHES_SHARED, /* and one without bounds for all, as the ceiling */
};

struct run_config {
    const struct step_model *model;
    const struct routing *routing;
    struct batch_policy policy;
    bool classic; /* static batching that starts and ends together; policy is STATIC */
    uint32_t nodes;
    /* Of the prompts, 0 to below 1: taken off each where caches are off, and what a node's speed is
     * reckoned with. */
    double cached_share;
    enum run_caches caches;
    double prefix_affinity_weight; /* of struct scheduler_config; 0 where caches are off */
    double kv_share;               /* of struct scheduler_config */
    uint32_t assign_ahead_percent, long_request_tokens, long_share_percent; /* the same */
    int64_t tick_us;
    int64_t heartbeat_us;
    double step_us_target; /* load 1, and what an output token may take */
    int64_t balance_us;    /* load_balance_interval of the expert placement; 0: never re-planned */
    double balance_gain_min;
    /* Scaling: nodes come and go by the planner's word. Otherwise all run all the time. */
    bool scale;
    struct capacity_config capacity; /* of the planner, as pelton-scheduler has it */
    int64_t node_start_us;           /* from the decision to the first step */
    int64_t horizon_us;              /* stop here, done or not; 0: never */
    /* A request is late when it takes longer than late_base_us + late_token_us * its output tokens.
     * The run is given up once more than late_share of all requests are; 0: never. */
    int64_t late_base_us, late_token_us;
    double late_share;
    int64_t limit_first_us; /* a request is in time with this and step_us_target for each token */
    double interactive;     /* share of the requests that are of that class; the rest is bulk */
    uint32_t split_tokens;  /* estimated; from here on a request is among the long ones of the
                               result. 0: it has none */
    /* A request's task is drawn by weights exp(task_drift * cos()) that go round the tasks once a
     * period of arrival times; 0: all alike. */
    double task_drift;
    int64_t task_period_us; /* above 0 where there is drift */
    uint64_t seed;          /* of the requests' tasks and classes */
    bool progress; /* a line on standard error that is overwritten, for who waits at a terminal */
};

enum { RUN_HOURS_MAX = 48 };

/* By hour of the virtual day. */
struct run_hour {
    uint64_t prompt_tokens; /* arrived */
    uint64_t output_tokens; /* made */
    double node_hours;
    double busy_hours;
};

struct run_result {
    uint64_t requests;
    uint64_t unfinished;                   /* at the horizon; their times are infinite */
    uint64_t late;                         /* unfinished ones included */
    uint64_t in_time;                      /* limit_first and step_us_target for each token */
    bool given_up;                         /* before the horizon, see late_share */
    uint64_t prompt_tokens, output_tokens; /* of the finished ones */
    double cached_share;                   /* of their prompt tokens, not computed */
    double cached_share_expected;          /* by the core when it assigned them */
    uint64_t affinity_assignments;
    double duration_s; /* first arrival to last result, or the horizon */
    double node_hours;
    double busy_hours; /* with a step under way; a node that decodes one sequence is busy, too */
    uint64_t steps;
    /* The least node time that all work of the steps could have taken (step_model_work_us()) over
     * the node-hours: at most the busy share, and so 1. */
    double utilisation;
    double latency_mean_s;
    float *latency_s; /* (requests), arrival to result, sorted */
    float *first_s;   /* (requests), arrival to first token, sorted */
    float *token_ms;  /* (requests), time per output token after the first, sorted */
    /* The same by class, where there are interactive ones, and by length, where that is asked for.
     */
    struct run_part {
        uint64_t requests, in_time;
        float *latency_s, *first_s; /* (requests), sorted */
    } classes[CLASS_COUNT], lengths[LENGTH_COUNT];
    uint32_t nodes_min, nodes_max;
    uint64_t preemptions;
    double imbalance; /* mean over steps */
    uint32_t replans;
    /* Of the experts' loads, an interval ahead: mean of |said - came| over the mean of what came.
     */
    double expert_forecast_error;
    struct run_hour hours[RUN_HOURS_MAX];
    uint32_t hours_count;
};

bool run_trace(const struct run_config *config, const struct trace *trace,
               struct run_result *result, struct err *err);
void run_result_free(struct run_result *result);

/* The best rate (output tokens/s) of a node whose step still meets the target, with contexts as
 * long as the trace's. */
double run_node_speed(const struct run_config *config, const struct trace *trace);

/* q in [0, 1] of a sorted array, nearest rank. */
double run_quantile(const float *sorted, uint64_t count, double q);

#endif
