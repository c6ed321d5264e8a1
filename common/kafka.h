/* SPDX-License-Identifier: Apache-2.0
 *
 * kafka - a thin layer over librdkafka: clients that are set up correctly, errors that say
 * what to do, messages with our headers, reads that have an end.
 *
 * A client is a plain rd_kafka_t, so whatever this header does not wrap (transactions, groups) is
 * called directly; kafka_error() translates the answers. Settings passed by the user (-X) are
 * applied first, what correctness needs afterwards, with the reasons in kafka.c: a user setting
 * that contradicts is refused.
 *
 * librdkafka's log lines go to common/log. Any thread may produce; everything else about one
 * client belongs to one thread.
 */
#ifndef COMMON_KAFKA_H
#define COMMON_KAFKA_H

#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/config.h"
#include "common/err.h"
#include "common/ids.h"

enum kafka_role {
    KAFKA_PRODUCER,      /* idempotent, acks=all */
    KAFKA_TRANSACTIONAL, /* the same with options->transactional_id; init_transactions is the
                            caller's */
    KAFKA_READER, /* read_committed, assign only: no group, no commits, offset reset is an error */
    KAFKA_MEMBER, /* subscribes with options->group_id, cooperative-sticky, no auto commit */
};

struct kafka_options {
    const char *brokers;          /* bootstrap.servers */
    const char *client_id;        /* program name, and slot where there is one */
    struct config_list settings;  /* config_kafka_settings() */
    const char *transactional_id; /* KAFKA_TRANSACTIONAL */
    const char *group_id; /* KAFKA_MEMBER; KAFKA_READER: only to commit copies for lag tools */
    int64_t transaction_timeout_ms; /* 0: librdkafka's 60 s */
    /* Producers: called from rd_kafka_poll() for every message, with context. NULL allowed. */
    void (*delivered)(rd_kafka_t *client, const rd_kafka_message_t *message, void *context);
    /* KAFKA_MEMBER: called from rd_kafka_consumer_poll(); it assigns and unassigns. */
    void (*rebalance)(rd_kafka_t *client, rd_kafka_resp_err_t event,
                      rd_kafka_topic_partition_list_t *partitions, void *context);
    void *context; /* the client's opaque */
};

/* Could kafka_open() open this client? For one that is opened later: wrong settings are to end a
 * program at its start. REJECT with the setting. */
bool kafka_check(enum kafka_role role, const struct kafka_options *options, struct err *err);

/* The caller closes with kafka_close(). Does not wait for a broker. */
bool kafka_open(rd_kafka_t **client, enum kafka_role role, const struct kafka_options *options,
                struct err *err);
/* Producers: waits up to flush_ms for outstanding messages, then drops them. NULL is allowed.
 * Readers and members: after 13 s the client's threads are left behind, with a warning. */
void kafka_close(rd_kafka_t *client, int flush_ms);

/* ---- errors ---- */
/* What an error code means to a caller that has no better knowledge: timeouts, transport and full
 * queues are RETRY; too large messages REJECT; fenced, unauthorised, offset out of range FATAL. */
enum err_kind kafka_err_kind(rd_kafka_resp_err_t code);
/* True for NO_ERROR; otherwise fills err: "<what>: <librdkafka's text>". */
bool kafka_code(rd_kafka_resp_err_t code, const char *what, struct err *err);
/* The same for error objects (NULL: success), which it destroys: fatal -> FATAL, abortable ->
 * ABORT, retriable -> RETRY, anything else as kafka_err_kind(). */
bool kafka_error(rd_kafka_error_t *error, const char *what, struct err *err);
/* The fatal error that the client is in, if any: true if there is none. */
bool kafka_healthy(rd_kafka_t *client, struct err *err);

/* ---- producing ---- */
struct kafka_message {
    const char *topic;
    int32_t partition; /* RD_KAFKA_PARTITION_UA: by key (murmur2, as Java clients) */
    const void *key;
    size_t key_size;
    const void *value; /* NULL: a tombstone */
    size_t value_size;
    const char *type; /* CloudEvents type: "pelton." + record_type_name(); NULL: no such headers */
    const char *source;          /* CloudEvents source: program and slot, "/pelton-worker/3" */
    const uint8_t *id;           /* 16 bytes, also the trace id: the request_id; NULL: random */
    const char *traceparent;     /* to continue a trace; NULL: a new one from id */
    rd_kafka_headers_t *headers; /* more headers, become librdkafka's on success; NULL: none */
    void *opaque;                /* comes back as message->_private in delivered() */
};

