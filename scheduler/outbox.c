/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/outbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "common/clock.h"
#include "common/kafka.h"
#include "common/log.h"

/* Left for key, headers and Kafka's own framing below the 18 MB that a topic takes. */
enum { FRAMING_SIZE_MAX = 64 * 1024, PREPARE_TIMEOUT_MS = 10000 };
#define SOURCE "/pelton-scheduler"

struct outbox {
    rd_kafka_t *producer;
    const struct topic_map *topics;
    struct codec *codec;
    struct buffer buffer;
    bool open; /* a transaction is */
    bool fenced;
    /* Of the present transaction. */
    size_t failures;
    size_t reasons;             /* of these, not only swept away with others */
    struct err failure;         /* the first reason */
    int64_t *ends[TOPIC_COUNT]; /* results, usage: [partition], -1 not written; else NULL */
};

/* What no new producer gets over, and nobody but a person. */
static bool is_hopeless(rd_kafka_resp_err_t code)
{
    switch (code) {
    case RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR__AUTHENTICATION:
    case RD_KAFKA_RESP_ERR_INVALID_TRANSACTION_TIMEOUT:
        return true;
    default:
        return false;
    }
}

static void outbox_delivered(rd_kafka_t *client, const rd_kafka_message_t *message, void *context)
{
    struct outbox *outbox = context;
    enum topic topic = (enum topic)(intptr_t)message->_private;

    (void)client;
    if (message->err) {
        bool swept = message->err == RD_KAFKA_RESP_ERR__PURGE_QUEUE ||
                     message->err == RD_KAFKA_RESP_ERR__PURGE_INFLIGHT;
        outbox->failures++;
        if (!swept && outbox->reasons++ == 0)
            err_set(&outbox->failure, is_hopeless(message->err) ? ERR_FATAL : ERR_ABORT,
                    "a message to %s[%d] was not delivered: %s", outbox->topics->names[topic],
                    (int)message->partition, rd_kafka_err2str(message->err));
        return;
    }
    if (outbox->ends[topic] && message->offset >= outbox->ends[topic][message->partition])
        outbox->ends[topic][message->partition] = message->offset + 1;
}

static void outbox_forget_ends(struct outbox *outbox)
{
    for (int topic = 0; topic < TOPIC_COUNT; topic++) {
        for (int32_t i = 0; outbox->ends[topic] && i < outbox->topics->partitions[topic]; i++)
            outbox->ends[topic][i] = -1;
    }
}

bool outbox_open(struct outbox **outbox, const struct outbox_options *options, struct err *err)
{
    static const enum topic watched[] = {TOPIC_RESULTS, TOPIC_USAGE};
    /* What nearly every term sends; the first transaction would wait a second for each. */
    static const enum topic sent[] = {TOPIC_STATE, TOPIC_ASSIGNMENTS, TOPIC_RESULTS, TOPIC_USAGE};
    struct outbox *opened = calloc(1, sizeof *opened);
    struct kafka_options kafka = {
        .brokers = options->brokers,
        .client_id = options->client_id,
        .settings = options->settings,
        .transactional_id = options->transactional_id,
        .delivered = outbox_delivered,
        .context = opened,
    };

    CHECK(opened);
    opened->topics = options->topics;
    opened->codec = options->codec;
    if (!kafka_open(&opened->producer, KAFKA_TRANSACTIONAL, &kafka, err)) {
        free(opened);
        return false;
    }
    for (size_t i = 0; i < sizeof watched / sizeof watched[0]; i++) {
        size_t partitions = (size_t)options->topics->partitions[watched[i]];
        opened->ends[watched[i]] = calloc(partitions, sizeof(int64_t));
        CHECK(opened->ends[watched[i]]);
    }
    outbox_forget_ends(opened);
    for (size_t i = 0; i < sizeof sent / sizeof sent[0]; i++)
        if (!kafka_prepare(opened->producer, options->topics->names[sent[i]], PREPARE_TIMEOUT_MS,
                           err)) {
            if (err->kind == ERR_REJECT) /* it was there: a broker that has just restarted */
                err->kind = ERR_RETRY;
            outbox_close(opened);
            return false;
        }
    *outbox = opened;
    return true;
}

