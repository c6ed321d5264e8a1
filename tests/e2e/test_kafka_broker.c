/* SPDX-License-Identifier: Apache-2.0
 *
 * The Kafka layer against the broker that PELTON_BOOTSTRAP names; skipped without one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/kafka.h"
#include "common/kafka_admin.h"

enum { TIMEOUT_MS = 20000 };

/* Four topics of one run, all new: a name is taken for good once a broker has deleted it slowly. */
static char topics[4][64];
static char transactional_id[64];
static const char *brokers;
static rd_kafka_t *producer, *transactional, *reader;
static struct err err;
static size_t delivered_count, failed_count;

static void on_delivered(rd_kafka_t *client, const rd_kafka_message_t *message, void *context)
{
    (void)client;
    (void)context;
    delivered_count++;
    failed_count += message->err != RD_KAFKA_RESP_ERR_NO_ERROR;
}

static void assert_ok(bool ok)
{
    if (!ok)
        fail_msg("%s", err.message);
}

static int setup(void **state)
{
    struct kafka_options options = {.brokers = brokers,
                                    .client_id = "test",
                                    .transactional_id = transactional_id,
                                    .delivered = on_delivered};
    uint8_t run[6];
    char hex[13];

    (void)state;
    random_bytes(run, sizeof run);
    hex_format(run, sizeof run, hex);
    for (int i = 0; i < 4; i++)
        snprintf(topics[i], sizeof topics[i], "test-%s-%d", hex, i);
    snprintf(transactional_id, sizeof transactional_id, "test-%s", hex);
    assert_ok(kafka_open(&producer, KAFKA_PRODUCER, &options, &err));
    assert_ok(kafka_open(&reader, KAFKA_READER, &options, &err));
    assert_ok(kafka_open(&transactional, KAFKA_TRANSACTIONAL, &options, &err));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    kafka_close(producer, 1000);
    kafka_close(transactional, 1000);
    kafka_close(reader, 0);
    return 0;
}

static const char *const settings[] = {"retention.ms", "-1", "max.message.bytes", "18874368", NULL};

static struct kafka_topic topic_of(int number, int32_t partitions)
{
    return (struct kafka_topic){
        .name = topics[number], .partitions = partitions, .replication = 1, .settings = settings};
}

static void create(int number)
{
    struct kafka_topic topic = topic_of(number, 1);
    struct kafka_topic_report report;

    assert_ok(kafka_topic_ensure(producer, &topic, TIMEOUT_MS, &report, &err));
}

static void test_topics(void **state)
{
    const char *const other[] = {"retention.ms", "1000", NULL};
    struct kafka_topic topic = topic_of(0, 2);
    struct kafka_topic_report report;
    int32_t count;
    int broker_count;
    char *cluster_id;

    (void)state;
    assert_false(kafka_topic_check(producer, &topic, TIMEOUT_MS, &report, &err));
    assert_non_null(strstr(err.message, "does not exist"));
    assert_ok(kafka_topic_ensure(producer, &topic, TIMEOUT_MS, &report, &err));
    assert_int_equal(report.state, KAFKA_TOPIC_CREATED);
    assert_ok(kafka_topic_ensure(producer, &topic, TIMEOUT_MS, &report, &err));
    assert_int_equal(report.state, KAFKA_TOPIC_SAME);
    topic.partitions = 3;
    topic.settings = other;
    assert_ok(kafka_topic_ensure(producer, &topic, TIMEOUT_MS, &report, &err));
    assert_int_equal(report.state, KAFKA_TOPIC_DIFFERENT);
    assert_string_equal(report.difference,
                        "partitions 2 (wanted 3); retention.ms -1 (wanted 1000)");
    assert_ok(kafka_partition_count(reader, topics[0], TIMEOUT_MS, &count, &err));
    assert_int_equal(count, 2);
    assert_ok(kafka_broker_count(reader, TIMEOUT_MS, &broker_count, &err));
    assert_true(broker_count >= 1);
    cluster_id = kafka_cluster_id(reader, TIMEOUT_MS, &err);
    assert_non_null(cluster_id);
    free(cluster_id);
}

/* Neither asking nor reading creates a topic, even where the broker would. */
static void test_no_topic_by_accident(void **state)
{
    int32_t count;
    int64_t end;

    (void)state;
    for (int i = 0; i < 2; i++)
        assert_false(kafka_partition_count(reader, topics[3], TIMEOUT_MS, &count, &err));
    assert_false(kafka_partition_count(producer, topics[3], TIMEOUT_MS, &count, &err));
    assert_int_equal(err.kind, ERR_REJECT);
    assert_false(kafka_offsets(reader, topics[3], 0, 2000, NULL, &end, &err));
}

