/* SPDX-License-Identifier: Apache-2.0 */
#include "producer/session.h"

#include <stdio.h>
#include <string.h>

#include "common/stop.h"

static void on_delivered(rd_kafka_t *client, const rd_kafka_message_t *message, void *context)
{
    struct session *session = context;

    (void)client;
    if (message->err) {
        session->undelivered++;
        kafka_code(message->err, rd_kafka_topic_name(message->rkt), &session->delivery);
    }
}

static struct kafka_options kafka_options_of(struct session *session)
{
    const struct config_common *common = &session->options->common;

    return (struct kafka_options){.brokers = common->brokers,
                                  .client_id = *common->client_id ? common->client_id : "pelton",
                                  .settings = session->settings,
                                  .delivered = on_delivered,
                                  .context = session};
}

bool session_open(struct session *session, const struct session_options *options,
                  struct config_list settings, enum session_use use, struct err *err)
{
    struct kafka_options kafka;

    *session = (struct session){.options = options, .settings = settings};
    kafka = kafka_options_of(session);
    return codec_open(&session->codec, err) &&
           (use == SESSION_PRODUCES || kafka_open(&session->reader, KAFKA_READER, &kafka, err)) &&
           (use == SESSION_READS || kafka_open(&session->producer, KAFKA_PRODUCER, &kafka, err));
}

bool session_connect(struct session *session, struct err *err)
{
    char control[TOPIC_NAME_SIZE_MAX];
    int32_t count;

    session_topic(session, TOPIC_CONTROL, control);
    return kafka_partition_count(session->reader, control, SESSION_TIMEOUT_MS, &count, err);
}

void session_close(struct session *session)
{
    kafka_close(session->producer, 0);
    kafka_close(session->reader, 0);
    codec_close(session->codec);
    *session = (struct session){.options = NULL};
}

void session_topic(const struct session *session, enum topic topic, char name[TOPIC_NAME_SIZE_MAX])
{
    topic_name(name, session->options->common.topic_prefix, topic);
}

bool session_prepare(struct session *session, enum topic topic, struct err *err)
{
    char name[TOPIC_NAME_SIZE_MAX];

    session_topic(session, topic, name);
    return kafka_prepare(session->producer, name, SESSION_TIMEOUT_MS, err);
}

bool session_produce(struct session *session, enum topic topic, struct str key,
                     const struct record *record, struct buffer *buffer, struct err *err)
{
    char name[TOPIC_NAME_SIZE_MAX], type[64];
    struct kafka_message message;

    if (!codec_encode(session->codec, record, buffer, err))
        return false;
    session_topic(session, topic, name);
    snprintf(type, sizeof type, "pelton.%s", record_type_name(record->type));
    message = (struct kafka_message){
        .topic = name,
        .partition = RD_KAFKA_PARTITION_UA,
        .key = key.data,
        .key_size = key.size,
        .value = buffer->data,
        .value_size = buffer->size,
        .type = type,
        .source = "/pelton",
        .id = record->type == RECORD_REQUEST ? record->u.request.request_id.bytes : NULL};
    /* A full queue is the normal state of a fast reader; only the brokers' silence ends the wait,
     * through message.timeout.ms. */
    while (!kafka_produce_wait(session->producer, &message, 1000, err))
        if (err->kind != ERR_RETRY || session->undelivered > 0 || stop_requested())
            return false;
    return true;
}

bool session_flush(struct session *session, struct err *err)
{
    while (!kafka_flush(session->producer, 200, err))
        if (err->kind != ERR_RETRY || stop_requested())
            return false;
    if (session->undelivered == 0)
        return true;
    return err_set(err, ERR_RETRY, "%llu messages were not acknowledged (%.150s)",
                   (unsigned long long)session->undelivered, session->delivery.message);
}

bool session_control(struct session *session, const struct record *record, struct err *err)
{
    char key[STATE_KEY_SIZE_MAX];
    const struct str text = {key, state_key(record, key)};
    struct buffer buffer = {0};
    bool ok = session_produce(session, TOPIC_CONTROL, text, record, &buffer, err) &&
              session_flush(session, err);

    buffer_free(&buffer);
    return ok;
}