/* Success for NULL. After a failure only the kind is left to say: what cannot be retried by a new
 * producer ends the process. */
static bool outbox_error(struct outbox *outbox, rd_kafka_error_t *error, const char *what,
                         struct err *err)
{
    if (!error)
        return true;
    rd_kafka_resp_err_t code = rd_kafka_error_code(error);
    kafka_error(error, what, err);
    rd_kafka_resp_err_t fatal = rd_kafka_fatal_error(outbox->producer, NULL, 0);
    outbox->fenced = code == RD_KAFKA_RESP_ERR__FENCED || fatal == RD_KAFKA_RESP_ERR__FENCED;
    if (is_hopeless(code))
        err->kind = ERR_FATAL;
    else if (err->kind != ERR_RETRY)
        err->kind = ERR_ABORT;
    return false;
}

void outbox_close(struct outbox *outbox)
{
    struct err err;

    if (!outbox)
        return;
    /* Polite only: readers of results wait for an open transaction's end. The successor's
     * initialisation ends it in any case. */
    if (outbox->open && !outbox->fenced &&
        !kafka_error(rd_kafka_abort_transaction(outbox->producer, 1000), "aborting", &err))
        log_err(LOG_LEVEL_INFO, "abort_failed", &err);
    kafka_close(outbox->producer, 0);
    for (int topic = 0; topic < TOPIC_COUNT; topic++)
        free(outbox->ends[topic]);
    buffer_free(&outbox->buffer);
    free(outbox);
}

bool outbox_init(struct outbox *outbox, int timeout_ms, struct err *err)
{
    return outbox_error(outbox, rd_kafka_init_transactions(outbox->producer, timeout_ms),
                        "initialising transactions", err);
}

bool outbox_fenced(const struct outbox *outbox)
{
    return outbox->fenced;
}

int64_t outbox_written_end(const struct outbox *outbox, enum topic topic, int32_t partition)
{
    CHECK(outbox->ends[topic]);
    CHECK(partition >= 0 && partition < outbox->topics->partitions[topic]);
    return outbox->ends[topic][partition];
}

/* Leaves the record's message in the buffer. Only an assignment can outgrow a message: a request of
 * nearly 16 MB with a long prefix. It goes out without the prefix, and the attempt says the same
 * tokens again. Results are bounded by the core. */
static bool outbox_encode(struct outbox *outbox, const struct record *record, struct err *err)
{
    struct record smaller = *record;
    size_t size_max = CODEC_MESSAGE_SIZE_MAX - FRAMING_SIZE_MAX;

    bool fits = codec_encode(outbox->codec, record, &outbox->buffer, err);
    if (fits && outbox->buffer.size <= size_max)
        return true;
    if (record->type == RECORD_ASSIGNMENT && record->u.assignment.prefix.count > 0) {
        smaller.u.assignment.prefix = (struct i32_array){NULL, 0};
        LOG_WARN("prefix_left_out", "attempt=%u tokens=%zu", record->u.assignment.attempt,
                 record->u.assignment.prefix.count);
        return codec_encode(outbox->codec, &smaller, &outbox->buffer, err);
    }
    return err_set(err, ERR_FATAL, "a %s record does not fit into a message of 18 MB",
                   record_type_name(record->type));
}

static size_t outbox_key(const struct action *action, char key[STATE_KEY_SIZE_MAX])
{
    if (action->topic == TOPIC_STATE || action->topic == TOPIC_CONTROL)
        return state_key(action->record, key);
    if (action->record->type == RECORD_WORKER_TIME)
        return (size_t)snprintf(key, STATE_KEY_SIZE_MAX, "slot/%u",
                                action->record->u.worker_time.slot);
    if (action->topic == TOPIC_ASSIGNMENTS)
        return (size_t)snprintf(key, STATE_KEY_SIZE_MAX, "slot/%d", (int)action->partition);
    request_id_format(&action->id, key);
    return REQUEST_ID_TEXT_SIZE;
}

