/* SPDX-License-Identifier: Apache-2.0
 *
 * node - one simulated worker: continuous batching, step by step.
 *
 * It does what worker/engine.c does, with a step model in place of arithmetic:
 * admits what it was assigned while its batch size and KV memory allow, cuts
 * prompts into chunks, gives every decoding sequence one token a step, and
 * preempts the youngest (recompute later) when the KV memory runs out. Prompts whose blocks are
 * known share memory and computed blocks (block_cache.h); of others, cached_share is taken off.
 *
 * classic: the static batching of the published comparison instead. A batch
 * is filled once, runs until its longest answer ends, and ends together.
 *
 * A step costs O(1) beside what starts and ends in it: decoding sequences
 * stand in a heap by the step that ends them. Times are microseconds.
 */
#ifndef SCHEDULER_SIM_NODE_H
#define SCHEDULER_SIM_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "scheduler/sim/block_cache.h"
#include "scheduler/sim/routing.h"
#include "scheduler/sim/step_model.h"

struct node_config {
    const struct step_model *model;
    const struct routing *routing;
    bool classic;
    double cached_share;   /* of a prompt without blocks: not computed, but kept */
    uint32_t blocks_limit; /* of the blocks' ids */
    uint32_t block_tokens;
    uint8_t *everywhere;   /* of struct block_cache; shared by all nodes */
    double step_us_target; /* of a step; load 1 is a node whose rows take exactly this long */
    double load_smoothing; /* weight of the newest step in the EWMA of load */
};

struct node_sequence {
    uint32_t request; /* the caller's index */
    uint32_t prompt; /* tokens to prefill: the prompt, after a preemption with what was generated */
    uint32_t output; /* tokens still to make */
    uint32_t task;
    struct blocks blocks; /* of the request's prompt; stays what it is after a preemption */
    uint32_t prefilled;
    uint32_t cached;   /* tokens of the prompt that it found computed, before any preemption */
    bool again;        /* was preempted */
    uint64_t end_step; /* while decoding: its last token comes with this step */
    bool urgent;       /* begins before queued ones that are not */
    bool first_token;  /* has had it */
};

struct node_list {
    struct node_sequence *items;
    uint32_t count;
    uint32_t capacity;
    uint32_t head; /* of a queue; 0 in a heap */
};

struct node {
    struct node_config config;
    struct routing_batch batch;
    struct node_list queue;    /* assigned, not started */
    struct node_list filling;  /* running, prompt not yet read whole */
    struct node_list decoding; /* heap by end_step */
    struct block_cache cache;
    struct node_list parked; /* classic: at their end, rows of padding until the batch is */
    uint32_t batch_size;
    uint32_t urgent_running; /* they count their own kind alone against it */
    uint64_t step;           /* steps done */
    uint64_t kv_used;        /* tokens of memory that running sequences hold */
    uint64_t kv_context;     /* their contexts, added up: more where they share blocks */
    uint64_t kv_parked;      /* of these, of parked ones */
    struct step_shape shape; /* of the step under way */
    bool stepping;
    double load;
    double step_us; /* EWMA */
    int64_t busy_us;
    double work_us; /* of that, what the work needs at least (step_model_work_us()) */
    uint64_t prefill_tokens, decode_tokens, preemptions, rows_total;
};

/* What happened in a step, by request. */
struct node_outcome {
    uint32_t *first; /* got their first token */
    uint32_t first_count;
    uint32_t *ended;
    uint32_t *ended_cached; /* (ended_count) tokens of the prompt that were not computed */
    uint32_t ended_count;
    uint32_t capacity; /* of each array */
};

bool node_init(struct node *node, const struct node_config *config, uint32_t batch_size,
               struct err *err);
void node_free(struct node *node);

bool node_assign(struct node *node, const struct node_sequence *sequence, struct err *err);

/* Requests held: queued and running. */
uint32_t node_held(const struct node *node);

/* Begin a step when there is anything to do; *us: how long it takes. */
bool node_begin(struct node *node, double *us);
/* End it. outcome is overwritten; its arrays grow as needed and are the caller's. */
bool node_end(struct node *node, double us, struct node_outcome *outcome, struct err *err);
void node_outcome_free(struct node_outcome *outcome);

#endif
