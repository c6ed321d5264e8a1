/* SPDX-License-Identifier: Apache-2.0
 *
 * session - one incarnation of a worker, from Hello to Goodbye.
 *
 * The Kafka thread's loop: commands from the scheduler become tasks for the
 * model thread (runner), its reports become messages (publisher), Heartbeats
 * keep the lease. Without a lease nothing is stepped or published; work and KV
 * cache are kept for a while, and go on if the lease comes back. If it does not,
 * everything is dropped and a new incarnation says Hello, so that what the
 * scheduler has given away meanwhile cannot run twice under one name.
 */
#ifndef WORKER_SHELL_SESSION_H
#define WORKER_SHELL_SESSION_H

#include "worker/shell/exporter.h"
#include "worker/shell/lease.h"
#include "worker/shell/publisher.h"
#include "worker/shell/runner.h"

struct session_options {
    const struct text *text;
    struct engine_info info;
    struct runner *runner;
    struct link *link;
    struct exporter *exporter;
    const char *model_name; /* what requests address */
    const char *hardware;
    uint32_t slot;
    uint32_t tasks_max;
    int64_t lease_us;         /* the scheduler's */
    int64_t keep_us;          /* how long work outlives its lease */
    int64_t drain_timeout_us; /* at the end, for what is running */
};

struct session {
    struct session_options options;
    struct tasks tasks;
    struct publisher publisher;
    struct lease lease;
    struct lease_watch lease_watch; /* over all incarnations */
    struct request_id incarnation;
    int64_t up_since_ms;
    int64_t hello_us;
    int64_t heartbeat_us;   /* when the next one is due */
    int64_t epoch;          /* newest scheduler that was heard */
    uint64_t tags;          /* given so far */
    uint32_t in_model;      /* tasks that the runner has */
    uint32_t parked;        /* tasks that came while draining */
    int64_t drain_until_us; /* 0: not draining */
    bool superseded;
};

/* Works until a stop is requested (true), or: another worker took the slot, the configuration
 * cannot work (REJECT), the engine or the client failed (FATAL). link's delivered() must be
 * session_delivered() with *session as context. */
bool session_run(struct session *session, const struct session_options *options, struct err *err);

void session_delivered(void *session, struct task *task, bool chunk, const char *error);

#endif
