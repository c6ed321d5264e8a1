/* SPDX-License-Identifier: Apache-2.0
 *
 * jobs - a request as the scheduler holds it, and its attempts.
 *
 * A job lives from the reading of its request (or of its InFlight entry, when a leader takes over)
 * until the tick that carries its result has committed. Each job is in one state and in the one
 * list that belongs to it; lifecycle.c alone changes that. This module has the plain parts:
 * memory, lists, and what a Request's bytes mean for the estimates.
 *
 * A waiting job is 152 bytes, and with its entries in the job map and the deadline heap and
 * malloc's overhead under 200; its payload is one block of 72 bytes plus body and custom_id.
 */
#ifndef SCHEDULER_JOBS_H
#define SCHEDULER_JOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "scheduler/prefix.h"
#include "scheduler/profile.h"
#include "schemas/records.h"

struct run;
struct flow;
struct model;

enum job_state {
    JOB_NEW,      /* in no list */
    JOB_QUEUED,   /* never assigned: in its flow's queue and its partition's list */
    JOB_RETURNED, /* came back from a worker: waits for the next attempt before all others */
    JOB_RUNNING,  /* given to a run, queued there or in a batch */
    JOB_FINISHED, /* its result is in this tick; freed when that has committed */
};

enum job_length { LENGTH_SHORT, LENGTH_LONG, LENGTH_COUNT };

enum job_link_kind {
    LINK_STATE,  /* flow, returned, run or finished, by state */
    LINK_OFFSET, /* QUEUED ones of a partition, by offset */
    LINK_BATCH,  /* all of a batch */
    LINK_COUNT
};

struct job_link {
    struct job *prev, *next;
};

struct job_list {
    struct job *head, *tail;
    size_t count;
};

/* The parts of a Request that only an Assignment or Result needs again. */
struct payload {
    uint8_t body_hash[32];
    int64_t submitted_ms;
    uint32_t line;
    uint32_t body_size;
    uint32_t custom_id_size;
    struct prefix_keys prefix;
    char bytes[]; /* body, custom_id */
};

/* What state holds as InFlight, and the accepted ids. From the first assignment on. */
struct attempt {
    uint32_t number; /* of the newest attempt; 1 first */
    uint32_t crashes;
    struct run *run; /* NULL unless RUNNING */
    int64_t events_offset;
    int64_t first_assigned_ms;
    int64_t listed_ms;      /* when assigned, or last seen in a Heartbeat's running list */
    int64_t listed_sent_ms; /* the same by the worker's clock */
    int64_t returned_ms;
    uint64_t numerics; /* hash of what the prefix was computed with; 0 unknown */
    int32_t *prefix;   /* accepted ids of the answer */
    size_t prefix_count, prefix_capacity;
    struct request_id restored_incarnation; /* until the restored job is given to its run */
    uint32_t restored_slot;
    uint64_t prefill_work;    /* balance_prefill_work(), until its first ids are there */
    uint64_t cached_expected; /* prompt tokens that its run was to have, by what was sent there */
    struct profile
        *profile;        /* of experts: predicted, then measured; counted in its run; NULL none */
    struct record *held; /* a Done or Failed that came before the payload was read again */
};

/* Requests of one file; cancelled as a whole. Freed when unused and not cancelled. */
struct job_batch {
    uint8_t key[16]; /* in the scheduler's map of batches */
    struct str tenant, batch_id;
    size_t refs;                       /* jobs that point here, FINISHED ones too */
    struct job_list jobs;              /* all but the FINISHED ones */
    struct job_batch *cancelling_next; /* in the list of those with jobs still to cancel */
    bool cancelled, cancelling;
};

struct job {
    struct request_id id;
    struct job_link links[LINK_COUNT];
    struct job_batch *batch; /* NULL while the payload is missing, and so is model */
    struct model *model;
    struct flow *flow; /* QUEUED only */
    struct attempt *attempt;
    struct payload *payload; /* NULL: restored, not read again yet */
    int64_t offset;
    int64_t admitted_ms; /* Kafka timestamp of the request */
    int64_t deadline_ms; /* 0: none */
    int32_t partition;
    uint32_t tokens;         /* estimated: prompt bytes / 4 + max_tokens */
    uint32_t deadline_index; /* in the heap, plus one; 0: not in it */
    uint32_t order;          /* QUEUED: its place among all that came into its flow */
    uint8_t service_class;
    uint8_t state;
    uint8_t endpoint;
    uint8_t stream;
};

void job_list_append(struct job_list *list, enum job_link_kind kind, struct job *job);
void job_list_remove(struct job_list *list, enum job_link_kind kind, struct job *job);

struct job *job_new(const struct request_id *id);
void job_free(struct job *job);

/* Copies body, custom_id and numbers of the request into the job, and estimates its tokens. The
 * caller connects batch and model. */
void job_set_payload(struct job *job, const struct request *request);

struct str job_body(const struct job *job);
struct str job_custom_id(const struct job *job);
size_t job_payload_size(const struct job *job); /* bytes; 0 while it is missing */

/* Tokens it may come to hold in a KV cache; more careful than job->tokens (a third of the prompt's
 * bytes), because a wrong guess costs the worker a preemption. */
uint64_t job_kv_tokens(const struct job *job, uint32_t max_context);
uint64_t job_prompt_tokens(const struct job *job); /* of them, the prompt's */

/* balance_prefill_work() of the whole prompt, with what may be cached of it: how much that is,
 * nobody knows before the job is assigned. */
uint64_t job_prompt_work(const struct job *job);

/* An attempt whose number is 0; the first assignment makes it 1. */
struct attempt *attempt_new(void);
void attempt_free(struct attempt *attempt);

enum prefix_verdict { PREFIX_OK, PREFIX_GAP, PREFIX_CONTRADICTED };
/* Extends the accepted ids by ids[first_index...]: the overlap must be the same, and is cut. */
enum prefix_verdict attempt_extend(struct attempt *attempt, uint32_t first_index,
                                   struct i32_array ids);
/* Do ids begin with everything that was accepted? */
bool attempt_agrees(const struct attempt *attempt, struct i32_array ids);

#endif
