/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/shell/link.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/kafka.h"
#include "common/log.h"
#include "common/topics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    HELLO_TIMEOUT_MS = 10000,   /* a broker that starts, and its first metadata */
    PRODUCE_TIMEOUT_MS = 10000, /* the local queue is full: that is 128 MB */
    POLL_MESSAGES_MAX = 256,    /* of one link_poll(), our own events among them */
    CREATED_MS = 3000,          /* until all brokers know a topic that has just been made */
};

struct link {
    struct link_options options;
    rd_kafka_t *reader;
    rd_kafka_t *producer;
    rd_kafka_queue_t *reader_queue, *producer_queue; /* they wake us */
    struct codec *codec;
    struct buffer buffer;
    char assignments[TOPIC_NAME_SIZE_MAX];
    char events[TOPIC_NAME_SIZE_MAX];
    char tokens[TOPIC_NAME_SIZE_MAX];
    char source[48]; /* of CloudEvents */
    char key[12];    /* of events: the slot */
    struct request_id incarnation;
    int64_t opened_us;
    bool known;           /* the topics were there once: who misses them now has just restarted */
    int64_t hello_offset; /* -1: not delivered */
    bool hello_failed;
};

static void on_delivered(rd_kafka_t *client, const rd_kafka_message_t *message, void *context)
{
    struct link *link = context;
    const char *error = message->err ? rd_kafka_err2str(message->err) : NULL;
    bool chunk = strcmp(rd_kafka_topic_name(message->rkt), link->tokens) == 0;

    (void)client;
    if (message->_private == link) { /* Hello: it is no task, and its offset is wanted */
        link->hello_failed = error != NULL;
        link->hello_offset = message->offset;
    } else if (message->_private != NULL) {
        link->options.delivered(link->options.delivered_context, message->_private, chunk, error);
    } else if (error != NULL) {
        LOG_WARN("event_lost", "topic=%s error=%s", rd_kafka_topic_name(message->rkt), error);
    }
}

static void on_arrival(rd_kafka_t *client, void *context)
{
    struct link *link = context;

    (void)client;
    link->options.wake(link->options.wake_context);
}

static bool open_clients(struct link *link, struct err *err)
{
    const struct config_common *common = link->options.common;
    char client_id[128];
    struct kafka_options options = {
        .brokers = common->brokers,
        .client_id = client_id,
        .settings = link->options.kafka_settings,
        .delivered = on_delivered,
        .context = link,
    };

    snprintf(client_id, sizeof client_id, "%s-%u",
             common->client_id[0] != '\0' ? common->client_id : "pelton-worker",
             link->options.slot);
    if (!codec_open(&link->codec, err) ||
        !kafka_open(&link->producer, KAFKA_PRODUCER, &options, err) ||
        !kafka_open(&link->reader, KAFKA_READER, &options, err))
        return false;
    link->producer_queue = rd_kafka_queue_get_main(link->producer);
    link->reader_queue = rd_kafka_queue_get_consumer(link->reader);
    rd_kafka_queue_cb_event_enable(link->producer_queue, on_arrival, link);
    rd_kafka_queue_cb_event_enable(link->reader_queue, on_arrival, link);
    return true;
}

bool link_open(struct link **link, const struct link_options *options, struct err *err)
{
    struct link *made = calloc(1, sizeof *made);

    CHECK(made != NULL);
    made->options = *options;
    made->opened_us = clock_mono_us();
    topic_name(made->assignments, options->common->topic_prefix, TOPIC_ASSIGNMENTS);
    topic_name(made->events, options->common->topic_prefix, TOPIC_WORKER_EVENTS);
    topic_name(made->tokens, options->common->topic_prefix, TOPIC_TOKENS);
    snprintf(made->source, sizeof made->source, "/pelton-worker/%u", options->slot);
    snprintf(made->key, sizeof made->key, "%u", options->slot);
    if (!open_clients(made, err)) {
        link_close(made, 0);
        return false;
    }
    *link = made;
    return true;
}

bool link_await(struct link *link, struct err *err)
{
    /* Having asked for them spares the first event and the first token a second each. */
    const char *const produced[] = {link->events, link->tokens};
    const char *const read[] = {link->assignments};

    return kafka_await_topics(link->producer, produced, 2, err) &&
           kafka_await_topics(link->reader, read, 1, err);
}

static void close_queue(rd_kafka_queue_t *queue)
{
    if (queue == NULL)
        return;
    rd_kafka_queue_cb_event_enable(queue, NULL, NULL);
    rd_kafka_queue_destroy(queue);
}

void link_close(struct link *link, int flush_ms)
{
    if (link == NULL)
        return;
    close_queue(link->reader_queue);
    close_queue(link->producer_queue);
    kafka_close(link->reader, 0);
    kafka_close(link->producer, flush_ms);
    codec_close(link->codec);
    buffer_free(&link->buffer);
    free(link);
}

static bool produce(struct link *link, const struct record *record, struct kafka_message *message,
                    struct err *err)
{
    char type[64];

    if (!codec_encode(link->codec, record, &link->buffer, err))
        return false;
    if (link->buffer.size > CODEC_REQUEST_SIZE_MAX)
        return err_set(err, ERR_REJECT, "%s of %zu bytes is above the limit of %d",
                       record_type_name(record->type), link->buffer.size, CODEC_REQUEST_SIZE_MAX);
    snprintf(type, sizeof type, "pelton.%s", record_type_name(record->type));
    message->type = type;
    message->source = link->source;
    message->value = link->buffer.data;
    message->value_size = link->buffer.size;
    return kafka_produce_wait(link->producer, message, PRODUCE_TIMEOUT_MS, err);
}