struct collected {
    size_t count;
    int64_t last_offset;
    size_t last_size;
    char traceparent[TRACEPARENT_SIZE];
    char type[64];
    char key[64];
    bool stop;
};

static bool collect(void *context, const rd_kafka_message_t *message, struct err *why)
{
    struct collected *collected = context;

    collected->count++;
    collected->last_offset = message->offset;
    collected->last_size = message->len;
    snprintf(collected->key, sizeof collected->key, "%.*s", (int)message->key_len,
             (const char *)message->key);
    kafka_header(message, "traceparent", collected->traceparent, sizeof collected->traceparent);
    kafka_header(message, "ce_type", collected->type, sizeof collected->type);
    return !collected->stop || err_set(why, ERR_REJECT, "enough");
}

static struct collected read_all(int topic, int64_t from, int64_t *next)
{
    struct collected collected = {0};
    struct kafka_range range = {.from = {topics[topic], 0, from},
                                .timeout_ms = TIMEOUT_MS,
                                .visit = collect,
                                .context = &collected};

    assert_ok(kafka_read_to_end(reader, &range, next, &err));
    return collected;
}

static void test_headers_and_large_messages(void **state)
{
    enum { LARGE = 17 * 1024 * 1024 };
    char *large = malloc(LARGE);
    uint8_t id[UUID_SIZE];
    struct kafka_message message = {.topic = topics[1],
                                    .key = "k1",
                                    .key_size = 2,
                                    .value = "v",
                                    .value_size = 1,
                                    .type = "pelton.Request",
                                    .source = "/pelton",
                                    .id = id};
    struct collected collected;
    int64_t next = -1;
    size_t delivered_before = delivered_count;

    (void)state;
    create(1);
    memset(id, 0x5a, sizeof id);
    for (size_t i = 0; i < LARGE; i++)
        large[i] = (char)(i * 2654435761u >> 24); /* nothing that compresses */
    assert_ok(kafka_produce_wait(producer, &message, TIMEOUT_MS, &err));
    message.value = large;
    message.value_size = LARGE;
    assert_ok(kafka_produce_wait(producer, &message, TIMEOUT_MS, &err));
    assert_ok(kafka_flush(producer, TIMEOUT_MS, &err));
    message.value_size = 0;
    message.value = NULL; /* a tombstone */
    assert_ok(kafka_produce_wait(producer, &message, TIMEOUT_MS, &err));
    assert_ok(kafka_flush(producer, TIMEOUT_MS, &err));
    assert_int_equal(delivered_count - delivered_before, 3);
    assert_int_equal(failed_count, 0);
    collected = read_all(1, RD_KAFKA_OFFSET_BEGINNING, &next);
    assert_int_equal(collected.count, 3);
    assert_int_equal(collected.last_size, 0);
    assert_int_equal(next, 3);
    assert_string_equal(collected.key, "k1");
    assert_string_equal(collected.type, "pelton.Request");
    assert_memory_equal(collected.traceparent, "00-5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a-", 36);
    collected = read_all(1, 3, &next);
    assert_int_equal(collected.count, 0);
    assert_int_equal(next, 3);
    free(large);
}

/* One message too large: refused by itself, the small ones around it pass. */
static void test_too_large(void **state)
{
    enum { TOO_LARGE = 19 * 1024 * 1024 };
    char *large = calloc(1, TOO_LARGE);
    struct kafka_message message = {.topic = topics[1], .value = large, .value_size = TOO_LARGE};
    size_t before = delivered_count;

    (void)state;
    assert_false(kafka_produce_wait(producer, &message, TIMEOUT_MS, &err));
    assert_int_equal(err.kind, ERR_REJECT);
    message.value_size = 10;
    assert_ok(kafka_produce_wait(producer, &message, TIMEOUT_MS, &err));
    assert_ok(kafka_flush(producer, TIMEOUT_MS, &err));
    assert_int_equal(delivered_count - before, 1);
    free(large);
}

static void put(const char *value)
{
    struct kafka_message message = {
        .topic = topics[2], .value = value, .value_size = strlen(value)};

    assert_ok(kafka_produce_wait(transactional, &message, TIMEOUT_MS, &err));
}

/* A transaction's markers are written behind the answer to its end. */
static void wait_end(int topic, int64_t wanted)
{
    int64_t until_us = clock_mono_us() + TIMEOUT_MS * (int64_t)1000, end = -1;

    while (end != wanted && clock_mono_us() < until_us) {
        clock_sleep_ms(20);
        assert_ok(kafka_offsets(reader, topics[topic], 0, TIMEOUT_MS, NULL, &end, &err));
    }
    assert_int_equal(end, wanted);
}

/* A committed, an aborted and an open transaction: only the first is there, and the end is where
 * the open one starts. After its abort, markers are all that stands at the end, and the read still
 * ends. */
