/* SPDX-License-Identifier: Apache-2.0
 *
 * What becomes of a tick whose transaction the brokers answer with an error: retried, given up for
 * the next term, fenced, or the end of the process. A real broker gives none of these answers on
 * command, so the brokers are librdkafka's mock ones.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "common/clock.h"
#include "scheduler/outbox.h"
#include "tests/unit/kafka_mock.h"

enum api { PRODUCE = 0, INIT = 22, ADD_PARTITIONS = 24, END = 26 }; /* Kafka's numbers */
enum { TIMEOUT_MS = 5000 };

static struct kafka_mock mock;
static struct topic_map topics;
static struct codec *codec;
static struct err err;

static int set_up(void **state)
{
    (void)state;
    kafka_mock_open(&mock, 1);
    topic_map_name(&topics, "p.");
    for (int i = 0; i < TOPIC_COUNT; i++) {
        topics.partitions[i] = 1;
        rd_kafka_mock_topic_create(mock.cluster, topics.names[i], 1, 1);
    }
    return codec_open(&codec, &err) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    codec_close(codec);
    kafka_mock_close(&mock);
    return 0;
}

static bool outbox_try(struct outbox **outbox)
{
    const struct outbox_options options = {.brokers = mock.brokers,
                                           .client_id = "test",
                                           .transactional_id = "t",
                                           .topics = &topics,
                                           .codec = codec};

    return outbox_open(outbox, &options, &err);
}

static struct outbox *outbox_new(void)
{
    struct outbox *outbox;

    if (!outbox_try(&outbox))
        fail_msg("%s", err.message);
    return outbox;
}

static struct outbox *outbox_ready(void)
{
    struct outbox *outbox = outbox_new();

    assert_true(outbox_init(outbox, TIMEOUT_MS, &err));
    return outbox;
}

/* Two messages, as a tick that ends a request sends them. */
static bool commit(struct outbox *outbox, int timeout_ms)
{
    struct record mark = {.type = RECORD_DONE_MARK};
    struct record result = {.type = RECORD_RESULT};
    struct action items[] = {
        {.type = ACTION_SEND, .topic = TOPIC_STATE, .record = &mark},
        {.type = ACTION_SEND, .topic = TOPIC_RESULTS, .partition = 0, .record = &result},
    };
    struct actions actions = {.items = items, .count = 2};
    size_t sent;

    return outbox_commit(outbox, &actions, timeout_ms, &sent, &err);
}

static void push(enum api api, rd_kafka_resp_err_t code)
{
    rd_kafka_mock_push_request_errors(mock.cluster, (int16_t)api, 1, code);
}

/* Trouble that passes is librdkafka's to get over, within the time of a commit. */
static void test_passing_trouble(void **state)
{
    static const struct {
        enum api api;
        rd_kafka_resp_err_t code;
    } cases[] = {
        {ADD_PARTITIONS, RD_KAFKA_RESP_ERR_CONCURRENT_TRANSACTIONS},
        {ADD_PARTITIONS, RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS},
        {PRODUCE, RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS},
        {PRODUCE, RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT},
        {END, RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE},
        {END, RD_KAFKA_RESP_ERR_CONCURRENT_TRANSACTIONS},
    };
    struct outbox *outbox = outbox_ready();

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        push(cases[i].api, cases[i].code);
        if (!commit(outbox, TIMEOUT_MS))
            fail_msg("%s: %s", rd_kafka_err2name(cases[i].code), err.message);
        assert_int_equal(outbox_written_end(outbox, TOPIC_RESULTS, 0), (int)i + 1);
        assert_int_equal(outbox_written_end(outbox, TOPIC_USAGE, 0), -1);
    }
    outbox_close(outbox);
}