static const struct request_id *request_of(const struct record *record)
{
    switch (record->type) {
    case RECORD_PROGRESS:
        return &record->u.progress.request_id;
    case RECORD_DONE:
        return &record->u.done.request_id;
    case RECORD_FAILED:
        return &record->u.failed.request_id;
    case RECORD_YIELD:
        return &record->u.yield.request_id;
    default:
        return NULL;
    }
}

static bool produce_event(struct link *link, const struct record *record, void *opaque,
                          struct err *err)
{
    const struct request_id *id = request_of(record);
    struct kafka_message message = {
        .topic = link->events,
        .partition = (int32_t)link->options.slot,
        .key = link->key,
        .key_size = strlen(link->key),
        .id = id != NULL ? id->bytes : NULL,
        .opaque = opaque,
    };

    return produce(link, record, &message, err);
}

bool link_event(struct link *link, const struct record *record, struct task *task, struct err *err)
{
    return produce_event(link, record, task, err);
}

bool link_chunk(struct link *link, const struct token_chunk *chunk, struct task *task,
                struct err *err)
{
    struct record record = {.type = RECORD_TOKEN_CHUNK, .u.token_chunk = *chunk};
    char key[REQUEST_ID_TEXT_SIZE + 1];
    struct kafka_message message = {
        .topic = link->tokens,
        .partition = RD_KAFKA_PARTITION_UA,
        .key = key,
        .key_size = REQUEST_ID_TEXT_SIZE,
        .id = chunk->request_id.bytes,
        .opaque = task,
    };

    request_id_format(&chunk->request_id, key);
    return produce(link, &record, &message, err);
}

bool link_hello(struct link *link, struct hello *hello, struct err *err)
{
    int32_t partition = (int32_t)link->options.slot, partitions = 0;
    struct record record = {.type = RECORD_HELLO};

    if (!kafka_partition_count(link->reader, link->events, HELLO_TIMEOUT_MS, &partitions, err)) {
        if (err->kind == ERR_REJECT &&
            (link->known || clock_mono_us() - link->opened_us < CREATED_MS * (int64_t)1000))
            err->kind = ERR_RETRY;
        return false;
    }
    link->known = true;
    if (partition >= partitions)
        return err_set(err, ERR_REJECT, "slot %d: topic %s has %d partitions, slots start at 0",
                       partition, link->events, partitions);
    if (!kafka_offsets(link->reader, link->assignments, partition, HELLO_TIMEOUT_MS, NULL,
                       &hello->assignments_offset, err))
        return false;
    link->incarnation = hello->incarnation;
    link->hello_offset = -1;
    link->hello_failed = false;
    record.u.hello = *hello;
    if (!produce_event(link, &record, link, err) ||
        !kafka_flush(link->producer, HELLO_TIMEOUT_MS, err))
        return false;
    if (link->hello_failed || link->hello_offset < 0)
        return err_set(err, ERR_RETRY, "topic %s, slot %d: Hello was not delivered", link->events,
                       partition);
    struct kafka_position positions[] = {
        {link->assignments, partition, hello->assignments_offset},
        {link->events, partition, link->hello_offset + 1},
    };
    return kafka_assign(link->reader, positions, 2, err);
}

/* Our own events come back here, too: only the type in the headers is looked at, and Hello alone
 * is decoded. */
static bool is_other_hello(struct link *link, const rd_kafka_message_t *message)
{
    struct record *record = NULL;
    char type[64];
    struct err err;
    bool other;

    if (!kafka_header(message, "ce_type", type, sizeof type) || strcmp(type, "pelton.Hello") != 0)
        return false;
    if (!codec_decode(link->codec, message->payload, message->len, &record, &err)) {
        log_err(LOG_LEVEL_WARN, "hello_unreadable", &err);
        return false;
    }
    other = record->type == RECORD_HELLO &&
            !request_id_equal(&record->u.hello.incarnation, &link->incarnation);
    record_free(record);
    return other;
}

bool link_poll(struct link *link, int timeout_ms, struct record **record, bool *superseded,
               struct err *err)
{
    rd_kafka_message_t *message = NULL;
    struct err decode;

    *record = NULL;
    rd_kafka_poll(link->producer, 0);
    for (int i = 0; i < POLL_MESSAGES_MAX && *record == NULL; i++) {
        if (!kafka_poll(link->reader, i == 0 ? timeout_ms : 0, &message, err))
            return false;
        if (message == NULL) { /* nothing, or only the notice of a partition's end */
            if (rd_kafka_queue_length(link->reader_queue) == 0)
                break;
            continue;
        }
        if (strcmp(rd_kafka_topic_name(message->rkt), link->events) == 0)
            *superseded = *superseded || is_other_hello(link, message);
        else if (!codec_decode(link->codec, message->payload, message->len, record, &decode))
            LOG_WARN("command_unreadable", "topic=%s partition=%d offset=%lld error=%s",
                     link->assignments, (int)message->partition, (long long)message->offset,
                     decode.message);
        rd_kafka_message_destroy(message);
    }
    return kafka_healthy(link->producer, err);
}

bool link_flush(struct link *link, int timeout_ms, struct err *err)
{
    return kafka_flush(link->producer, timeout_ms, err);
}
