/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler's stream of messages when brokers answer with errors, and where it begins and ends.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "common/clock.h"
#include "common/kafka.h"
#include "scheduler/reader.h"
#include "tests/unit/kafka_mock.h"

enum { FETCH = 1, TIMEOUT_MS = 10000, MESSAGES = 3 };

static struct kafka_mock mock;
static const struct topic_map *topics;
static struct reader *reader;
static struct err err;
static size_t seen;

static bool visit(void *context, enum topic topic, const rd_kafka_message_t *message,
                  struct err *error)
{
    (void)context;
    (void)topic;
    (void)message;
    (void)error;
    seen++;
    return true;
}

static void fill(const char *topic)
{
    const struct kafka_options options = {.brokers = mock.brokers, .client_id = "test"};
    const struct kafka_message message = {.topic = topic, .value = "x", .value_size = 1};
    rd_kafka_t *producer;

    assert_true(kafka_open(&producer, KAFKA_PRODUCER, &options, &err));
    assert_true(kafka_prepare(producer, topic, TIMEOUT_MS, &err));
    for (int i = 0; i < MESSAGES; i++)
        assert_true(kafka_produce_wait(producer, &message, TIMEOUT_MS, &err));
    assert_true(kafka_flush(producer, TIMEOUT_MS, &err));
    kafka_close(producer, 0);
}

/* One reader for all tests: each assigns anew, and opening one takes a second. */
static int set_up(void **state)
{
    struct topic_map map;
    /* The mock cluster makes a topic only after its poll, which lasts a second where no client says
     * anything: with questions for topics each 3 s, as it is, making those of the tests takes 8 s.
     */
    static const char *const often[] = {"topic.metadata.refresh.interval.ms=100"};
    struct reader_options options = {.client_id = "test", .group_id = "g", .settings = {often, 1}};

    (void)state;
    kafka_mock_open(&mock, 1);
    options.brokers = mock.brokers;
    if (!reader_open(&reader, &options, &err))
        return -1;
    topic_map_name(&map, "p.");
    for (int i = 0; i < TOPIC_COUNT; i++)
        rd_kafka_mock_topic_create(mock.cluster, map.names[i], 1, 1);
    fill(map.names[TOPIC_STATE]);
    return reader_topics(reader, "p.", TIMEOUT_MS, &topics, &err) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    reader_close(reader);
    kafka_mock_close(&mock);
    return 0;
}

static int begin(void **state)
{
    (void)state;
    seen = 0;
    return 0;
}

static bool assign(int64_t offset)
{
    const struct reader_from from = {.topic = TOPIC_STATE, .offset = offset};

    return reader_assign(reader, &from, 1, &err);
}

/* Until the marked end, or an error, or the time is up. */
static bool read_on(int timeout_ms)
{
    const struct reader_sink sink = {visit, NULL};
    int64_t until_us = clock_mono_us() + (int64_t)timeout_ms * 1000;

    while (!reader_end_reached(reader, TOPIC_STATE, 0) && clock_mono_us() < until_us)
        if (!reader_poll(reader, 20, &sink, &err))
            return false;
    return true;
}

static bool read_all(void)
{
    return assign(-1) && reader_mark_end(reader, TOPIC_STATE, 0, TIMEOUT_MS, &err) &&
           read_on(TIMEOUT_MS);
}

static void test_reads_to_the_end(void **state)
{
    (void)state;
    assert_true(read_all());
    assert_true(reader_end_reached(reader, TOPIC_STATE, 0));
    assert_int_equal(seen, MESSAGES);
    assert_int_equal(reader_position(reader, TOPIC_STATE, 0), MESSAGES);
    assert_int_equal(reader_end(reader, TOPIC_STATE, 0), MESSAGES);
    assert_int_equal(reader_position(reader, TOPIC_USAGE, 0), -1);
    /* From the middle, and from the end, where nothing comes. */
    assert_true(assign(1));
    assert_true(reader_mark_end(reader, TOPIC_STATE, 0, TIMEOUT_MS, &err));
    assert_false(reader_end_reached(reader, TOPIC_STATE, 0));
    assert_true(read_on(TIMEOUT_MS));
    assert_int_equal(seen, MESSAGES + MESSAGES - 1);
    assert_true(assign(MESSAGES));
    assert_true(reader_mark_end(reader, TOPIC_STATE, 0, TIMEOUT_MS, &err));
    assert_true(reader_end_reached(reader, TOPIC_STATE, 0));
}

static void test_pause(void **state)
{
    (void)state;
    assert_true(assign(0));
    assert_true(reader_pause(reader, TOPIC_STATE, 0, &err));
    assert_true(reader_mark_end(reader, TOPIC_STATE, 0, TIMEOUT_MS, &err));
    assert_true(read_on(300));
    assert_int_equal(seen, 0);
    assert_int_equal(reader_end(reader, TOPIC_STATE, 0), MESSAGES); /* the lag shows all the same */
    assert_true(reader_resume(reader, TOPIC_STATE, 0, &err));
    assert_true(read_on(TIMEOUT_MS));
    assert_int_equal(seen, MESSAGES);
}

