/* SPDX-License-Identifier: Apache-2.0
 *
 * outbox - what one tick sends, in one Kafka transaction.
 *
 * One transactional producer under one fixed transactional.id: initialising it aborts the
 * predecessor's open transaction and fences the predecessor. After any failure the outbox is
 * closed, never repaired: whether its transaction committed is read from the topics by the next
 * term (R2, R4).
 *
 * One thread.
 */
#ifndef SCHEDULER_OUTBOX_H
#define SCHEDULER_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/config.h"
#include "common/err.h"
#include "scheduler/scheduler.h"
#include "scheduler/topic_map.h"
#include "schemas/codec.h"

struct outbox;

struct outbox_options {
    const char *brokers;
    const char *client_id;
    struct config_list settings;
    const char *transactional_id;
    const struct topic_map *topics; /* outlives the outbox */
    struct codec *codec;            /* the same */
};

/* Opens the client and asks for the partitions of what is sent most. RETRY: the brokers are away,
 * or do not know a topic yet that `topics` has. REJECT: the settings. */
bool outbox_open(struct outbox **outbox, const struct outbox_options *options, struct err *err);
/* Aborts what is open, as far as that goes within a second. NULL is allowed. */
void outbox_close(struct outbox *outbox);

/* Fences whoever used the transactional id before, and ends its transaction. Only while the
 * leader's partition is assigned and confirmed. RETRY: not within timeout_ms, call again. */
bool outbox_init(struct outbox *outbox, int timeout_ms, struct err *err);

/* Sends SEND, TOMBSTONE and DEAD_LETTER actions, in their order, in one transaction and commits
 * it. *sent is how many these were; with none of them no transaction is opened. Success: the
 * commit is known. Failure: close the outbox; ABORT when the next one may try again, FATAL when
 * the process has to give up, see outbox_fenced().
 *
 * An assignment that does not fit into a message goes out without its prefix (the attempt says it
 * again by itself, only later). */
bool outbox_commit(struct outbox *outbox, const struct actions *actions, int timeout_ms,
                   size_t *sent, struct err *err);

/* Another process has initialised the same transactional id. */
bool outbox_fenced(const struct outbox *outbox);

/* The end of a partition of results or usage as the last commit left it, as far as it wrote
 * there; -1 otherwise. */
int64_t outbox_written_end(const struct outbox *outbox, enum topic topic, int32_t partition);

#endif
