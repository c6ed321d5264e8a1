/* SPDX-License-Identifier: Apache-2.0
 *
 * The worker's side of Kafka when brokers refuse, forget or lose: its link, and the order in which
 * the publisher lets out what belongs to one request.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "common/clock.h"
#include "common/kafka.h"
#include "common/topics.h"
#include "tests/unit/kafka_mock.h"
#include "worker/shell/publisher.h"

enum { PRODUCE = 0, TIMEOUT_US = 10000000 };

static struct kafka_mock mock;
static struct config_common common = {.topic_prefix = "p.", .client_id = ""};
static struct link *link;
static struct tasks tasks;
static struct publisher publisher;
static struct codec *codec;
static struct err err;

static void delivered(void *context, struct task *task, bool chunk, const char *error)
{
    (void)context;
    publisher_delivered(&publisher, task, chunk, error);
}

static void wake(void *context)
{
    (void)context;
}

static void open_link(struct link **opened)
{
    const struct link_options options = {
        .common = &common, .slot = 1, .wake = wake, .delivered = delivered};

    assert_true(link_open(opened, &options, &err));
}

static int set_up(void **state)
{
    static const enum topic wanted[] = {TOPIC_ASSIGNMENTS, TOPIC_WORKER_EVENTS, TOPIC_TOKENS};
    char name[TOPIC_NAME_SIZE_MAX];

    (void)state;
    kafka_mock_open(&mock, 1);
    common.brokers = mock.brokers;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        topic_name(name, common.topic_prefix, wanted[i]);
        rd_kafka_mock_topic_create(mock.cluster, name, 2, 1);
    }
    open_link(&link);
    tasks_open(&tasks, 8);
    publisher = (struct publisher){.link = link, .tasks = &tasks, .slot = 1};
    return codec_open(&codec, &err) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    tasks_close(&tasks);
    publisher_reset(&publisher);
    link_close(link, 1000);
    codec_close(codec);
    kafka_mock_close(&mock);
    return 0;
}

/* Serves the link until *value is wanted. */
static void serve(const uint32_t *value, uint32_t wanted)
{
    int64_t until_us = clock_mono_us() + TIMEOUT_US;
    struct record *record;
    bool superseded;

    while (*value != wanted) {
        assert_true(clock_mono_us() < until_us);
        assert_true(link_poll(link, 10, &record, &superseded, &err));
        assert_null(record);
    }
}

/* ---- Hello ---- */

static bool hello(struct link *which, uint8_t incarnation)
{
    struct hello record = {.slot = 1, .incarnation = {{incarnation}}};

    return link_hello(which, &record, &err);
}

