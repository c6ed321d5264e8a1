/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/intake.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/check.h"
#include "common/clock.h"
#include "common/kafka_admin.h"
#include "common/log.h"

enum {
    TIMEOUT_MS = 3000,
    BROKER_MS = 10000, /* for the first answer */
    /* Messages of a batch stay in memory until it is committed; a row has some 300 bytes, so only
     * foreign messages reach this. */
    BATCH_SIZE_MAX = 32 * 1024 * 1024,
};

struct intake {
    rd_kafka_t *reader;
    const char *topic;
    char *cluster_id; /* NULL: not known yet */
    int64_t *positions;
    int32_t partitions_count; /* assigned */
    struct row *rows;         /* rows_max */
    rd_kafka_message_t **messages;
    size_t rows_max;
    size_t count;
    size_t size; /* bytes of messages[] */
};

bool intake_open(struct intake **out, const struct intake_options *options, struct err *err)
{
    struct intake *intake = calloc(1, sizeof *intake);

    CHECK(intake);
    intake->topic = options->topic;
    intake->rows_max = options->rows_max;
    intake->rows = calloc(options->rows_max, sizeof *intake->rows);
    intake->messages = calloc(options->rows_max, sizeof(rd_kafka_message_t *));
    CHECK(intake->rows && intake->messages);
    if (!kafka_open(&intake->reader, KAFKA_READER, &options->kafka, err)) {
        intake_close(intake);
        return false;
    }
    *out = intake;
    return true;
}

static void drop_batch(struct intake *intake)
{
    for (size_t i = 0; i < intake->count; i++) {
        row_free(&intake->rows[i]);
        rd_kafka_message_destroy(intake->messages[i]);
    }
    intake->count = 0;
    intake->size = 0;
}

void intake_close(struct intake *intake)
{
    if (!intake)
        return;
    drop_batch(intake);
    kafka_close(intake->reader, 0);
    free(intake->cluster_id);
    free(intake->positions);
    free(intake->rows);
    free(intake->messages);
    free(intake);
}

bool intake_cluster_id(struct intake *intake, const char **id, struct err *err)
{
    if (!intake->cluster_id)
        intake->cluster_id = kafka_cluster_id(intake->reader, BROKER_MS, err);
    *id = intake->cluster_id;
    return *id != NULL;
}

bool intake_partitions(struct intake *intake, int32_t *count, struct err *err)
{
    if (kafka_partition_count(intake->reader, intake->topic, TIMEOUT_MS, count, err))
        return true;
    if (err->kind != ERR_REJECT)
        err->kind = ERR_RETRY;
    return false;
}

bool intake_offsets(struct intake *intake, int32_t partition, int64_t *first, int64_t *end,
                    struct err *err)
{
    if (kafka_offsets(intake->reader, intake->topic, partition, TIMEOUT_MS, first, end, err))
        return true;
    err->kind = ERR_RETRY;
    return false;
}

bool intake_assign(struct intake *intake, const int64_t *next, int32_t count, struct err *err)
{
    CHECK(count > 0 && !intake->positions);
    struct kafka_position *list = calloc((size_t)count, sizeof *list);
    int64_t *positions = calloc((size_t)count, sizeof *positions);

    CHECK(list && positions);
    intake->positions = positions;
    intake->partitions_count = count;
    for (int32_t i = 0; i < count; i++) {
        positions[i] = next[i];
        list[i] = (struct kafka_position){intake->topic, i, next[i]};
    }
    bool ok = kafka_assign(intake->reader, list, (size_t)count, err);
    free(list);
    return ok;
}

/* False where the message is not kept. */
static bool take(struct intake *intake, rd_kafka_message_t *message)
{
    int32_t partition = message->partition;

    CHECK(partition >= 0 && partition < intake->partitions_count);
    CHECK(message->offset >= intake->positions[partition]);
    if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        intake->positions[partition] = message->offset;
        return false;
    }
    intake->positions[partition] = message->offset + 1;
    intake->messages[intake->count] = message;
    intake->rows[intake->count] = (struct row){
        .partition = partition,
        .offset = message->offset,
        .data = message->payload,
        .size = message->payload ? message->len : 0,
    };
    intake->count++;
    intake->size += message->len;
    return true;
}

/* Broker trouble passes, librdkafka goes on by itself. An offset out of range does not: to go on
 * elsewhere would skip records that nobody has been charged for. */
static bool check_event(const struct intake *intake, const rd_kafka_message_t *message,
                        struct err *err)
{
    if (message->err == RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET ||
        message->err == RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE)
        return err_set(err, ERR_FATAL, "offset %" PRId64 " of %s[%" PRId32 "] is out of range: %s",
                       message->offset, intake->topic, message->partition,
                       rd_kafka_message_errstr(message));
    if (message->err == RD_KAFKA_RESP_ERR__FATAL)
        return kafka_healthy(intake->reader, err);
    LOG_WARN("intake", "topic=%s partition=%d error=%s", intake->topic, message->partition,
             rd_kafka_err2str(message->err));
    return true;
}

bool intake_fill(struct intake *intake, int64_t wait_us, struct row **rows, size_t *count,
                 struct err *err)
{
    int64_t until_us = clock_mono_us() + wait_us;
    bool ok = true;

    drop_batch(intake);
    while (ok && intake->count < intake->rows_max && intake->size < BATCH_SIZE_MAX) {
        int64_t left_us = until_us - clock_mono_us();
        if (left_us <= 0)
            break;
        rd_kafka_message_t *message =
            rd_kafka_consumer_poll(intake->reader, (int)(left_us / 1000) + 1);
        if (!message)
            break;
        if (message->err && message->err != RD_KAFKA_RESP_ERR__PARTITION_EOF)
            ok = check_event(intake, message, err);
        else if (take(intake, message))
            continue;
        rd_kafka_message_destroy(message);
    }
    *rows = intake->rows;
    *count = intake->count;
    return ok;
}

int64_t intake_position(const struct intake *intake, int32_t partition)
{
    CHECK(partition >= 0 && partition < intake->partitions_count);
    return intake->positions[partition];
}
