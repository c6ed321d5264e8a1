/* SPDX-License-Identifier: Apache-2.0
 *
 * The half of kafka.h that moves messages.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/check.h"
#include "common/clock.h"
#include "common/kafka.h"
#include "common/log.h"
#include "common/stop.h"

enum {
    WHAT_SIZE_MAX = 320, /* a topic name, partition, offset and two words */
    ASK_MS = 1000,       /* for one answer of a partition's leader; a hundred times the usual */
    ASK_PAUSE_MS = 20,
    AWAIT_MS = 100,    /* between two looks at a stop request */
    BROKER_MS = 10000, /* between two lines about a broker that is away */
    /* Brokers learn of new topics one after the other: what `pelton topics create` has just made
     * may be missing in the first answers. */
    CREATED_MS = 3000,
};

static void add_header(rd_kafka_headers_t *headers, const char *name, const char *value)
{
    CHECK(rd_kafka_header_add(headers, name, -1, value, -1) == RD_KAFKA_RESP_ERR_NO_ERROR);
}

/* CloudEvents in Kafka's binary mode, and W3C trace context. */
static rd_kafka_headers_t *make_headers(const struct kafka_message *message)
{
    rd_kafka_headers_t *headers =
        message->headers ? rd_kafka_headers_copy(message->headers) : rd_kafka_headers_new(5);
    uint8_t random_id[UUID_SIZE];
    const uint8_t *id = message->id;
    char trace[TRACEPARENT_SIZE], event_id[2 * UUID_SIZE + 1];

    if (!id) {
        uuid_random(random_id);
        id = random_id;
    }
    if (message->traceparent) {
        add_header(headers, "traceparent", message->traceparent);
    } else {
        traceparent_format(id, trace);
        add_header(headers, "traceparent", trace);
    }
    if (message->type) {
        /* The event's own id: one request has many events, and each message is one. */
        random_bytes(random_id, sizeof random_id);
        hex_format(random_id, UUID_SIZE, event_id);
        add_header(headers, "ce_specversion", "1.0");
        add_header(headers, "ce_type", message->type);
        add_header(headers, "ce_source", message->source ? message->source : "/pelton");
        add_header(headers, "ce_id", event_id);
    }
    return headers;
}

bool kafka_produce(rd_kafka_t *client, const struct kafka_message *message, struct err *err)
{
    rd_kafka_headers_t *headers = make_headers(message);
    /* librdkafka declares these pointers without const and copies, as F_COPY says. */
    union {
        const void *given;
        void *taken;
    } key = {message->key}, value = {message->value};
    rd_kafka_vu_t parts[] = {
        {.vtype = RD_KAFKA_VTYPE_TOPIC, .u.cstr = message->topic},
        {.vtype = RD_KAFKA_VTYPE_PARTITION, .u.i32 = message->partition},
        {.vtype = RD_KAFKA_VTYPE_KEY, .u.mem = {key.taken, message->key_size}},
        {.vtype = RD_KAFKA_VTYPE_VALUE, .u.mem = {value.taken, message->value_size}},
        {.vtype = RD_KAFKA_VTYPE_MSGFLAGS, .u.i = RD_KAFKA_MSG_F_COPY},
        {.vtype = RD_KAFKA_VTYPE_OPAQUE, .u.ptr = message->opaque},
        {.vtype = RD_KAFKA_VTYPE_HEADERS, .u.headers = headers},
    };
    rd_kafka_error_t *error = rd_kafka_produceva(client, parts, sizeof parts / sizeof *parts);

    if (error) {
        rd_kafka_headers_destroy(headers);
        return kafka_error(error, message->topic, err);
    }
    if (message->headers)
        rd_kafka_headers_destroy(message->headers);
    return true;
}

bool kafka_produce_wait(rd_kafka_t *client, const struct kafka_message *message, int timeout_ms,
                        struct err *err)
{
    int64_t until_us = clock_mono_us() + (int64_t)timeout_ms * 1000;

    while (!kafka_produce(client, message, err)) {
        if (err->kind != ERR_RETRY || clock_mono_us() >= until_us)
            return false;
        rd_kafka_poll(client, 50);
    }
    rd_kafka_poll(client, 0);
    return true;
}

