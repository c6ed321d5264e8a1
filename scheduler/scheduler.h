/* SPDX-License-Identifier: Apache-2.0
 *
 * scheduler - the pure core: every decision and every promise of the protocol.
 *
 * scheduler_step(state, event, now) takes one thing that happened and appends
 * what is to be done to a list of actions. It knows no clock, no I/O and no
 * Kafka, so that the same code runs in pelton-scheduler, in the simulator and
 * in deterministic tests. The shell (scheduler/shell.h) turns Kafka messages
 * into events and sends the actions of one tick in one transaction.
 *
 * Life of a core: scheduler_new(); RESTORE_* events with what the state topic
 * holds; RESTORED; then live events and a TICK every 20-250 ms, each answered
 * by COMMITTED once its transaction is known to have committed; no other event
 * comes between the two. There is no roll-back: after an aborted or unknown
 * commit, or a lost leadership, the shell throws the core away and builds the
 * next one from Kafka (R2, R4). A tick without actions needs no transaction and
 * no COMMITTED; so does one whose actions are none of SEND, TOMBSTONE and
 * DEAD_LETTER, though COMMITTED does no harm there.
 *
 * A transaction may turn out to be torn, as brokers have done: some partitions committed, others
 * not. The next core finds it and completes it, from what is there (torn.c).
 *
 * What it promises, whatever the order of events:
 *  - every request gets exactly one result and one usage row (R1-R3);
 *  - a request is given to another worker only after its worker's lease has
 *    run out, or it said Goodbye, Failed or Yield, and its events were read to
 *    the end (R6); what a worker reports counts by (attempt, incarnation) (R5);
 *  - the next attempt is forced to say the accepted prefix again (R8);
 *  - the offsets of a TICK are the lowest not admitted (R7), so nothing is lost
 *    when the leader dies.
 *
 * A dead letter may be repeated by a takeover; its origin position tells. All
 * else is said once. now_ms only has to be steady: leases are counted by it, so
 * a shell passes wall time at start plus monotonic time since.
 *
 * Threads: one. Memory: a waiting request costs under 200 bytes beside its
 * payload (body, custom_id and 72 bytes of fields); a finished one at most 32.
 */
#ifndef SCHEDULER_SCHEDULER_H
#define SCHEDULER_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/topics.h"
#include "scheduler/batch_size.h"
#include "schemas/records.h"

struct scheduler_config {
    uint32_t slots; /* partitions of assignments and worker-events */
    uint32_t request_partitions[CLASS_COUNT];
    int64_t lease_ms;              /* 3000 */
    int64_t dedupe_window_ms;      /* 7 days */
    size_t waiting_size_max;       /* bytes of payload kept; beyond it partitions pause */
    uint32_t crashes_max;          /* a request that killed this many workers is a dead letter */
    int64_t model_wait_ms;         /* wait for a worker that serves the model while others live */
    uint32_t assign_ahead_percent; /* of the batch size: queued at the worker to hide a tick */
    uint32_t long_request_tokens;  /* estimated; such a request is long. 0: none is */
    uint32_t long_share_percent;   /* of a batch: theirs whatever short ones need; at least one */
    /* KV memory. 0: every request reserves what it may come to need at most, so that no worker ever
     * preempts. Above 0: workers are filled until what they report as used, and the prompts that
     * have come since, take this share of it. Answers are mostly shorter than their max_tokens and
     * on average half made, so that more than twice as many fit; the worker preempts when it was
     * too many. */
    double kv_share;
    bool trim_requests;           /* DeleteRecords below what is still needed */
    double expert_balance_weight; /* of expert balance against arrival order; 0: arrival order */
    uint32_t overtakes_max[CLASS_COUNT]; /* later ones that may go before a request */
    double prefix_affinity_weight; /* of prompt tokens to compute against those queued before them,
                                      when a worker is chosen; 0: workers are only filled evenly */
    uint32_t micro_batch_size;     /* sequences of a micro-batch; 0: the worker's own choice */
    struct batch_policy batch;
};

/* Where a Kafka message stands. */
struct position {
    enum topic topic;
    int32_t partition;
    int64_t offset;
};

enum event_type {
    /* From the state topic, in its order; records are read, not kept. */
    EVENT_RESTORE_STATE,   /* record: InFlight, DoneMark, Tick, WorkerMark */
    EVENT_RESTORE_DELETED, /* a tombstone; id */
    EVENT_RESTORE_OUTPUT,  /* record: Result, Usage or WorkerTime found behind the last tick's ends;
                              after all of RESTORE_STATE */
    EVENT_RESTORE_GONE,    /* some of these are deleted: what is not found may have been there */
    EVENT_RESTORED,        /* all of it is read; epoch becomes the last one + 1 */
    /* Live. */
    EVENT_REQUEST,     /* record: Request; position; timestamp_ms */
    EVENT_BAD_REQUEST, /* position; raw bytes and reason: a dead letter */
    EVENT_CONTROL,     /* record: Batch or CancelBatch; position */
    EVENT_WORKER,      /* record of worker-events; position (partition = slot) */
    EVENT_EVENTS_END,  /* answer to ACTION_READ_EVENTS: slot's events are read to that end */
    EVENT_OUTPUT_END,  /* position: results or usage of this partition end here (committed) */
    EVENT_TICK,        /* decide; the actions since the last tick are one transaction */
    EVENT_COMMITTED,   /* that transaction is known to have committed */
};

