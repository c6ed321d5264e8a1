/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/feed.h"

#include <stdio.h>

#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"

int64_t feed_now_ms(struct feed *feed)
{
    return steady_now_ms(&feed->clock, clock_wall_ms(), clock_mono_us());
}

void feed_step(struct feed *feed, const struct event *event)
{
    scheduler_step(feed->scheduler, event, feed_now_ms(feed), &feed->actions);
}

/* What may stand in a topic, and the event that it is. */
static bool type_fits(enum topic topic, enum record_type type)
{
    switch (topic) {
    case TOPIC_REQUESTS_INTERACTIVE:
    case TOPIC_REQUESTS_BULK:
        return type == RECORD_REQUEST;
    case TOPIC_CONTROL:
        return type == RECORD_BATCH || type == RECORD_CANCEL_BATCH || type == RECORD_BATCH_CLAIM;
    case TOPIC_WORKER_EVENTS:
        return type >= RECORD_HELLO && type <= RECORD_GOODBYE;
    default:
        return false;
    }
}

static enum event_type event_of(enum topic topic)
{
    return topic == TOPIC_CONTROL         ? EVENT_CONTROL
           : topic == TOPIC_WORKER_EVENTS ? EVENT_WORKER
                                          : EVENT_REQUEST;
}

/* What keys, database and everybody behind take for granted of names. */
static bool names_fit(const struct record *record, struct err *err)
{
    const struct str none = {NULL, 0};
    const struct request *request = &record->u.request;

    switch (record->type) {
    case RECORD_REQUEST:
        return names_check(request->tenant, request->batch_id, request->custom_id, request->model,
                           err);
    case RECORD_BATCH:
        return names_check(record->u.batch.tenant, record->u.batch.batch_id, none, none, err);
    case RECORD_BATCH_CLAIM:
        return names_check(record->u.batch_claim.tenant, record->u.batch_claim.batch_id, none, none,
                           err);
    case RECORD_CANCEL_BATCH:
        return names_check(record->u.cancel_batch.tenant, record->u.cancel_batch.batch_id, none,
                           none, err);
    default:
        return true;
    }
}

/* The record, for record_free(). REJECT says what is wrong with the message. */
static bool feed_decode(struct feed *feed, enum topic topic, const rd_kafka_message_t *message,
                        struct record **record, struct err *err)
{
    bool is_request = event_of(topic) == EVENT_REQUEST;

    if (!message->payload)
        return err_set(err, ERR_REJECT, "the message has no value");
    if (is_request && message->len > CODEC_REQUEST_SIZE_MAX)
        return err_set(err, ERR_REJECT, "the request has %zu bytes, at most %d are allowed",
                       message->len, CODEC_REQUEST_SIZE_MAX);
    if (!codec_decode(feed->codec, message->payload, message->len, record, err))
        return false;
    if (!type_fits(topic, (*record)->type))
        err_set(err, ERR_REJECT, "a %s record does not belong into this topic",
                record_type_name((*record)->type));
    else if (names_fit(*record, err))
        return true;
    record_free(*record);
    *record = NULL;
    return false;
}

bool feed_live(void *context, enum topic topic, const rd_kafka_message_t *message, struct err *err)
{
    struct feed *feed = context;
    struct record *record = NULL;
    rd_kafka_timestamp_type_t timestamp_type;
    struct err cause;
    struct event event = {
        .type = event_of(topic),
        .position = {.topic = topic, .partition = message->partition, .offset = message->offset},
        .timestamp_ms = rd_kafka_message_timestamp(message, &timestamp_type),
        .slot = (uint32_t)message->partition,
    };

    (void)err;
    feed->messages_total++;
    /* A deleted control entry: its batch is too old to matter. */
    if (!message->payload && topic == TOPIC_CONTROL)
        return true;
    if (!feed_decode(feed, topic, message, &record, &cause)) {
        LOG_WARN("message_unreadable", "topic=%s partition=%d offset=%lld error=%s",
                 rd_kafka_topic_name(message->rkt), (int)message->partition,
                 (long long)message->offset, cause.message);
        if (event.type != EVENT_REQUEST) {
            feed->unreadable_total++;
            return true;
        }
        event.type = EVENT_BAD_REQUEST;
        event.raw = (struct str){message->payload, message->len};
        event.key = (struct str){message->key, message->key_len};
        event.reason = str_from(cause.message);
    }
    event.record = record;
    feed_step(feed, &event);
    record_free(record);
    return true;
}