bool kafka_flush(rd_kafka_t *client, int timeout_ms, struct err *err)
{
    return kafka_code(rd_kafka_flush(client, timeout_ms), "waiting for delivery", err);
}

bool kafka_header(const rd_kafka_message_t *message, const char *name, char *text, size_t text_size)
{
    rd_kafka_headers_t *headers;
    const void *value;
    size_t size;

    if (rd_kafka_message_headers(message, &headers) != RD_KAFKA_RESP_ERR_NO_ERROR ||
        rd_kafka_header_get_last(headers, name, &value, &size) != RD_KAFKA_RESP_ERR_NO_ERROR ||
        !value || size >= text_size)
        return false;
    memcpy(text, value, size);
    text[size] = '\0';
    return true;
}

static rd_kafka_topic_partition_list_t *list_of(const struct kafka_position *positions,
                                                size_t count)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)count);

    for (size_t i = 0; i < count; i++)
        rd_kafka_topic_partition_list_add(list, positions[i].topic, positions[i].partition)
            ->offset = positions[i].offset;
    return list;
}

/* The first error that a call has left in the list. */
static bool list_code(const rd_kafka_topic_partition_list_t *list, const char *what,
                      struct err *err)
{
    for (int i = 0; i < list->cnt; i++)
        if (list->elems[i].err)
            return err_set(err, kafka_err_kind(list->elems[i].err), "%s %s[%" PRId32 "]: %s", what,
                           list->elems[i].topic, list->elems[i].partition,
                           rd_kafka_err2str(list->elems[i].err));
    return true;
}

bool kafka_assign(rd_kafka_t *reader, const struct kafka_position *positions, size_t count,
                  struct err *err)
{
    rd_kafka_topic_partition_list_t *list = count > 0 ? list_of(positions, count) : NULL;
    rd_kafka_resp_err_t code = rd_kafka_assign(reader, list);

    if (list)
        rd_kafka_topic_partition_list_destroy(list);
    return kafka_code(code, "assign", err);
}

bool kafka_seek(rd_kafka_t *reader, const struct kafka_position *position, int timeout_ms,
                struct err *err)
{
    rd_kafka_topic_partition_list_t *list = list_of(position, 1);
    bool ok = kafka_error(rd_kafka_seek_partitions(reader, list, timeout_ms), "seek", err) &&
              list_code(list, "seek", err);

    rd_kafka_topic_partition_list_destroy(list);
    return ok;
}

bool kafka_pause(rd_kafka_t *reader, const struct kafka_position *positions, size_t count,
                 struct err *err)
{
    rd_kafka_topic_partition_list_t *list = list_of(positions, count);
    bool ok = kafka_code(rd_kafka_pause_partitions(reader, list), "pause", err) &&
              list_code(list, "pause", err);

    rd_kafka_topic_partition_list_destroy(list);
    return ok;
}

bool kafka_resume(rd_kafka_t *reader, const struct kafka_position *positions, size_t count,
                  struct err *err)
{
    rd_kafka_topic_partition_list_t *list = list_of(positions, count);
    bool ok = kafka_code(rd_kafka_resume_partitions(reader, list), "resume", err) &&
              list_code(list, "resume", err);

    rd_kafka_topic_partition_list_destroy(list);
    return ok;
}

/* An error event in place of a message. False where the caller has to know. */
static bool pass_event(const rd_kafka_message_t *message, struct err *err)
{
    char what[WHAT_SIZE_MAX];

    if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF ||
        kafka_err_kind(message->err) == ERR_RETRY)
        return true;
    snprintf(what, sizeof what, "reading %s[%" PRId32 "] at offset %" PRId64,
             message->rkt ? rd_kafka_topic_name(message->rkt) : "-", message->partition,
             message->offset);
    return kafka_code(message->err, what, err);
}

bool kafka_poll(rd_kafka_t *reader, int timeout_ms, rd_kafka_message_t **message, struct err *err)
{
    rd_kafka_message_t *got = rd_kafka_consumer_poll(reader, timeout_ms);
    bool ok;

    *message = NULL;
    if (!got)
        return true;
    if (!got->err) {
        *message = got;
        return true;
    }
    ok = pass_event(got, err);
    rd_kafka_message_destroy(got);
    return ok;
}

/* One short question, since nothing interrupts a long one. An answer that comes after it has been
 * given up still leaves the cluster's id behind. */
