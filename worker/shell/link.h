/* SPDX-License-Identifier: Apache-2.0
 *
 * link - the worker's two Kafka clients: commands in, events and tokens out.
 *
 * One reader follows this slot's partitions of assignments (what to do) and
 * worker-events (has a newer worker taken the slot?). One idempotent producer
 * keeps the order of what we send. Belongs to the Kafka thread, except that
 * librdkafka's threads call options.wake.
 */
#ifndef WORKER_SHELL_LINK_H
#define WORKER_SHELL_LINK_H

#include "common/config.h"
#include "common/err.h"
#include "schemas/codec.h"

struct task;

struct link_options {
    const struct config_common *common;
    struct config_list kafka_settings;
    uint32_t slot;
    void (*wake)(void *wake_context); /* something arrived; any thread */
    void *wake_context;
    /* From link_poll(): a message that carried a task is delivered, or never will be (error says
     * why). chunk: it went to tokens, not to worker-events. */
    void (*delivered)(void *delivered_context, struct task *task, bool chunk, const char *error);
    void *delivered_context;
};

struct link;

bool link_open(struct link **link, const struct link_options *options, struct err *err);
/* Waits for a broker as long as it takes. False: RETRY, a topic does not exist. True also where a
 * stop was requested. */
bool link_await(struct link *link, struct err *err);
/* Waits up to flush_ms for what is under way; delivered() is called for everything. */
void link_close(struct link *link, int flush_ms);

/* Hello: notes where our commands begin, sends the record (its assignments_offset is filled in
 * here), waits until it is delivered, and reads on from there. RETRY: no broker yet, or one that
 * does not know the topics yet. */
bool link_hello(struct link *link, struct hello *hello, struct err *err);

/* To this slot's partition of worker-events. task may be NULL. REJECT: the record is too large. */
bool link_event(struct link *link, const struct record *record, struct task *task, struct err *err);
/* To tokens, by the request's key. */
bool link_chunk(struct link *link, const struct token_chunk *chunk, struct task *task,
                struct err *err);

/* Serves delivery reports and gives the next command, or *record NULL for none within timeout_ms.
 * The record is the caller's. *superseded: a newer Hello than ours is in this slot's events. A
 * message that is no record is logged and skipped. */
bool link_poll(struct link *link, int timeout_ms, struct record **record, bool *superseded,
               struct err *err);

bool link_flush(struct link *link, int timeout_ms, struct err *err);

#endif
