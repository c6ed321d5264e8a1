/* SPDX-License-Identifier: Apache-2.0
 *
 * The lock that makes a leader, when the group's coordinator is slow, busy or has forgotten us.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/clock.h"
#include "scheduler/leadership.h"
#include "tests/unit/kafka_mock.h"

enum { OFFSET_COMMIT = 8, TIMEOUT_MS = 20000 };

static struct kafka_mock mock;
static struct leadership *leadership;
static struct err err;

static void wait_held(bool held)
{
    int64_t until_us = clock_mono_us() + TIMEOUT_MS * (int64_t)1000;

    while (leadership_held(leadership) != held && clock_mono_us() < until_us)
        assert_true(leadership_poll(leadership, 50, &err));
    assert_int_equal(leadership_held(leadership), held);
}

/* Joining takes the mock brokers three seconds, so all tests share one membership; the last
 * three end it. */
static int set_up(void **state)
{
    struct leadership_options options = {
        .client_id = "test", .group_id = "g", .topic = "leader", .session_timeout_ms = 6000};

    (void)state;
    kafka_mock_open(&mock, 1);
    rd_kafka_mock_topic_create(mock.cluster, "leader", 1, 1);
    options.brokers = mock.brokers;
    if (!leadership_open(&leadership, &options, &err))
        return -1;
    assert_false(leadership_held(leadership));
    wait_held(true);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    leadership_close(leadership);
    kafka_mock_close(&mock);
    return 0;
}

static void test_confirm(void **state)
{
    (void)state;
    assert_true(leadership_joined(leadership));
    if (!leadership_confirm(leadership, TIMEOUT_MS, &err))
        fail_msg("%s", err.message);
}

/* The coordinator is slow: not confirmed for now. Its answer comes when the next question is asked,
 * and must not be taken for that one's: by then we are no member any more, and initialising
 * transactions would fence a true leader. */
static void test_late_answer(void **state)
{
    (void)state;
    rd_kafka_mock_broker_set_rtt(mock.cluster, 1, 500);
    assert_false(leadership_confirm(leadership, 50, &err));
    assert_int_equal(err.kind, ERR_RETRY);
    rd_kafka_mock_broker_set_rtt(mock.cluster, 1, 0);
    clock_sleep_ms(700);
    assert_true(leadership_held(leadership));
    rd_kafka_mock_push_request_errors(mock.cluster, OFFSET_COMMIT, 1,
                                      RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID);
    assert_false(leadership_confirm(leadership, TIMEOUT_MS, &err));
}

/* What was said just now: the lock is gone, and nothing is confirmed until it is won again. */
static void test_lost(void **state)
{
    (void)state;
    wait_held(false);
    assert_false(leadership_confirm(leadership, 100, &err));
    assert_int_equal(err.kind, ERR_ABORT);
}

/* A broker that answers nothing any more, with a question under way: the client ends by itself,
 * before kafka_close() leaves it behind after 13 s. */
static void test_close_in_a_stall(void **state)
{
    int64_t start_us = clock_mono_us();

    (void)state;
    rd_kafka_mock_broker_set_rtt(mock.cluster, 1, 60000);
    assert_false(leadership_confirm(leadership, 50, &err));
    leadership_close(leadership);
    leadership = NULL;
    assert_true(clock_mono_us() - start_us < 12000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_confirm),
        cmocka_unit_test(test_late_answer),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_close_in_a_stall),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