static void test_transactions(void **state)
{
    struct collected collected;
    int64_t next = -1, later = -1;

    (void)state;
    create(2);
    assert_ok(kafka_error(rd_kafka_init_transactions(transactional, TIMEOUT_MS), "init", &err));
    assert_ok(kafka_error(rd_kafka_begin_transaction(transactional), "begin", &err));
    put("one");
    put("two");
    assert_ok(kafka_error(rd_kafka_commit_transaction(transactional, TIMEOUT_MS), "commit", &err));
    assert_ok(kafka_error(rd_kafka_begin_transaction(transactional), "begin", &err));
    put("open");
    assert_ok(kafka_flush(transactional, TIMEOUT_MS, &err));
    wait_end(2, 3); /* two messages and a marker */
    collected = read_all(2, RD_KAFKA_OFFSET_BEGINNING, &next);
    assert_int_equal(collected.count, 2);
    assert_int_equal(next, 3);
    assert_ok(kafka_error(rd_kafka_abort_transaction(transactional, TIMEOUT_MS), "abort", &err));
    wait_end(2, 5);
    collected = read_all(2, RD_KAFKA_OFFSET_BEGINNING, &later);
    assert_int_equal(collected.count, 2);
    assert_int_equal(later, 5);
    collected = read_all(2, next, &later); /* nothing but what was aborted */
    assert_int_equal(collected.count, 0);
    assert_int_equal(later, 5);
}

static void test_visit_stops(void **state)
{
    struct collected collected = {.stop = true};
    struct kafka_range range = {.from = {topics[2], 0, 0},
                                .timeout_ms = TIMEOUT_MS,
                                .visit = collect,
                                .context = &collected};

    (void)state;
    assert_false(kafka_read_to_end(reader, &range, NULL, &err));
    assert_string_equal(err.message, "enough");
    assert_int_equal(collected.count, 1);
}

/* Reading by poll: messages, then quiet; beyond the log it is an error that names the place. */
static void test_poll(void **state)
{
    struct kafka_position position = {topics[2], 0, 0};
    rd_kafka_message_t *message = NULL;
    size_t count = 0;

    (void)state;
    assert_ok(kafka_assign(reader, &position, 1, &err));
    for (int i = 0; i < 40 && count < 2; i++) {
        assert_ok(kafka_poll(reader, 250, &message, &err));
        count += message != NULL;
        if (message)
            rd_kafka_message_destroy(message);
    }
    assert_int_equal(count, 2);
    assert_ok(kafka_poll(reader, 300, &message, &err));
    assert_null(message);
    position.offset = 1;
    assert_ok(kafka_seek(reader, &position, TIMEOUT_MS, &err));
    for (int i = 0; i < 40 && !message; i++)
        assert_ok(kafka_poll(reader, 250, &message, &err));
    assert_non_null(message);
    assert_int_equal(message->offset, 1);
    rd_kafka_message_destroy(message);
    assert_ok(kafka_pause(reader, &position, 1, &err));
    assert_ok(kafka_resume(reader, &position, 1, &err));
    position.offset = 100;
    assert_ok(kafka_assign(reader, &position, 1, &err));
    for (count = 0; count < 40 && kafka_poll(reader, 250, &message, &err); count++)
        assert_null(message);
    assert_true(count < 40);
    assert_int_equal(err.kind, ERR_FATAL);
    assert_non_null(strstr(err.message, topics[2]));
    assert_ok(kafka_assign(reader, NULL, 0, &err));
}

static void test_delete_records(void **state)
{
    struct kafka_position position = {topics[1], 0, 2};
    struct kafka_range range = {
        .from = {topics[1], 0, 0}, .timeout_ms = TIMEOUT_MS, .visit = collect};
    int64_t first = -1;

    (void)state;
    assert_ok(kafka_delete_records(producer, &position, 1, TIMEOUT_MS, &err));
    assert_ok(kafka_offsets(reader, topics[1], 0, TIMEOUT_MS, &first, NULL, &err));
    assert_int_equal(first, 2);
    assert_false(kafka_read_to_end(reader, &range, NULL, &err));
    assert_int_equal(err.kind, ERR_FATAL);
    assert_non_null(strstr(err.message, "the log starts at 2"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_topics),
        cmocka_unit_test(test_no_topic_by_accident),
        cmocka_unit_test(test_headers_and_large_messages),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_transactions),
        cmocka_unit_test(test_visit_stops),
        cmocka_unit_test(test_poll),
        cmocka_unit_test(test_delete_records),
    };

    brokers = getenv("PELTON_BOOTSTRAP");
    if (!brokers) {
        puts("skipped: PELTON_BOOTSTRAP names no broker");
        return 77;
    }
    return cmocka_run_group_tests(tests, setup, teardown);
}
