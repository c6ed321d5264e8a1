/* SPDX-License-Identifier: Apache-2.0
 *
 * A core is filled from topics that hold what they should, and what they should not: unreadable
 * messages are passed over or buried where nobody depends on them, and end everything by name in
 * the state, where somebody does.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/kafka.h"
#include "scheduler/recovery.h"
#include "tests/unit/kafka_mock.h"
#include "tests/unit/scheduler_fixture.h"

enum { TIMEOUT_MS = 10000, SLOTS = 1 };

static struct kafka_mock mock;
static struct topic_map names;
static struct codec *codec;
static struct reader *reader;
static rd_kafka_t *producer;
static struct feed feed;
static bool leading;
static struct err err;

static int set_up(void **state)
{
    struct kafka_options kafka = {.client_id = "test"};

    (void)state;
    kafka_mock_open(&mock, 1);
    topic_map_name(&names, "p.");
    for (int i = 0; i < TOPIC_COUNT; i++)
        rd_kafka_mock_topic_create(mock.cluster, names.names[i], 1, 1);
    kafka.brokers = mock.brokers;
    return codec_open(&codec, &err) && kafka_open(&producer, KAFKA_PRODUCER, &kafka, &err) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    kafka_close(producer, 1000);
    codec_close(codec);
    kafka_mock_close(&mock);
    return 0;
}

static int new_core(void **state)
{
    struct scheduler_config config = fixture_config();

    (void)state;
    config.slots = SLOTS;
    feed = (struct feed){.codec = codec, .scheduler = scheduler_new(&config)};
    steady_init(&feed.clock, clock_wall_ms(), clock_mono_us());
    leading = true;
    return feed.scheduler ? 0 : -1;
}

static int free_core(void **state)
{
    (void)state;
    reader_close(reader);
    reader = NULL;
    scheduler_free(feed.scheduler);
    actions_free(&feed.actions);
    return 0;
}

static void put(enum topic topic, const char *key, const void *value, size_t size)
{
    const struct kafka_message message = {.topic = names.names[topic],
                                          .key = key,
                                          .key_size = strlen(key),
                                          .value = value,
                                          .value_size = size};

    assert_true(kafka_prepare(producer, message.topic, TIMEOUT_MS, &err));
    assert_true(kafka_produce_wait(producer, &message, TIMEOUT_MS, &err));
    assert_true(kafka_flush(producer, TIMEOUT_MS, &err));
}

static void put_record(enum topic topic, const char *key, const struct record *record)
{
    struct buffer buffer = {0};

    assert_true(codec_encode(codec, record, &buffer, &err));
    put(topic, key, buffer.data, buffer.size);
    buffer_free(&buffer);
}

static void put_request(uint32_t number)
{
    struct record record = {.type = RECORD_REQUEST, .u.request = request_of(number)};

    put_record(TOPIC_REQUESTS_BULK, "k", &record);
}

static bool goes_on(void *context, struct err *error)
{
    (void)context;
    return leading || err_set(error, ERR_ABORT, "leadership is lost");
}

/* With a reader of its own, as each term has. */
static bool recover(void)
{
    const struct reader_options options = {
        .brokers = mock.brokers, .client_id = "test", .group_id = "g"};
    const struct topic_map *topics;

    assert_true(reader_open(&reader, &options, &err));
    assert_true(reader_topics(reader, "p.", TIMEOUT_MS, &topics, &err));
    const struct recovery recovery = {
        .feed = &feed, .reader = reader, .topics = topics, .goes_on = goes_on};
    return recovery_run(&recovery, &err);
}

static void test_good_and_bad_messages(void **state)
{
    const struct reader_sink live = {feed_live, &feed};
    struct record done = {.type = RECORD_DONE_MARK,
                          .u.done_mark = {.request_id = id_of(1),
                                          .finished_ms = clock_wall_ms(),
                                          .status = RESULT_COMPLETED}};
    struct record request = {.type = RECORD_REQUEST, .u.request = request_of(9)};
    struct record long_names = {.type = RECORD_REQUEST, .u.request = request_of(8)};
    static char name[TENANT_SIZE_MAX + 2];
    struct scheduler_gauges gauges;
    int64_t until_us = clock_mono_us() + TIMEOUT_MS * (int64_t)1000;

    (void)state;
    memcpy(done.u.done_mark.body_hash, request_of(1).body_hash, 8);
    put_record(TOPIC_STATE, "request/1", &done);
    put(TOPIC_STATE, "foreign", NULL, 0); /* the deletion of what nobody knows */
    put(TOPIC_RESULTS, "k", "garbage", 7);
    put(TOPIC_WORKER_EVENTS, "0", "garbage", 7);
    put_record(TOPIC_WORKER_EVENTS, "0", &request); /* readable, but no event */
    put(TOPIC_CONTROL, "batch/b", NULL, 0);
    put_request(1); /* finished already */
    put(TOPIC_REQUESTS_BULK, "bad", "garbage", 7);
    memset(name, 'x', sizeof name - 1);
    long_names.u.request.tenant = str_from(name);
    put_record(TOPIC_REQUESTS_BULK, "long", &long_names);
    put_request(2);

    if (!recover())
        fail_msg("%s", err.message);
    assert_int_equal(feed.unreadable_total, 2);
    while (reader_position(reader, TOPIC_REQUESTS_BULK, 0) < 4 && clock_mono_us() < until_us)
        assert_true(reader_poll(reader, 20, &live, &err));
    feed_step(&feed, &(struct event){.type = EVENT_TICK});
    scheduler_gauges(feed.scheduler, &gauges);
    assert_int_equal(gauges.duplicates_total, 1);
    assert_int_equal(gauges.classes[CLASS_INTERACTIVE].waiting_requests +
                         gauges.classes[CLASS_BULK].waiting_requests,
                     1);
    assert_int_equal(gauges.dead_letters_total, 2);
    for (size_t i = 0; i < feed.actions.count; i++) {
        const struct action *action = &feed.actions.items[i];
        if (action->type == ACTION_DEAD_LETTER && action->position.offset == 2)
            assert_memory_equal(action->reason.data, "tenant has 129 bytes", 20);
        else if (action->type == ACTION_DEAD_LETTER) {
            assert_int_equal(action->position.offset, 1);
            assert_memory_equal(action->raw.data, "garbage", 7);
            assert_memory_equal(action->key.data, "bad", 3);
        }
    }
}

static void test_leadership_lost(void **state)
{
    (void)state;
    leading = false;
    assert_false(recover());
    assert_int_equal(err.kind, ERR_ABORT);
}

/* The last one: what it puts into the state stays there. */
static void test_unreadable_state(void **state)
{
    struct record request = {.type = RECORD_REQUEST, .u.request = request_of(9)};
    char expected[60];
    int64_t end;

    (void)state;
    assert_true(kafka_offsets(producer, names.names[TOPIC_STATE], 0, TIMEOUT_MS, NULL, &end, &err));
    put_record(TOPIC_STATE, "k", &request);
    assert_false(recover());
    assert_int_equal(err.kind, ERR_REJECT);
    snprintf(expected, sizeof expected, "state[0] at offset %d, key \"k\": ", (int)end);
    if (!strstr(err.message, expected) || !strstr(err.message, "not a record of the state"))
        fail_msg("%s", err.message);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, new_core, free_core)
    const struct CMUnitTest tests[] = {
        TEST(test_good_and_bad_messages),
        TEST(test_leadership_lost),
        TEST(test_unreadable_state),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