static bool has_answered(rd_kafka_t *client)
{
    const struct rd_kafka_metadata *metadata;
    char *id = rd_kafka_clusterid(client, 0);

    if (id) {
        rd_kafka_mem_free(client, id);
        return true;
    }
    if (rd_kafka_metadata(client, 0, NULL, &metadata, AWAIT_MS) != RD_KAFKA_RESP_ERR_NO_ERROR)
        return false;
    rd_kafka_metadata_destroy(metadata);
    return true;
}

bool kafka_await_broker(rd_kafka_t *client, int timeout_ms, struct err *err)
{
    const int64_t until_us = clock_mono_us() + timeout_ms * INT64_C(1000);
    char brokers[120];
    size_t size = sizeof brokers;

    while (!has_answered(client)) {
        if (stop_requested())
            return err_set(err, ERR_RETRY, "stopped before Kafka answered");
        if (clock_mono_us() >= until_us) {
            if (rd_kafka_conf_get(rd_kafka_conf(client), "bootstrap.servers", brokers, &size) !=
                RD_KAFKA_CONF_OK)
                snprintf(brokers, sizeof brokers, "its brokers");
            return err_set(err, ERR_RETRY, "no answer from Kafka at %.100s within %d s", brokers,
                           timeout_ms / 1000);
        }
        clock_sleep_ms(AWAIT_MS / 10); /* a connection that fails at once must not spin */
    }
    return true;
}

bool kafka_await_topics(rd_kafka_t *client, const char *const *topics, size_t count,
                        struct err *err)
{
    int64_t give_up_us = 0;
    int32_t partitions;

    for (size_t i = 0; i < count && !stop_requested();) {
        if (kafka_partition_count(client, topics[i], BROKER_MS, &partitions, err)) {
            i++;
            continue;
        }
        if (stop_requested())
            break;
        if (err->kind == ERR_RETRY) {
            log_err(LOG_LEVEL_WARN, "broker_away", err);
        } else {
            if (give_up_us == 0)
                give_up_us = clock_mono_us() + CREATED_MS * INT64_C(1000);
            if (clock_mono_us() >= give_up_us) {
                if (err->kind == ERR_REJECT)
                    err->kind = ERR_RETRY; /* somebody may create it */
                return false;
            }
        }
        clock_sleep_ms(AWAIT_MS);
    }
    return true;
}

/* One question: RD_KAFKA_OFFSET_BEGINNING or _END in the place of a time. */
static bool ask_offset(rd_kafka_t *client, const struct kafka_position *position, int timeout_ms,
                       int64_t *offset, struct err *err)
{
    rd_kafka_topic_partition_list_t *list = list_of(position, 1);
    char what[WHAT_SIZE_MAX];

    snprintf(what, sizeof what, "offsets of %s[%" PRId32 "]", position->topic, position->partition);
    rd_kafka_resp_err_t code = rd_kafka_offsets_for_times(client, list, timeout_ms);
    bool ok = kafka_code(code ? code : list->elems[0].err, what, err);
    *offset = list->elems[0].offset;
    rd_kafka_topic_partition_list_destroy(list);
    return ok;
}

/* Asks whoever leads now. A client that has learned of a leader just before its death puts the same
 * question to the dead one for ever (and librdkafka 2.0.2's own call for both offsets knows no
 * timeout then), so after each failure it is told to look who leads. */
static bool ask_leader(rd_kafka_t *client, const struct kafka_position *position, int timeout_ms,
                       int64_t *offset, struct err *err)
{
    int64_t until_us = clock_mono_us() + (int64_t)timeout_ms * 1000;
    int left_ms = timeout_ms;

    while (!ask_offset(client, position, left_ms < ASK_MS ? left_ms : ASK_MS, offset, err)) {
        int32_t count;
        struct err unknown;

        left_ms = (int)((until_us - clock_mono_us()) / 1000) - ASK_PAUSE_MS;
        if (err->kind != ERR_RETRY || left_ms <= 0 || stop_requested())
            return false;
        clock_sleep_ms(ASK_PAUSE_MS);
        (void)kafka_partition_count(client, position->topic, left_ms < ASK_MS ? left_ms : ASK_MS,
                                    &count, &unknown);
        left_ms = (int)((until_us - clock_mono_us()) / 1000);
        if (left_ms <= 0)
            return false;
    }
    return true;
}