/* Offsets that the topic does not reach: it is another one than it was. */
static void test_replaced_topic(void **state)
{
    (void)state;
    assert_false(assign(MESSAGES + 1));
    assert_int_equal(err.kind, ERR_FATAL);
    assert_non_null(strstr(err.message, "p.state[0] ends at offset 3, but was read up to 4"));
}

/* A change of leaders and a broker's bad moments pass; nothing is lost or read twice. */
static void test_passing_trouble(void **state)
{
    (void)state;
    rd_kafka_mock_push_request_errors(
        mock.cluster, FETCH, 7, RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
        RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR,
        RD_KAFKA_RESP_ERR_OFFSET_NOT_AVAILABLE, RD_KAFKA_RESP_ERR_UNKNOWN,
        RD_KAFKA_RESP_ERR_FENCED_LEADER_EPOCH, RD_KAFKA_RESP_ERR_UNKNOWN_LEADER_EPOCH);
    if (!read_all())
        fail_msg("%s", err.message);
    assert_int_equal(seen, MESSAGES);
}

static void test_final_trouble(void **state)
{
    static const rd_kafka_resp_err_t codes[] = {RD_KAFKA_RESP_ERR_INVALID_MSG,
                                                RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
                                                RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE};

    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        /* Three times, since the fetch of the assignment before may still be under way. */
        rd_kafka_mock_push_request_errors(mock.cluster, FETCH, 3, codes[i], codes[i], codes[i]);
        assert_false(read_all());
        rd_kafka_mock_clear_request_errors(mock.cluster, FETCH);
        assert_int_equal(err.kind, ERR_FATAL);
        assert_non_null(strstr(err.message, "p.state[0] at offset 0"));
    }
}

static int64_t copied_offset(void)
{
    const struct kafka_options options = {
        .brokers = mock.brokers, .client_id = "test", .group_id = "g"};
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_t *asker;

    assert_true(kafka_open(&asker, KAFKA_READER, &options, &err));
    rd_kafka_topic_partition_list_add(list, topics->names[TOPIC_STATE], 0);
    assert_int_equal(rd_kafka_committed(asker, list, TIMEOUT_MS), 0);
    int64_t offset = list->elems[0].offset;
    rd_kafka_topic_partition_list_destroy(list);
    kafka_close(asker, 0);
    return offset;
}

/* The last test, since it closes the reader: at once, whatever the brokers still owe it. Its
 * process would be ended otherwise, because kafka_close() gives librdkafka 20 s. */
static void test_close_with_unanswered_copy(void **state)
{
    const struct reader_sink sink = {visit, NULL};
    const struct reader_copy copy = {TOPIC_STATE, 0, 2};

    (void)state;
    assert_true(assign(-1));
    reader_copy_offsets(reader, &copy, 1);
    assert_true(reader_poll(reader, 300, &sink, &err));
    assert_int_equal(copied_offset(), 2);
    rd_kafka_mock_broker_set_rtt(mock.cluster, 1, 60000);
    reader_copy_offsets(reader, &copy, 1);
    assert_true(reader_poll(reader, 100, &sink, &err));
    int64_t start_us = clock_mono_us();
    reader_close(reader);
    reader = NULL;
    assert_true(clock_mono_us() - start_us < 5000000);
}

/* What a scheduler says at its start about topics that are not as they must be. */
static void test_topic_map(void **state)
{
    struct topic_map now;
    enum topic topic = TOPIC_COUNT;

    (void)state;
    assert_true(topic_map_find(topics, "p.worker-events", &topic));
    assert_int_equal(topic, TOPIC_WORKER_EVENTS);
    assert_false(topic_map_find(topics, "worker-events", &topic));
    assert_int_equal(topics->partitions[TOPIC_RESULTS], 1);

    topic_map_name(&now, "q.");
    assert_false(reader_topics_now(reader, &now, TIMEOUT_MS, &err));
    assert_int_equal(err.kind, ERR_REJECT);
    assert_non_null(strstr(err.message, "q.requests.interactive does not exist"));

    for (int i = 0; i < TOPIC_COUNT; i++)
        rd_kafka_mock_topic_create(mock.cluster, now.names[i], i == TOPIC_ASSIGNMENTS ? 2 : 1, 1);
    assert_false(reader_topics_now(reader, &now, TIMEOUT_MS, &err));
    assert_int_equal(err.kind, ERR_REJECT);
    assert_non_null(
        strstr(err.message, "q.assignments has 2 partitions and q.worker-events has 1"));

    topic_map_name(&now, "r.");
    for (int i = 0; i < TOPIC_COUNT; i++)
        rd_kafka_mock_topic_create(mock.cluster, now.names[i], i == TOPIC_STATE ? 2 : 1, 1);
    assert_false(reader_topics_now(reader, &now, TIMEOUT_MS, &err));
    assert_non_null(strstr(err.message, "r.state has 2 partitions, it must have 1"));
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup(test, begin)
    const struct CMUnitTest tests[] = {
        TEST(test_reads_to_the_end),
        TEST(test_pause),
        TEST(test_replaced_topic),
        TEST(test_passing_trouble),
        TEST(test_final_trouble),
        TEST(test_topic_map),
        TEST(test_close_with_unanswered_copy),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