static bool outbox_send(struct outbox *outbox, const struct action *action, int timeout_ms,
                        struct err *err)
{
    static const uint8_t none[16];
    char key[STATE_KEY_SIZE_MAX], type[64];

    if (!outbox_encode(outbox, action->record, err))
        return false;
    snprintf(type, sizeof type, "pelton.%s", record_type_name(action->record->type));
    struct kafka_message message = {
        .topic = outbox->topics->names[action->topic],
        .partition = action->partition < 0 ? RD_KAFKA_PARTITION_UA : action->partition,
        .key = key,
        .key_size = outbox_key(action, key),
        .value = outbox->buffer.data,
        .value_size = outbox->buffer.size,
        /* Nobody but the next leader reads the state: no event headers for it. */
        .type = action->topic == TOPIC_STATE ? NULL : type,
        .source = SOURCE,
        .id = memcmp(action->id.bytes, none, sizeof none) != 0 ? action->id.bytes : NULL,
        .opaque = (void *)(intptr_t)action->topic,
    };
    return kafka_produce_wait(outbox->producer, &message, timeout_ms, err);
}

static bool outbox_delete(struct outbox *outbox, const struct action *action, int timeout_ms,
                          struct err *err)
{
    struct record mark = {.type = RECORD_DONE_MARK, .u.done_mark.request_id = action->id};
    char key[STATE_KEY_SIZE_MAX];
    struct kafka_message message = {
        .topic = outbox->topics->names[TOPIC_STATE],
        .partition = 0,
        .key = key,
        .key_size = state_key(&mark, key),
        .opaque = (void *)(intptr_t)TOPIC_STATE,
    };

    return kafka_produce_wait(outbox->producer, &message, timeout_ms, err);
}

static void add_header(rd_kafka_headers_t *headers, const char *name, const char *value,
                       size_t size)
{
    CHECK(rd_kafka_header_add(headers, name, -1, value, (ssize_t)size) == 0);
}

static void add_number(rd_kafka_headers_t *headers, const char *name, int64_t value)
{
    char text[24];
    int size = snprintf(text, sizeof text, "%lld", (long long)value);

    add_header(headers, name, text, (size_t)size);
}

/* What failed, and its key: the original bytes where they were no request, else the request. */
static bool outbox_remains(struct outbox *outbox, const struct action *action,
                           char id[REQUEST_ID_TEXT_SIZE + 1], struct str *key, struct str *value,
                           struct err *err)
{
    if (!action->record) {
        *key = action->key;
        *value = action->raw;
        return true;
    }
    request_id_format(&action->id, id);
    *key = (struct str){id, REQUEST_ID_TEXT_SIZE};
    if (!codec_encode(outbox->codec, action->record, &outbox->buffer, err))
        return false;
    *value = (struct str){(const char *)outbox->buffer.data, outbox->buffer.size};
    return true;
}

/* With the headers that Kafka Connect's dead letters carry, for its tools. */
static bool outbox_bury(struct outbox *outbox, const struct action *action, int timeout_ms,
                        struct err *err)
{
    const char *origin = outbox->topics->names[action->position.topic];
    size_t size_max = CODEC_MESSAGE_SIZE_MAX - FRAMING_SIZE_MAX;
    size_t reason_size = action->reason.size < 4096 ? action->reason.size : 4096;
    char id[REQUEST_ID_TEXT_SIZE + 1];
    struct str key, value;