bool kafka_offsets(rd_kafka_t *client, const char *topic, int32_t partition, int timeout_ms,
                   int64_t *first, int64_t *end, struct err *err)
{
    struct kafka_position position = {topic, partition, RD_KAFKA_OFFSET_BEGINNING};

    if (!kafka_await_broker(client, timeout_ms, err) ||
        (first && !ask_leader(client, &position, timeout_ms, first, err)))
        return false;
    position.offset = RD_KAFKA_OFFSET_END;
    return !end || ask_leader(client, &position, timeout_ms, end, err);
}

bool kafka_partition_count(rd_kafka_t *client, const char *topic, int timeout_ms, int32_t *count,
                           struct err *err)
{
    const struct rd_kafka_metadata *metadata = NULL;
    rd_kafka_topic_t *handle;
    rd_kafka_resp_err_t code;

    if (!kafka_await_broker(client, timeout_ms, err))
        return false;
    handle = rd_kafka_topic_new(client, topic, NULL);
    if (!handle)
        return kafka_code(rd_kafka_last_error(), topic, err);
    code = rd_kafka_metadata(client, 0, handle, &metadata, timeout_ms);
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR) {
        CHECK(metadata->topic_cnt == 1);
        code = metadata->topics[0].err;
        *count = metadata->topics[0].partition_cnt;
        rd_kafka_metadata_destroy(metadata);
    }
    rd_kafka_topic_destroy(handle);
    if (code == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART)
        return err_set(err, ERR_REJECT,
                       "topic %s does not exist: create it with `pelton topics create`", topic);
    return kafka_code(code, topic, err);
}

bool kafka_prepare(rd_kafka_t *client, const char *topic, int timeout_ms, struct err *err)
{
    int32_t count;

    /* The answer stays in the client's cache, from which a new topic takes its partitions. */
    return kafka_partition_count(client, topic, timeout_ms, &count, err);
}

/* One step of a read; *next moves, *ended once end is reached. */
static bool read_step(rd_kafka_t *reader, const struct kafka_range *range, int64_t end,
                      int64_t *next, struct err *err)
{
    rd_kafka_message_t *message = rd_kafka_consumer_poll(reader, 100);
    bool ok = true;

    if (!message)
        return true;
    if (!message->err && message->offset < end) {
        ok = range->visit(range->context, message, err);
        *next = message->offset + 1;
    } else if (!message->err || message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        /* Behind the last message may stand transaction markers, which only the end-of-partition
         * event steps over. */
        *next = message->offset > end ? end : message->offset;
    } else {
        ok = pass_event(message, err);
    }
    rd_kafka_message_destroy(message);
    return ok;
}

bool kafka_read_to_end(rd_kafka_t *reader, const struct kafka_range *range, int64_t *next,
                       struct err *err)
{
    struct kafka_position from = range->from;
    int64_t first, end, at, moved_us = clock_mono_us();
    bool ok = true;
    struct err ignored;

    if (!kafka_offsets(reader, from.topic, from.partition, range->timeout_ms, &first, &end, err))
        return false;
    if (from.offset == RD_KAFKA_OFFSET_BEGINNING)
        from.offset = first;
    if (from.offset < first)
        return err_set(err, ERR_FATAL,
                       "reading %s[%" PRId32 "] from offset %" PRId64 ": the log starts at %" PRId64
                       " (retention has passed over it)",
                       from.topic, from.partition, from.offset, first);
    at = from.offset;
    if (at < end && !kafka_assign(reader, &from, 1, err))
        return false;
    while (ok && at < end) {
        int64_t before = at;
        ok = read_step(reader, range, end, &at, err);
        if (at != before)
            moved_us = clock_mono_us();
        else if (ok && clock_mono_us() - moved_us > (int64_t)range->timeout_ms * 1000)
            ok = err_set(err, ERR_RETRY,
                         "reading %s[%" PRId32 "]: nothing for %d ms at offset %" PRId64
                         " of %" PRId64,
                         from.topic, from.partition, range->timeout_ms, at, end);
    }
    if (from.offset < end)
        ok = kafka_assign(reader, NULL, 0, ok ? err : &ignored) && ok;
    if (ok && next)
        *next = at;
    return ok;
}
