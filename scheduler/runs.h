/* SPDX-License-Identifier: Apache-2.0
 *
 * runs - what the scheduler knows of its workers: one run for each incarnation, by slot.
 *
 * A slot has at most one current run; runs that a newer Hello replaced stay beside it until their
 * lease is over, because what they report counts as long as their requests are theirs.
 *
 * The lease is counted here from when a heartbeat was seen, by the scheduler's clock. The worker
 * counts it from when that heartbeat was sent, which is earlier: it stops before it is given up,
 * whatever the two clocks show. The margin covers clocks that run at different speeds.
 */
#ifndef SCHEDULER_RUNS_H
#define SCHEDULER_RUNS_H

#include "scheduler/batch_size.h"
#include "scheduler/jobs.h"
#include "scheduler/long_share.h"
#include "scheduler/predict.h"

enum run_state {
    RUN_PRESUMED, /* known from state, not heard of since the takeover */
    RUN_ALIVE,
    RUN_EXPIRED, /* lease over; its events are still to be read to the end */
    RUN_READING, /* ACTION_READ_EVENTS is on its way */
    RUN_DEAD,    /* its requests are given away; a heartbeat brings it back */
};

struct run {
    struct hello hello; /* its strings are this struct's own; all empty where only an InFlight
                           entry told of this run */
    struct model *model;
    enum run_state state;
    bool superseded; /* a newer Hello came into its slot */
    bool draining;   /* as it says: it takes nothing new */
    int64_t seen_ms; /* last heartbeat or Hello, by our clock */
    bool renewal_due;
    int64_t heartbeat_seq;     /* newest seen */
    int64_t heartbeat_sent_ms; /* the same by the worker's clock */
    int64_t worker_time_to_ms; /* WorkerTime is written up to here, worker's clock */
    int64_t worker_time_ms;    /* when it was last written, our clock */
    double load;
    struct predict_series load_series; /* of the same, by heartbeat */
    double imbalance, experts_used;
    uint64_t kv_tokens_used; /* as the worker reports them */
    /* Prompts given to it since the last heartbeat but one, and since the last one: what was under
     * way when the worker counted is in neither of its reports, so it counts for two. */
    uint64_t kv_tokens_new, kv_tokens_newer;
    int64_t step_us;
    int64_t steps, decode_tokens, busy_us; /* its totals, as last reported */
    struct batch_size batch;
    uint32_t batch_limit;    /* sequences it may run now */
    uint32_t batch_most;     /* and at most, by batch_size_most(); 0: nothing known yet */
    struct job_list jobs;    /* RUNNING here */
    uint64_t kv_tokens;      /* estimated need of its jobs */
    uint64_t prefill_work;   /* balance_prefill_work() of those that have not begun to answer */
    double fill;             /* balance_fill() of this tick */
    double cache_trust;      /* 0 to 1: what it had of what it was to have, lately */
    uint32_t heap_at;        /* its place in scheduler->by_fill while jobs are assigned */
    uint64_t realm;          /* of its keys in the table of profiles: model and revision */
    uint32_t *expert_totals; /* (expert_cells) sum of its jobs' profiles, and of expert_recent;
                                NULL: none yet */
    uint32_t *expert_recent; /* (expert_cells) of the last few assigned */
    uint32_t expert_cells;
    uint32_t held[CLASS_COUNT][LENGTH_COUNT]; /* of its jobs */
    struct long_share long_shares[CLASS_COUNT];
    struct long_prompts long_prompts[CLASS_COUNT]; /* not read yet */
    struct long_pace pace;
    struct job *reserved_for; /* a request that may only run alone; nothing else is given to it */
    uint32_t turn;            /* alternates between its groups of queues */
    uint64_t numerics;        /* hash of numerics id, precision and revision; 0 unknown */
    struct run *next;         /* in its slot, newest first */
};

struct slot {
    struct run *runs;
    int64_t stored;      /* worker-events: next offset that state names; -1 none */
    int64_t read;        /* next offset to read; -1 nothing read yet */
    bool reading_to_end; /* an ACTION_READ_EVENTS is not answered yet */
};

/* A new run at the head of its slot; hello is copied. */
struct run *run_open(struct slot *slot, const struct hello *hello);
/* Unlinks and frees it; it must have no jobs. */
void run_close(struct slot *slot, struct run *run);
struct run *slot_find(const struct slot *slot, const struct request_id *incarnation);
struct run *slot_current(const struct slot *slot); /* NULL: none */
/* Next offset of worker-events[slot], or -1. */
int64_t slot_next_offset(const struct slot *slot);

/* What is added to the lease before a run is given up. */
int64_t lease_margin_ms(int64_t lease_ms);

/* May it get requests of this model now? Alive, not draining, and of a role that finishes. */
bool run_serves(const struct run *run, const struct model *model, const struct model *any);

#endif