    if (!outbox_remains(outbox, action, id, &key, &value, err))
        return false;
    rd_kafka_headers_t *headers = rd_kafka_headers_new(8);
    add_header(headers, "__connect.errors.topic", origin, strlen(origin));
    add_number(headers, "__connect.errors.partition", action->position.partition);
    add_number(headers, "__connect.errors.offset", action->position.offset);
    add_header(headers, "__connect.errors.connector.name", "pelton-scheduler", 16);
    add_header(headers, "__connect.errors.stage", "VALUE_CONVERTER", 15);
    add_header(headers, "__connect.errors.exception.message", action->reason.data, reason_size);
    if (value.size > size_max)
        add_number(headers, "pelton.cut.from.size", (int64_t)value.size);
    struct kafka_message message = {
        .topic = outbox->topics->names[TOPIC_DEAD_LETTERS],
        .partition = RD_KAFKA_PARTITION_UA,
        .key = key.size > 0 ? key.data : NULL,
        .key_size = key.size,
        .value = value.data,
        .value_size = value.size < size_max ? value.size : size_max,
        .source = SOURCE,
        .id = action->record ? action->id.bytes : NULL,
        .headers = headers,
        .opaque = (void *)(intptr_t)TOPIC_DEAD_LETTERS,
    };
    bool ok = kafka_produce_wait(outbox->producer, &message, timeout_ms, err);
    if (!ok)
        rd_kafka_headers_destroy(headers);
    return ok;
}

static bool is_sent(enum action_type type)
{
    return type == ACTION_SEND || type == ACTION_TOMBSTONE || type == ACTION_DEAD_LETTER;
}

static bool outbox_fill(struct outbox *outbox, const struct actions *actions, int timeout_ms,
                        struct err *err)
{
    for (size_t i = 0; i < actions->count; i++) {
        const struct action *action = &actions->items[i];
        bool ok = true;
        if (action->type == ACTION_SEND)
            ok = outbox_send(outbox, action, timeout_ms, err);
        else if (action->type == ACTION_TOMBSTONE)
            ok = outbox_delete(outbox, action, timeout_ms, err);
        else if (action->type == ACTION_DEAD_LETTER)
            ok = outbox_bury(outbox, action, timeout_ms, err);
        if (!ok) {
            /* A full queue that does not drain, or a producer that has failed by now; the next
             * producer may do better. What cannot be encoded stays FATAL. */
            rd_kafka_resp_err_t fatal = rd_kafka_fatal_error(outbox->producer, NULL, 0);
            outbox->fenced = fatal == RD_KAFKA_RESP_ERR__FENCED;
            if (err->kind == ERR_RETRY || fatal)
                err->kind = ERR_ABORT;
            return false;
        }
    }
    return true;
}

bool outbox_commit(struct outbox *outbox, const struct actions *actions, int timeout_ms,
                   size_t *sent, struct err *err)
{
    int64_t until_us = clock_mono_us() + (int64_t)timeout_ms * 1000;

    *sent = 0;
    for (size_t i = 0; i < actions->count; i++)
        *sent += is_sent(actions->items[i].type);
    outbox_forget_ends(outbox);
    if (*sent == 0)
        return true;
    outbox->failures = outbox->reasons = 0;
    if (!outbox_error(outbox, rd_kafka_begin_transaction(outbox->producer),
                      "beginning a transaction", err))
        return false;
    outbox->open = true;
    if (!outbox_fill(outbox, actions, timeout_ms, err))
        return false;
    int64_t left_ms = (until_us - clock_mono_us()) / 1000;
    if (!outbox_error(outbox,
                      rd_kafka_commit_transaction(outbox->producer, left_ms > 0 ? (int)left_ms : 0),
                      "committing a tick", err)) {
        if (outbox->reasons > 0)
            *err = outbox->failure;
        if (err->kind == ERR_RETRY)
            err->kind = ERR_ABORT; /* slow or unknown: the next term reads what became of it */
        return false;
    }
    outbox->open = false;
    CHECK(outbox->failures == 0); /* librdkafka does not commit over a failed delivery */
    return true;
}
