/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "common/kafka.h"
#include "common/log.h"

enum { PREPARE_MS = 10000 };

struct track {
    int64_t position; /* next to read; -1 unknown */
    int64_t mark;
    bool marked;
    bool paused;
};

struct reader {
    const char *group_id;
    rd_kafka_t *client;
    /* Asks for ends and topics. A broker answers a connection's requests one after the other, and
     * on the reading one each question would wait for the fetch under way, 100 ms. */
    rd_kafka_t *asker;
    rd_kafka_queue_t *queue;
    rd_kafka_queue_t *answers; /* of trims and copies */
    struct topic_map topics;
    struct track *tracks[TOPIC_COUNT]; /* [topic][partition], NULL where the topic is not read */
    rd_kafka_message_t *batch[READER_BATCH];
};

bool reader_open(struct reader **reader, const struct reader_options *options, struct err *err)
{
    struct reader *opened = calloc(1, sizeof *opened);
    struct kafka_options kafka = {
        .brokers = options->brokers,
        .client_id = options->client_id,
        .settings = options->settings,
        .group_id = options->group_id,
    };

    CHECK(opened);
    opened->group_id = options->group_id;
    if (!kafka_open(&opened->asker, KAFKA_READER, &kafka, err) ||
        !kafka_open(&opened->client, KAFKA_READER, &kafka, err)) {
        kafka_close(opened->asker, 0);
        free(opened);
        return false;
    }
    opened->queue = rd_kafka_queue_get_consumer(opened->client);
    opened->answers = rd_kafka_queue_new(opened->asker);
    *reader = opened;
    return true;
}

static void reader_forget(struct reader *reader)
{
    for (int topic = 0; topic < TOPIC_COUNT; topic++) {
        free(reader->tracks[topic]);
        reader->tracks[topic] = NULL;
    }
}

void reader_close(struct reader *reader)
{
    if (!reader)
        return;
    reader_forget(reader);
    rd_kafka_queue_destroy(reader->answers);
    rd_kafka_queue_destroy(reader->queue);
    kafka_close(reader->client, 0);
    kafka_close(reader->asker, 0);
    free(reader);
}

bool reader_topics(struct reader *reader, const char *prefix, int timeout_ms,
                   const struct topic_map **topics, struct err *err)
{
    CHECK(!reader->tracks[TOPIC_STATE]); /* tracks are sized by these counts */
    topic_map_name(&reader->topics, prefix);
    if (!topic_map_load(&reader->topics, reader->asker, timeout_ms, err))
        return false;
    *topics = &reader->topics;
    return true;
}

bool reader_topics_now(struct reader *reader, struct topic_map *now, int timeout_ms,
                       struct err *err)
{
    return topic_map_load(now, reader->asker, timeout_ms, err);
}

/* NULL for what is not assigned: a message that came late, after a new assignment. */
static struct track *track_find(const struct reader *reader, enum topic topic, int32_t partition)
{
    if (!reader->tracks[topic] || partition < 0 || partition >= reader->topics.partitions[topic])
        return NULL;
    return &reader->tracks[topic][partition];
}

static struct track *track_get(const struct reader *reader, enum topic topic, int32_t partition)
{
    struct track *track = track_find(reader, topic, partition);

    CHECK(track);
    return track;
}

/* Where reading really begins. */
static bool reader_resolve(struct reader *reader, const struct reader_from *from, int64_t *offset,
                           struct err *err)
{
    const char *name = reader->topics.names[from->topic];
    int64_t first, end;

    if (!kafka_offsets(reader->asker, name, from->partition, 10000, &first, &end, err))
        return false;
    *offset = from->offset < 0 ? first : from->offset;
    if (*offset > end)
        return err_set(err, ERR_FATAL,
                       "%s[%d] ends at offset %lld, but was read up to %lld: has it been replaced?",
                       name, (int)from->partition, (long long)end, (long long)*offset);
    if (*offset >= first)
        return true;
    if (!from->gone_allowed)
        return err_set(err, ERR_FATAL,
                       "%s[%d] begins at offset %lld, but offset %lld is still needed: its data "
                       "were deleted",
                       name, (int)from->partition, (long long)first, (long long)*offset);
    LOG_WARN("offset_gone", "topic=%s partition=%d wanted=%lld first=%lld", name,
             (int)from->partition, (long long)*offset, (long long)first);
    *offset = first;
    return true;
}

