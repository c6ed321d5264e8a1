/* SPDX-License-Identifier: Apache-2.0
 *
 * broker - Kafka as the simulator needs it: logs, and transactions that may end in every way.
 *
 * A log is what a read_committed reader sees: a transaction's messages appear when it commits, all
 * of them, in order within each partition. A torn one shows only some partitions, and of some their
 * beginnings, which brokers have done. Messages are copies in one arena and live as long as the
 * simulation.
 */
#ifndef TESTS_SIM_BROKER_H
#define TESTS_SIM_BROKER_H

#include "common/arena.h"
#include "scheduler/scheduler.h"

enum { SIM_SLOTS = 3, SIM_PARTITIONS = 3 /* at most, of any topic */ };

struct message {
    const struct record *record; /* NULL: tombstone, or bytes that are no record */
    struct request_id id;        /* the key, of a request's messages */
    int64_t timestamp_ms;
};

struct message_log {
    struct message *items;
    size_t count, capacity; /* count is the end offset */
    size_t start;           /* DeleteRecords up to here */
};

struct broker {
    struct arena arena;
    struct message_log logs[TOPIC_COUNT][SIM_PARTITIONS];
};

/* How a transaction tears: each partition by itself is there, or not, or there are those of its
 * messages that stand before the cut, in the order in which all were sent. */
struct tear {
    uint64_t coin;
    size_t cut;
};

void broker_close(struct broker *broker);
struct message_log *broker_log(struct broker *broker, enum topic topic, int32_t partition);
/* A copy of everything the record points to. */
const struct record *broker_copy(struct broker *broker, const struct record *record);
void broker_append(struct broker *broker, enum topic topic, int32_t partition,
                   const struct message *message);
/* Appends what the actions send. tear: NULL for all of it. */
void broker_commit(struct broker *broker, const struct actions *actions, int64_t now_ms,
                   const struct tear *tear);

#endif
