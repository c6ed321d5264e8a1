/* SPDX-License-Identifier: Apache-2.0
 *
 * session - what every subcommand needs: options, the codec, Kafka clients.
 */
#ifndef PRODUCER_SESSION_H
#define PRODUCER_SESSION_H

#include "common/config.h"
#include "common/kafka.h"
#include "common/topics.h"
#include "schemas/codec.h"

enum {
    SESSION_TIMEOUT_MS = 15000, /* for one question to the brokers */
    BATCH_ID_SIZE_MAX = 256,
    TENANT_SIZE_MAX = 128,
};

/* Options of all subcommands; the first member of each one's own struct. */
struct session_options {
    struct config_common common;
    const char *tenant;
    bool json;
};

#define SESSION_KEYS(owner, member)                                                                \
    {.name = "tenant",                                                                             \
     .letter = 't',                                                                                \
     .type = CONFIG_STRING,                                                                        \
     .offset = offsetof(owner, member.tenant),                                                     \
     .default_value = "default",                                                                   \
     .help = "Who pays."},                                                                         \
        {.name = "json",                                                                           \
         .type = CONFIG_BOOL,                                                                      \
         .offset = offsetof(owner, member.json),                                                   \
         .help = "Print JSON lines for programs instead of text for people."},                     \
        CONFIG_COMMON_KEYS_LOGGING(owner, member.common, "error")

struct session {
    const struct session_options *options;
    struct config_list settings;
    struct codec *codec;
    rd_kafka_t *reader;
    rd_kafka_t *producer; /* NULL until session_open_producer() */
    uint64_t undelivered; /* messages whose delivery has failed for good */
    struct err delivery;  /* why the last of them failed */
};

/* Opens codec and reader and makes sure that the cluster answers and has our topics. */
bool session_open(struct session *session, const struct session_options *options,
                  struct config_list settings, struct err *err);
/* For a subcommand that needs no topics yet, or that produces; opens the codec, too, if need be. */
bool session_open_producer(struct session *session, const struct session_options *options,
                           struct config_list settings, struct err *err);
void session_close(struct session *session);

void session_topic(const struct session *session, enum topic topic, char name[TOPIC_NAME_SIZE_MAX]);

/* Makes sure that a topic is there to be written to. */
bool session_prepare(struct session *session, enum topic topic, struct err *err);
/* Encodes and produces one record; waits while the queue is full. */
bool session_produce(struct session *session, enum topic topic, struct str key,
                     const struct record *record, struct buffer *buffer, struct err *err);
/* Waits until everything produced is acknowledged; RETRY if something was not. */
bool session_flush(struct session *session, struct err *err);

#endif