static void test_hello_to_forgetful_broker(void **state)
{
    (void)state;
    /* A topic may have been made a moment ago, and then, it was there before. */
    for (int i = 0; i < 2; i++) {
        rd_kafka_mock_topic_set_error(mock.cluster, "p.worker-events",
                                      RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
        assert_false(hello(link, 1));
        assert_int_equal(err.kind, ERR_RETRY);
        rd_kafka_mock_topic_set_error(mock.cluster, "p.worker-events", RD_KAFKA_RESP_ERR_NO_ERROR);
        if (!hello(link, 1))
            fail_msg("%s", err.message);
    }
}

static void test_superseded(void **state)
{
    struct link *other;
    struct record *record;
    bool superseded = false;
    int64_t until_us = clock_mono_us() + TIMEOUT_US;

    (void)state;
    assert_true(hello(link, 1));
    open_link(&other);
    assert_true(hello(other, 2));
    while (!superseded && clock_mono_us() < until_us)
        assert_true(link_poll(link, 10, &record, &superseded, &err));
    assert_true(superseded);
    superseded = false;
    assert_true(link_poll(other, 200, &record, &superseded, &err));
    assert_false(superseded); /* its own Hello is none */
    link_close(other, 1000);
}

/* ---- one request's messages ---- */

static struct task *new_task(uint8_t id)
{
    struct record assignment = {.type = RECORD_ASSIGNMENT,
                                .u.assignment = {.attempt = 1, .request.request_id = {{id}}}};
    struct buffer buffer = {0};
    struct record *record;

    assert_true(codec_encode(codec, &assignment, &buffer, &err));
    assert_true(codec_decode(codec, buffer.data, buffer.size, &record, &err));
    buffer_free(&buffer);
    struct task *task = task_new(id, record, 0);
    tasks_add(&tasks, task);
    return task;
}

/* Ids in the Progress, and the first of them for the stream. */
static struct report *progress_of(struct task *task)
{
    static const int32_t ids[] = {7, 8}, ends[] = {1};
    struct report *report = report_new(REPORT_PROGRESS, task);

    report->progress = (struct i32_array){ids, 2};
    report->chunk = (struct i32_array){ids, 1};
    report->chunk_ends = (struct i32_array){ends, 1};
    report->chunk_text = (struct str){"x", 1};
    return report;
}

static void publish(struct report *report)
{
    assert_true(publisher_report(&publisher, report, &err));
    assert_true(publisher_pump(&publisher, &err));
}

/* Progress, then the chunk it covers, then the end: each only after the one before is delivered. */
static void test_order(void **state)
{
    struct task *task = task_ref(new_task(1));
    uint64_t chunks = publisher.chunks, yielded = publisher.yielded;

    (void)state;
    publish(progress_of(task));
    publish(report_new(REPORT_RELEASED, task_ref(task)));
    assert_int_equal(publisher.chunks, chunks);
    serve(&task->progress_acked, 1);
    assert_int_equal(publisher.chunks, chunks); /* not by a delivery report: that needs the lease */
    assert_true(publisher_pump(&publisher, &err));
    assert_int_equal(publisher.chunks, chunks + 1);
    assert_int_equal(task->chunks_unacked, 1);
    assert_int_equal(publisher.yielded, yielded);
    serve(&task->chunks_unacked, 0);
    assert_int_equal(publisher.yielded, yielded);
    assert_true(publisher_pump(&publisher, &err));
    assert_int_equal(publisher.yielded, yielded + 1);
    assert_false(task->held);
    assert_false(publisher.broken);
    task_unref(task);
}

/* A message about a request that we hold is lost for good: this incarnation has to end. */
static void test_lost_message(void **state)
{
    struct task *task = task_ref(new_task(2));

    (void)state;
    rd_kafka_mock_push_request_errors(mock.cluster, PRODUCE, 1,
                                      RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE);
    publish(progress_of(task));
    serve(&task->progress_acked, 1);
    assert_true(publisher.broken);
    tasks_drop(&tasks, task);
    task_unref(task);
    publisher_reset(&publisher);
    assert_false(publisher.broken);
}

/* The scheduler has taken the request back meanwhile: no harm done, and nothing more is said. */
static void test_lost_message_of_dropped_task(void **state)
{
    struct task *task = task_ref(new_task(3));
    uint64_t chunks = publisher.chunks;

    (void)state;
    rd_kafka_mock_push_request_errors(mock.cluster, PRODUCE, 1,
                                      RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE);
    publish(progress_of(task));
    tasks_drop(&tasks, task);
    serve(&task->progress_acked, 1);
    publish(report_new(REPORT_RELEASED, task_ref(task)));
    assert_false(publisher.broken);
    assert_int_equal(publisher.chunks, chunks);
    assert_int_equal(task->refs, 1);
    task_unref(task);
}

/* Passing trouble is librdkafka's, and keeps the order. */
static void test_passing_trouble(void **state)
{
    struct task *task = task_ref(new_task(4));

    (void)state;
    rd_kafka_mock_push_request_errors(mock.cluster, PRODUCE, 2,
                                      RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
                                      RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION);
    publish(progress_of(task));
    publish(progress_of(task));
    serve(&task->progress_acked, 2);
    assert_true(publisher_pump(&publisher, &err));
    assert_int_equal(task->chunks_unacked, 2);
    serve(&task->chunks_unacked, 0);
    assert_false(publisher.broken);
    tasks_drop(&tasks, task);
    task_unref(task);
    publisher_reset(&publisher);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hello_to_forgetful_broker),
        cmocka_unit_test(test_superseded),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_lost_message),
        cmocka_unit_test(test_lost_message_of_dropped_task),
        cmocka_unit_test(test_passing_trouble),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