static void test_failed_commits(void **state)
{
    static const struct {
        enum api api;
        rd_kafka_resp_err_t code;
        enum err_kind kind;
        bool fenced;
    } cases[] = {
        {END, RD_KAFKA_RESP_ERR_PRODUCER_FENCED, ERR_ABORT, true},
        {END, RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH, ERR_ABORT, true},
        {END, RD_KAFKA_RESP_ERR_INVALID_TXN_STATE, ERR_ABORT, false},
        {END, RD_KAFKA_RESP_ERR_INVALID_PRODUCER_ID_MAPPING, ERR_ABORT, false},
        {END, RD_KAFKA_RESP_ERR_UNKNOWN, ERR_ABORT, false},
        {END, RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ERR_FATAL, false},
        {ADD_PARTITIONS, RD_KAFKA_RESP_ERR_PRODUCER_FENCED, ERR_ABORT, true},
        {ADD_PARTITIONS, RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH, ERR_ABORT, true},
        {ADD_PARTITIONS, RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, ERR_FATAL, false},
        {PRODUCE, RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH, ERR_ABORT, true},
        {PRODUCE, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, ERR_ABORT, false},
        {PRODUCE, RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, ERR_ABORT, false},
        {PRODUCE, RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, ERR_FATAL, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct outbox *outbox = outbox_ready();

        push(cases[i].api, cases[i].code);
        if (commit(outbox, TIMEOUT_MS) || err.kind != cases[i].kind ||
            outbox_fenced(outbox) != cases[i].fenced)
            fail_msg("%s to request %d: kind %d, fenced %d, %s", rd_kafka_err2name(cases[i].code),
                     cases[i].api, (int)err.kind, outbox_fenced(outbox), err.message);
        /* The reason, not what it has swept away. */
        assert_null(strstr(err.message, "Purged"));
        outbox_close(outbox);
        rd_kafka_mock_clear_request_errors(mock.cluster, (int16_t)cases[i].api);
    }
}

/* Given up after its time, and closed soon, though the broker still owes its answer. */
static void test_slow_commit(void **state)
{
    struct outbox *outbox = outbox_ready();
    int64_t start_us;

    (void)state;
    rd_kafka_mock_broker_set_rtt(mock.cluster, 1, 10000);
    start_us = clock_mono_us();
    assert_false(commit(outbox, 300));
    assert_int_equal(err.kind, ERR_ABORT);
    assert_false(outbox_fenced(outbox));
    outbox_close(outbox);
    assert_true(clock_mono_us() - start_us < 5000000);
    rd_kafka_mock_broker_set_rtt(mock.cluster, 1, 0);
}

/* Nothing to send opens no transaction: one would fail here, before the initialisation. */
static void test_empty_tick(void **state)
{
    struct outbox *outbox = outbox_new();
    struct action pause = {.type = ACTION_PAUSE};
    struct actions actions = {.items = &pause, .count = 1};
    size_t sent = 9;

    (void)state;
    assert_true(outbox_commit(outbox, &actions, TIMEOUT_MS, &sent, &err));
    assert_int_equal(sent, 0);
    outbox_close(outbox);
}

static void test_initialisation(void **state)
{
    static const struct {
        rd_kafka_resp_err_t code;
        bool ok;
        enum err_kind kind;
    } cases[] = {
        {RD_KAFKA_RESP_ERR_CONCURRENT_TRANSACTIONS, true, ERR_RETRY},
        {RD_KAFKA_RESP_ERR_NOT_COORDINATOR, true, ERR_RETRY},
        {RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED, false, ERR_FATAL},
        {RD_KAFKA_RESP_ERR_INVALID_TRANSACTION_TIMEOUT, false, ERR_FATAL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct outbox *outbox = outbox_new();

        push(INIT, cases[i].code);
        bool ok = outbox_init(outbox, TIMEOUT_MS, &err);
        if (ok != cases[i].ok || (!ok && err.kind != cases[i].kind))
            fail_msg("%s: kind %d, %s", rd_kafka_err2name(cases[i].code), (int)err.kind,
                     err.message);
        outbox_close(outbox);
    }
}

/* The coordinator is away for longer than one call waits: the same call is made again. */
static void test_initialisation_again(void **state)
{
    struct outbox *outbox = outbox_new();

    (void)state;
    rd_kafka_mock_broker_set_down(mock.cluster, 1);
    assert_false(outbox_init(outbox, 200, &err));
    assert_int_equal(err.kind, ERR_RETRY);
    rd_kafka_mock_broker_set_up(mock.cluster, 1);
    if (!outbox_init(outbox, 2 * TIMEOUT_MS, &err))
        fail_msg("%s", err.message);
    assert_true(commit(outbox, TIMEOUT_MS));
    outbox_close(outbox);
}

/* A broker that has just restarted may not know a topic yet; that ends no process. */
static void test_topic_not_known_yet(void **state)
{
    struct outbox *outbox = NULL;

    (void)state;
    rd_kafka_mock_topic_set_error(mock.cluster, topics.names[TOPIC_USAGE],
                                  RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
    assert_false(outbox_try(&outbox));
    assert_int_equal(err.kind, ERR_RETRY);
    rd_kafka_mock_topic_set_error(mock.cluster, topics.names[TOPIC_USAGE],
                                  RD_KAFKA_RESP_ERR_NO_ERROR);
    assert_true(outbox_try(&outbox));
    outbox_close(outbox);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_passing_trouble),     cmocka_unit_test(test_failed_commits),
        cmocka_unit_test(test_slow_commit),         cmocka_unit_test(test_empty_tick),
        cmocka_unit_test(test_initialisation),      cmocka_unit_test(test_initialisation_again),
        cmocka_unit_test(test_topic_not_known_yet),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
