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
};

/* Options of all subcommands; the first member of each one's own struct. */
struct session_options {
    struct config_common common;
    const char *tenant; /* who pays; to look: "" or NULL, everybody's jobs */
    bool json;
};

/* Before SESSION_KEYS, in what submits and in what looks at jobs. */
#define SESSION_TENANT_KEY(owner, member, tenant_default, tenant_help)                             \
    {                                                                                              \
        .name = "tenant", .letter = 't', .type = CONFIG_STRING,                                    \
        .offset = offsetof(owner, member.tenant), .default_value = (tenant_default),               \
        .help = (tenant_help)                                                                      \
    }
#define SESSION_TENANT_FILTER(owner, member)                                                       \
    SESSION_TENANT_KEY(owner, member, "", "Only jobs of this tenant; everybody's where not given.")

#define SESSION_KEYS(owner, member)                                                                \
    {.name = "json",                                                                               \
     .type = CONFIG_BOOL,                                                                          \
     .offset = offsetof(owner, member.json),                                                       \
     .help = "Print JSON lines for programs instead of text for people."},                         \
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

/* What a subcommand does with Kafka. */
enum session_use {
    SESSION_READS,    /* a reader */
    SESSION_PRODUCES, /* a producer; the topics need not be there yet */
    SESSION_BOTH,
};

/* Opens codec and clients without asking Kafka anything. REJECT: an option or a -X setting. */
bool session_open(struct session *session, const struct session_options *options,
                  struct config_list settings, enum session_use use, struct err *err);
/* Makes sure that the cluster answers the reader and has our topics. */
bool session_connect(struct session *session, struct err *err);
void session_close(struct session *session);

void session_topic(const struct session *session, enum topic topic, char name[TOPIC_NAME_SIZE_MAX]);

/* Makes sure that a topic is there to be written to. */
bool session_prepare(struct session *session, enum topic topic, struct err *err);
/* Encodes and produces one record; waits while the queue is full. */
bool session_produce(struct session *session, enum topic topic, struct str key,
                     const struct record *record, struct buffer *buffer, struct err *err);
/* Produces one record of the control topic under its key and waits for its acknowledgement. */
bool session_control(struct session *session, const struct record *record, struct err *err);
/* Waits until everything produced is acknowledged; RETRY if something was not. */
bool session_flush(struct session *session, struct err *err);

#endif
