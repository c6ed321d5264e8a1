/* SPDX-License-Identifier: Apache-2.0
 *
 * sim - the scheduler's core among simulated workers, clients and a broker, on a virtual clock.
 *
 * Everything that happens follows from one seed: when requests come, which processes die, stop or
 * stall, how transactions end, when a leader is replaced. After the storm everybody is well, and
 * each request must come to its end. checker.c watches the promises of scheduler/scheduler.h all
 * the while.
 */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H

#include "tests/sim/broker.h"

enum {
    REQUESTS_MAX = 40,
    PROCESSES_MAX = 96, /* worker processes of one simulation, dead ones included */
    HELD_MAX = 64,
    OUTBOX_MAX = 1024,
    ANSWER_MAX = 12,
    LEASE_MS = 3000,
};

/* What a request is, and what has been seen of it. */
struct truth {
    struct request_id id;
    enum service_class service_class;
    int32_t partition;
    int64_t submit_ms;
    int64_t deadline_ms;
    uint32_t answer_count; /* tokens of the right answer */
    bool poison;           /* kills its worker */
    bool reject;           /* its worker rejects it */
    bool unknown_model;
    bool cancelled; /* its batch is cancelled at some time */
    bool submitted, resubmitted, conflicted;
    int64_t first_offset; /* of its first message; -1 */
    /* seen */
    uint32_t published; /* tokens whose Progress arrived while its worker's lease was valid */
    uint32_t results, usages, dead_letters;
    uint32_t attempt;
    const struct record *state; /* newest in the state topic: InFlight, DoneMark, NULL */
    bool marked_alone;          /* there was no result when that was written */
    bool forgotten;             /* its mark has got a tombstone */
};

/* A request at a worker process. */
struct held {
    uint32_t number;
    uint32_t attempt;
    uint32_t position; /* tokens said */
    uint32_t reported; /* of them in Progress */
};

/* One worker process; one incarnation. */
struct process {
    bool exists, stopped;
    uint32_t slot;
    struct request_id incarnation;
    int64_t started_ms, heartbeat_ms, step_ms;
    int64_t wake_ms;       /* end of a stop */
    int64_t stalled_to_ms; /* its messages do not get through until then */
    int64_t lease_to_ms;   /* its own view */
    int64_t epoch;
    int64_t assignments_offset, events_offset; /* next to read */
    int64_t heartbeat_seq, heartbeat_sent_ms[256];
    uint32_t batch_size;
    struct held held[HELD_MAX];
    size_t held_count;
    struct record outbox[OUTBOX_MAX]; /* to worker-events, in order; arrays are in the arena */
    size_t outbox_first, outbox_count;
    bool draining; /* says so in its heartbeats and ends when it holds nothing */
    bool leaving;
};

/* The leader and its shell; one at a time, as the fence sees to it. */
struct leader {
    struct scheduler *core;
    struct actions actions;
    int64_t start_ms, tick_ms;
    int64_t requests_offset[CLASS_COUNT][SIM_PARTITIONS];
    bool paused[CLASS_COUNT][SIM_PARTITIONS];
    int64_t events_offset[SIM_SLOTS];
    int64_t events_end[SIM_SLOTS];     /* asked for; -1 */
    int64_t events_late_ms[SIM_SLOTS]; /* its fetches bring nothing until then */
    int64_t control_offset;
    bool torn;                             /* so the last transaction ended */
    struct request_id draining[SIM_SLOTS]; /* workers that told this leader that they drain */
};

struct sim {
    uint64_t seed, random;
    bool verbose;
    int64_t now_ms, calm_ms; /* the storm ends at calm_ms */
    struct scheduler_config config;
    bool tears; /* transactions may tear in this one */
    struct broker broker;
    struct truth requests[REQUESTS_MAX];
    uint32_t requests_count;
    struct process *processes;
    uint32_t processes_count;
    uint32_t chaos; /* how often things go wrong, percent of the usual */
    struct leader leader;
    uint32_t takeovers;
    /* the checker's */
    size_t seen[TOPIC_COUNT][SIM_PARTITIONS];
    int64_t tick_next[CLASS_COUNT][SIM_PARTITIONS]; /* of the last committed tick */
    int64_t tick_epoch, tick_seq;
};

uint64_t sim_random(struct sim *sim);
uint32_t sim_below(struct sim *sim, uint32_t limit);        /* 0..limit-1 */
bool sim_chance(struct sim *sim, uint32_t in, uint32_t of); /* in of `of` times */
bool sim_trouble(struct sim *sim, uint32_t of);             /* once in `of`; never when calm */
int64_t sim_between(struct sim *sim, int64_t a, int64_t b);
int32_t sim_token(uint32_t number, uint32_t index); /* of the right answer to a request */
uint32_t sim_number(const struct sim *sim, const struct request_id *id);
struct request_id sim_id(uint32_t kind, uint32_t number);
/* Prints seed, time and message, and ends the program. */
_Noreturn void sim_fail(const struct sim *sim, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void sim_log(const struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));

void clients_open(struct sim *sim);
void clients_step(struct sim *sim);

void workers_step(struct sim *sim);

void leader_step(struct sim *sim);
void leader_close(struct sim *sim);

/* Looks at everything that was appended since the last call. */
void checker_step(struct sim *sim);
/* Before a worker process says a token of the request. */
void checker_token(struct sim *sim, const struct process *process, uint32_t number);
/* Is everything finished? */
bool checker_complete(const struct sim *sim);
void checker_finish(struct sim *sim);

#endif