struct event {
    enum event_type type;
    struct position position;
    int64_t timestamp_ms;        /* Kafka's, of the message */
    const struct record *record; /* valid during the step only */
    struct request_id id;
    struct str raw; /* BAD_REQUEST: the message's bytes */
    struct str key; /* BAD_REQUEST: its key */
    struct str reason;
    uint32_t slot;
};

enum action_type {
    ACTION_SEND,        /* record to topic, in the tick's transaction */
    ACTION_TOMBSTONE,   /* key of topic state: no value */
    ACTION_DEAD_LETTER, /* raw bytes with key; or record, a Request to be encoded again, with id;
                           reason and origin position */
    ACTION_PAUSE,       /* stop fetching position's partition */
    ACTION_RESUME,
    ACTION_READ_EVENTS, /* note the end of worker-events[slot]; answer when it is read */
    ACTION_TRIM,        /* DeleteRecords below position.offset, after the commit */
};

struct action {
    enum action_type type;
    enum topic topic;
    int32_t partition;           /* -1: by key */
    struct request_id id;        /* Kafka key of requests' records (its text); TOMBSTONE's */
    const struct record *record; /* SEND, DEAD_LETTER; those of state take state_key() as key */
    struct str raw;
    struct str key;
    struct str reason;
    struct position position; /* DEAD_LETTER's origin, PAUSE, RESUME, TRIM */
    uint32_t slot;
};

/* Grows; cleared by the shell after each commit. Records and bytes that actions point to live in
 * the core until the next COMMITTED. */
struct actions {
    struct action *items;
    size_t count;
    size_t capacity;
};
void actions_free(struct actions *actions);

struct scheduler;

/* config is copied. NULL only when memory is out. */
struct scheduler *scheduler_new(const struct scheduler_config *config);
void scheduler_free(struct scheduler *scheduler);

/* now_ms: since 1970, never before an earlier call's. */
void scheduler_step(struct scheduler *scheduler, const struct event *event, int64_t now_ms,
                    struct actions *actions);

/* Where the shell has to begin reading after RESTORED: for requests the lower of the lowest
 * offset in flight and the next not admitted, for worker-events the lowest that a Progress of a
 * live attempt may stand at. -1: from the beginning, always so for control. */
int64_t scheduler_start_offset(const struct scheduler *scheduler, enum topic topic,
                               int32_t partition);

/* Gauges and counters for /metrics, `pelton-scheduler --status` and tests. */
struct scheduler_class_gauges {
    uint64_t waiting_requests;
    uint64_t waiting_tokens; /* estimated: prompt bytes / 4 + max_tokens */
    int64_t oldest_wait_ms;
};
struct scheduler_worker_gauges {
    uint32_t slot;
    bool alive;
    uint32_t in_flight;
    uint32_t batch_size;
    double load;          /* of its busiest expert, as last reported */
    double load_forecast; /* the same at the next heartbeat */
    double imbalance;     /* busiest expert's tokens in a step over the mean */
    double experts_used;  /* experts of a layer with work in a step */
    int64_t step_us;
};
/* What came and what was done in this term, for the planner. Totals. */
struct scheduler_work {
    uint64_t arrived_tokens;  /* estimated; of requests that are younger than this leader */
    uint64_t finished_tokens; /* estimated; of completed requests */
    uint64_t output_tokens;   /* of the same */
    uint64_t steps;           /* by all workers, as they report it */
    uint64_t decode_tokens;   /* in these */
    uint64_t busy_us;         /* the same */
};
/* Prefix caches: what the workers found, and what was expected of them. Totals. */
struct scheduler_prefixes {
    uint64_t prompt_tokens, cached_tokens; /* of completed requests, as reported */
    uint64_t prompt_tokens_expected, cached_tokens_expected; /* of assignments, estimated */
    uint64_t affinity_assignments; /* not to the least filled worker, for what another has */
};
/* What transactions of earlier leaders left out, although other parts of them were committed; found
 * and put right by this one. */
struct scheduler_torn {
    uint64_t requests; /* done, as state said, without a Result: they run again */
    uint64_t marks;    /* with a Result and no DoneMark */
    uint64_t usages;   /* with a Result and no Usage */
};
struct scheduler_gauges {
    struct scheduler_class_gauges classes[CLASS_COUNT];
    uint64_t in_flight;
    uint64_t done_marks;
    uint64_t results_total[4]; /* by result_status */
    uint64_t duplicates_total;
    uint64_t dead_letters_total;
    uint64_t reassigned_total;
    int64_t epoch;
    size_t waiting_size; /* bytes */
    bool paused;         /* there is no room to read on in some partition */
    uint32_t workers_alive;
    uint32_t workers_serving; /* of those, not draining */
    uint64_t batch_most;      /* sequences that these may come to run, all together */
    struct scheduler_work work;
    struct scheduler_prefixes prefixes;
    struct scheduler_torn torn;
};
void scheduler_gauges(const struct scheduler *scheduler, struct scheduler_gauges *gauges);
bool scheduler_worker_gauges(const struct scheduler *scheduler, uint32_t slot,
                             struct scheduler_worker_gauges *gauges);

#endif
