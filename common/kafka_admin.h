/* SPDX-License-Identifier: Apache-2.0
 *
 * kafka_admin - creating, describing and trimming topics.
 *
 * Everything takes any open client. Calls block up to timeout_ms. One thread.
 */
#ifndef COMMON_KAFKA_ADMIN_H
#define COMMON_KAFKA_ADMIN_H

#include <librdkafka/rdkafka.h>

#include "common/err.h"
#include "common/kafka.h"

struct kafka_topic {
    const char *name; /* full */
    int32_t partitions;
    int16_t replication;
    /* Topic settings, name and value in turns, NULL at the end. */
    const char *const *settings;
};

enum kafka_topic_state {
    KAFKA_TOPIC_CREATED,
    KAFKA_TOPIC_SAME,      /* was there, as wanted */
    KAFKA_TOPIC_DIFFERENT, /* was there, see difference */
};

struct kafka_topic_report {
    enum kafka_topic_state state;
    char difference[200]; /* "partitions 4 (wanted 8); retention.ms 604800000 (wanted -1)" */
};

/* Creates the topic and waits until it can be used, or compares the existing one. Never changes an
 * existing topic. */
bool kafka_topic_ensure(rd_kafka_t *client, const struct kafka_topic *topic, int timeout_ms,
                        struct kafka_topic_report *report, struct err *err);
/* Compares only: REJECT where the topic does not exist. */
bool kafka_topic_check(rd_kafka_t *client, const struct kafka_topic *topic, int timeout_ms,
                       struct kafka_topic_report *report, struct err *err);

bool kafka_broker_count(rd_kafka_t *client, int timeout_ms, int *count, struct err *err);
/* The cluster's id, for free(); NULL when no broker answers in time. */
char *kafka_cluster_id(rd_kafka_t *client, int timeout_ms, struct err *err);

/* Deletes everything before the positions' offsets (request topics below the lowest offset still
 * needed). */
bool kafka_delete_records(rd_kafka_t *client, const struct kafka_position *positions, size_t count,
                          int timeout_ms, struct err *err);

#endif
