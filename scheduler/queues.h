/* SPDX-License-Identifier: Apache-2.0
 *
 * queues - the order in which requests that were never assigned get their turn.
 *
 * Every model name that requests ask for has a group of queues for each service class, and in it
 * one for short and one for long requests. In such a group each tenant has a flow, first come
 * first served; flows take turns by deficit round robin over estimated tokens, so that a tenant
 * with a million requests, or with very large ones, gets no more than its neighbour. A flow exists
 * only while it has jobs.
 *
 * Within a flow, requests that begin with the same words stand in a lane. The head of each lane may
 * be taken instead of the flow's oldest job (scheduler/compose.c), which is how a batch is mixed
 * from a file that is sorted by task, without a look at the thousands between two tasks, and how a
 * worker gets what it has the beginning of. With system prompts a lane has one of eight groups of
 * them, and one of eight of words.
 *
 * Nothing here walks over waiting jobs: push, peek and remove cost one turn of the ring, and one
 * look at the lanes of a flow, at most.
 * Source: Shreedhar and Varghese, Efficient Fair Queuing using Deficit Round Robin, 1995.
 */
#ifndef SCHEDULER_QUEUES_H
#define SCHEDULER_QUEUES_H

#include "common/idmap.h"
#include "scheduler/jobs.h"

enum { FLOW_LANES_MAX = 64 }; /* beginnings share lanes by their hash */

struct lane {
    struct lane *next;
    uint32_t key; /* below FLOW_LANES_MAX */
    /* The longest beginning that its last assigned job had in common with an earlier one: the key
     * of its last block (prefix_chain), 0 unknown, and which share of the prompt it is. */
    uint64_t common;
    double common_share;
    struct job_list jobs;
};

struct flow {
    uint8_t key[16];
    struct group *group;
    struct flow *prev, *next; /* ring of its group */
    struct lane *lanes;       /* those with jobs, at least one */
    struct job *oldest;
    size_t count;      /* jobs */
    uint32_t arrivals; /* order of the next job; wraps */
    int64_t deficit;   /* tokens it may still take in this turn */
};

struct group {
    struct flow *current; /* whose turn it is; NULL: empty */
    size_t count;         /* jobs */
};

struct model {
    uint8_t key[16];
    struct str name;
    size_t refs; /* jobs and runs that name it */
    struct group groups[CLASS_COUNT][LENGTH_COUNT];
    uint64_t waiting_short[CLASS_COUNT]; /* jobs, QUEUED and RETURNED */
    uint32_t workers;                    /* that serve it, as of this tick; scratch of assign.c */
    struct model *prev, *next;           /* ring of all models */
    int64_t unserved_ms;                 /* since when no living worker serves it; 0: served */
};

struct queues {
    struct idmap *models;
    struct idmap *flows;
    struct model *cursor; /* into the ring of models */
};

void queues_open(struct queues *queues);
void queues_close(struct queues *queues); /* jobs are not freed */

/* Makes the model known and takes a reference; "" is a name like any other here. */
struct model *queues_model(struct queues *queues, struct str name);
void queues_model_release(struct queues *queues, struct model *model);

/* Into the flow of the job's class, model and length and its batch's tenant. */
void queues_push(struct queues *queues, struct job *job, enum job_length length);
void queues_remove(struct queues *queues, struct job *job);
/* The lane of a job in a flow. */
struct lane *queues_lane(const struct job *job);
/* How many at most, of those that came before, a job would overtake. */
uint32_t flow_overtakes(const struct job *oldest, const struct job *job);
/* The job whose turn it is: the oldest of the flow whose turn it is. It stays queued. NULL: the
 * group is empty. */
struct job *group_peek(struct group *group);
/* peek's job, or another lane's head of the same flow, leaves the queue; its flow pays for it. */
void queues_take(struct queues *queues, struct job *job);

/* A 16-byte key for names of any length: the start of a SHA-256, so that no two collide. */
void name_key(const struct str *parts, size_t count, uint8_t key[16]);
/* A copy that ends with a NUL, for free() on its data. */
struct str str_copy(struct str from);

#endif