bool reader_assign(struct reader *reader, const struct reader_from *from, size_t count,
                   struct err *err)
{
    struct kafka_position *positions = calloc(count + 1, sizeof *positions);
    bool ok = true;

    CHECK(positions);
    reader_forget(reader);
    for (size_t i = 0; i < count && ok; i++) {
        enum topic topic = from[i].topic;
        if (!reader->tracks[topic]) {
            size_t partitions = (size_t)reader->topics.partitions[topic];
            reader->tracks[topic] = calloc(partitions, sizeof *reader->tracks[topic]);
            CHECK(reader->tracks[topic]);
            for (size_t k = 0; k < partitions; k++)
                reader->tracks[topic][k].position = -1;
        }
        positions[i] = (struct kafka_position){.topic = reader->topics.names[topic],
                                               .partition = from[i].partition};
        ok = reader_resolve(reader, &from[i], &positions[i].offset, err);
        if (ok)
            track_get(reader, topic, from[i].partition)->position = positions[i].offset;
    }
    /* Without this the first message waits for librdkafka's timer: a second of each takeover. */
    for (size_t i = 0; i < count && ok; i++)
        ok = from[i].partition > 0 ||
             kafka_prepare(reader->client, positions[i].topic, PREPARE_MS, err);
    ok = ok && kafka_assign(reader->client, positions, count, err);
    free(positions);
    return ok;
}

bool reader_mark_end(struct reader *reader, enum topic topic, int32_t partition, int timeout_ms,
                     struct err *err)
{
    struct track *track = track_get(reader, topic, partition);

    if (!kafka_offsets(reader->asker, reader->topics.names[topic], partition, timeout_ms, NULL,
                       &track->mark, err))
        return false;
    track->marked = true;
    return true;
}

bool reader_end_reached(const struct reader *reader, enum topic topic, int32_t partition)
{
    const struct track *track = track_get(reader, topic, partition);

    CHECK(track->marked);
    return track->position >= track->mark;
}

/* One entry of librdkafka's queue: a message, a partition's end or an error. */
static bool reader_take(struct reader *reader, const rd_kafka_message_t *message,
                        const struct reader_sink *sink, struct err *err)
{
    const char *name = message->rkt ? rd_kafka_topic_name(message->rkt) : "";
    enum topic topic = TOPIC_COUNT;
    struct track *track = NULL;
    struct err cause;

    if (topic_map_find(&reader->topics, name, &topic))
        track = track_find(reader, topic, message->partition);
    if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        if (track && message->offset > track->position)
            track->position = message->offset;
        return true;
    }
    if (message->err) {
        if (kafka_err_kind(message->err) == ERR_RETRY)
            return true; /* librdkafka goes on by itself */
        kafka_code(message->err, "reading", &cause);
        return err_set(err, ERR_FATAL, "%s[%d] at offset %lld: %s (%s)", name,
                       (int)message->partition, (long long)message->offset, cause.message,
                       rd_kafka_message_errstr(message));
    }
    if (!track || message->offset < track->position)
        return true; /* of an earlier assignment */
    track->position = message->offset + 1;
    return sink->visit(sink->context, topic, message, err);
}

