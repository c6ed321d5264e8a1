/* SPDX-License-Identifier: Apache-2.0
 *
 * The Kafka layer when brokers die or answer with errors, which no real broker does on command:
 * librdkafka's mock cluster. It knows nothing of isolation; that is in tests/e2e.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/clock.h"
#include "common/kafka.h"
#include "tests/unit/kafka_mock.h"

static struct err err;
static struct kafka_mock mock;

static int set_up(void **state)
{
    (void)state;
    kafka_mock_open(&mock, 3);
    rd_kafka_mock_topic_create(mock.cluster, "t", 1, 3);
    rd_kafka_mock_partition_set_leader(mock.cluster, "t", 0, 1);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    kafka_mock_close(&mock);
    return 0;
}

static rd_kafka_t *reader_open(void)
{
    const struct kafka_options options = {.brokers = mock.brokers, .client_id = "test"};
    rd_kafka_t *reader;

    assert_true(kafka_open(&reader, KAFKA_READER, &options, &err));
    return reader;
}

/* A broker that dies after it was named as leader is not waited for. */
static void test_offsets_of_dead_leader(void **state)
{
    rd_kafka_t *reader = reader_open();
    int64_t first = -9, end = -9, start_us;
    int32_t count;

    (void)state;
    assert_true(kafka_partition_count(reader, "t", 10000, &count, &err));
    rd_kafka_mock_broker_set_down(mock.cluster, 1);
    start_us = clock_mono_us();
    assert_false(kafka_offsets(reader, "t", 0, 500, &first, &end, &err));
    assert_int_equal(err.kind, ERR_RETRY);
    assert_true(clock_mono_us() - start_us < 5000000);

    rd_kafka_mock_partition_set_leader(mock.cluster, "t", 0, 2);
    assert_true(kafka_offsets(reader, "t", 0, 10000, &first, &end, &err));
    assert_int_equal(end, 0);
    kafka_close(reader, 0);
}

static void test_offsets_errors(void **state)
{
    enum { LIST_OFFSETS = 2 };
    rd_kafka_t *reader = reader_open();
    int64_t end = -9;

    (void)state;
    /* Passing trouble within the time given is not the caller's. */
    rd_kafka_mock_push_request_errors(mock.cluster, LIST_OFFSETS, 2,
                                      RD_KAFKA_RESP_ERR_OFFSET_NOT_AVAILABLE,
                                      RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE);
    assert_true(kafka_offsets(reader, "t", 0, 10000, NULL, &end, &err));
    assert_int_equal(end, 0);
    kafka_close(reader, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_offsets_of_dead_leader, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_offsets_errors, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