/* Copies key and value. RETRY when the local queue is full: poll and call again. */
bool kafka_produce(rd_kafka_t *client, const struct kafka_message *message, struct err *err);
/* kafka_produce(), polling while the queue is full, up to timeout_ms. */
bool kafka_produce_wait(rd_kafka_t *client, const struct kafka_message *message, int timeout_ms,
                        struct err *err);
/* Serves delivery reports until all messages are out; RETRY when that takes longer. */
bool kafka_flush(rd_kafka_t *client, int timeout_ms, struct err *err);

/* Waits up to timeout_ms until any broker has answered this client; at once where one has before.
 * False: RETRY, saying who was asked, or that a stop was requested (stop.h), which ends the wait
 * within 200 ms. Every question to a broker in this header and in kafka_admin.h begins so: until
 * Kafka is there, a signal does not wait for it. */
bool kafka_await_broker(rd_kafka_t *client, int timeout_ms, struct err *err);

/* Waits for a broker as long as it takes, services start in any order, saying so in the log, and
 * then a moment for topics that were made just now. False: RETRY, a topic does not exist. True also
 * where a stop was requested. */
bool kafka_await_topics(rd_kafka_t *client, const char *const *topics, size_t count,
                        struct err *err);

/* Asks for a topic's partitions before its first message, which would otherwise wait for
 * librdkafka's timer, 1 s a topic. REJECT where the topic does not exist. */
bool kafka_prepare(rd_kafka_t *client, const char *topic, int timeout_ms, struct err *err);

/* Text of a header of a received message; false where it has none or it is too long. */
bool kafka_header(const rd_kafka_message_t *message, const char *name, char *text,
                  size_t text_size);

/* ---- reading by assignment ---- */
struct kafka_position {
    const char *topic; /* full name */
    int32_t partition;
    int64_t offset; /* next to read; or RD_KAFKA_OFFSET_BEGINNING, RD_KAFKA_OFFSET_END */
};

/* Replaces the whole assignment; count 0 clears it. */
bool kafka_assign(rd_kafka_t *reader, const struct kafka_position *positions, size_t count,
                  struct err *err);
bool kafka_seek(rd_kafka_t *reader, const struct kafka_position *position, int timeout_ms,
                struct err *err);
bool kafka_pause(rd_kafka_t *reader, const struct kafka_position *positions, size_t count,
                 struct err *err);
bool kafka_resume(rd_kafka_t *reader, const struct kafka_position *positions, size_t count,
                  struct err *err);

/* Next message; *message is NULL when none came in time (also at a partition's end). The caller
 * destroys it. False: kafka_code() of what librdkafka reported; passing broker trouble is not
 * reported. */
bool kafka_poll(rd_kafka_t *reader, int timeout_ms, rd_kafka_message_t **message, struct err *err);

/* First offset and end (the next to be written; for readers the last stable offset: open
 * transactions are not counted). Asks the partition's leader, and whoever follows it: RETRY when
 * nobody has answered within timeout_ms. Any of first, end may be NULL. */
bool kafka_offsets(rd_kafka_t *client, const char *topic, int32_t partition, int timeout_ms,
                   int64_t *first, int64_t *end, struct err *err);
bool kafka_partition_count(rd_kafka_t *client, const char *topic, int timeout_ms, int32_t *count,
                           struct err *err);

/* Reads one partition from offset (RD_KAFKA_OFFSET_BEGINNING allowed) to the end as it is when the
 * call starts, calling visit for every committed message. visit returns false (and fills err) to
 * stop. The reader's assignment is replaced and cleared. *next (may be NULL) is the offset to go on
 * from. */
struct kafka_range {
    struct kafka_position from;
    int timeout_ms; /* without any progress */
    bool (*visit)(void *context, const rd_kafka_message_t *message, struct err *err);
    void *context;
};
bool kafka_read_to_end(rd_kafka_t *reader, const struct kafka_range *range, int64_t *next,
                       struct err *err);

#endif