/* What went wrong with a copy, as a whole or with its first bad partition. */
static rd_kafka_resp_err_t copy_error(rd_kafka_event_t *event)
{
    size_t count;
    const rd_kafka_group_result_t **groups = rd_kafka_AlterConsumerGroupOffsets_result_groups(
        rd_kafka_event_AlterConsumerGroupOffsets_result(event), &count);
    const rd_kafka_topic_partition_list_t *list;

    for (size_t i = 0; i < count; i++) {
        if (rd_kafka_group_result_error(groups[i]))
            return rd_kafka_error_code(rd_kafka_group_result_error(groups[i]));
        list = rd_kafka_group_result_partitions(groups[i]);
        for (int k = 0; list && k < list->cnt; k++)
            if (list->elems[k].err)
                return list->elems[k].err;
    }
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

/* Answers of trims and offset copies. Both are repeated soon by their nature. */
static void reader_serve_answers(struct reader *reader)
{
    rd_kafka_event_t *event;

    while ((event = rd_kafka_queue_poll(reader->answers, 0))) {
        bool trims = rd_kafka_event_type(event) == RD_KAFKA_EVENT_DELETERECORDS_RESULT;
        rd_kafka_resp_err_t code = rd_kafka_event_error(event);

        if (!code && !trims)
            code = copy_error(event);
        if (code)
            LOG_WARN(trims ? "trim_failed" : "offset_copy_failed", "error=%s",
                     rd_kafka_err2str(code));
        rd_kafka_event_destroy(event);
    }
}

bool reader_poll(struct reader *reader, int timeout_ms, const struct reader_sink *sink,
                 struct err *err)
{
    ssize_t count =
        rd_kafka_consume_batch_queue(reader->queue, timeout_ms, reader->batch, READER_BATCH);
    bool ok = true;

    if (count < 0)
        return kafka_code(rd_kafka_last_error(), "reading", err);
    for (ssize_t i = 0; i < count; i++) {
        ok = ok && reader_take(reader, reader->batch[i], sink, err);
        rd_kafka_message_destroy(reader->batch[i]);
    }
    reader_serve_answers(reader);
    return ok;
}

bool reader_pause(struct reader *reader, enum topic topic, int32_t partition, struct err *err)
{
    struct kafka_position position = {.topic = reader->topics.names[topic], .partition = partition};

    track_get(reader, topic, partition)->paused = true;
    return kafka_pause(reader->client, &position, 1, err);
}

bool reader_resume(struct reader *reader, enum topic topic, int32_t partition, struct err *err)
{
    struct kafka_position position = {.topic = reader->topics.names[topic], .partition = partition};

    track_get(reader, topic, partition)->paused = false;
    return kafka_resume(reader->client, &position, 1, err);
}

int64_t reader_position(const struct reader *reader, enum topic topic, int32_t partition)
{
    const struct track *track = track_find(reader, topic, partition);

    return track ? track->position : -1;
}

int64_t reader_end(struct reader *reader, enum topic topic, int32_t partition)
{
    const struct track *track = track_get(reader, topic, partition);
    const char *name = reader->topics.names[topic];
    int64_t first, end = -1;
    struct err err;

    /* Fetch answers carry the end, but a paused partition is not fetched. */
    if (track->paused) {
        if (kafka_offsets(reader->asker, name, partition, 200, NULL, &end, &err))
            return end;
    } else if (rd_kafka_get_watermark_offsets(reader->client, name, partition, &first, &end) == 0 &&
               end > track->position) {
        return end;
    }
    return track->position;
}

static rd_kafka_topic_partition_list_t *reader_list(const struct reader *reader,
                                                    const struct reader_copy *copies, size_t count)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)count);

    for (size_t i = 0; i < count; i++)
        rd_kafka_topic_partition_list_add(list, reader->topics.names[copies[i].topic],
                                          copies[i].partition)
            ->offset = copies[i].offset;
    return list;
}

/* As an administrator, not as a consumer: librdkafka does not close a consumer whose commit has no
 * answer, and a broker that is out of reach for 20 s would end the process (kafka_close). */
void reader_copy_offsets(struct reader *reader, const struct reader_copy *copies, size_t count)
{
    rd_kafka_topic_partition_list_t *list = reader_list(reader, copies, count);
    rd_kafka_AlterConsumerGroupOffsets_t *alteration =
        rd_kafka_AlterConsumerGroupOffsets_new(reader->group_id, list);

    rd_kafka_AlterConsumerGroupOffsets(reader->asker, &alteration, 1, NULL, reader->answers);
    rd_kafka_AlterConsumerGroupOffsets_destroy(alteration);
    rd_kafka_topic_partition_list_destroy(list);
}

void reader_trim(struct reader *reader, enum topic topic, int32_t partition, int64_t offset)
{
    struct reader_copy below = {.topic = topic, .partition = partition, .offset = offset};
    rd_kafka_topic_partition_list_t *list = reader_list(reader, &below, 1);
    rd_kafka_DeleteRecords_t *deletion = rd_kafka_DeleteRecords_new(list);

    rd_kafka_DeleteRecords(reader->asker, &deletion, 1, NULL, reader->answers);
    rd_kafka_DeleteRecords_destroy(deletion);
    rd_kafka_topic_partition_list_destroy(list);
}
