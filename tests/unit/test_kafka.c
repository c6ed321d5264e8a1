/* SPDX-License-Identifier: Apache-2.0
 *
 * What of the Kafka layer needs no broker; the rest is in tests/e2e/test_kafka_broker.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "common/kafka.h"
#include "common/topics.h"

static struct err err;

static bool open_with(enum kafka_role role, const char *setting, rd_kafka_t **client)
{
    const struct kafka_options options = {.brokers = "127.0.0.1:1",
                                          .client_id = "test",
                                          .settings = {&setting, setting != NULL},
                                          .transactional_id = "t",
                                          .group_id = "g"};

    *client = NULL;
    return kafka_open(client, role, &options, &err);
}

static void test_user_settings(void **state)
{
    static const struct {
        enum kafka_role role;
        const char *setting;
        const char *message; /* NULL: accepted */
    } cases[] = {
        {KAFKA_PRODUCER, "linger.ms=20", NULL},
        {KAFKA_PRODUCER, "compression.codec=none", NULL},
        {KAFKA_PRODUCER, "enable.idempotence=true", NULL},
        {KAFKA_PRODUCER, "enable.idempotence=false", "must be true here (retries must neither"},
        {KAFKA_READER, "auto.offset.reset=latest", "must be error here"},
        {KAFKA_READER, "isolation.level=read_uncommitted", "must be read_committed"},
        {KAFKA_MEMBER, "partition.assignment.strategy=range", "must be cooperative-sticky"},
        {KAFKA_PRODUCER, "no.such.setting=1", "No such configuration property"},
        {KAFKA_PRODUCER, "linger.ms=soon", "linger.ms=soon"},
        {KAFKA_PRODUCER, "lonely", "expected key=value"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rd_kafka_t *client;
        bool ok = open_with(cases[i].role, cases[i].setting, &client);
        kafka_close(client, 0);
        assert_true(ok == !cases[i].message);
        if (!ok && !strstr(err.message, cases[i].message))
            fail_msg("%s: %s", cases[i].setting, err.message);
    }
}

static void test_every_role_opens(void **state)
{
    rd_kafka_t *client;

    (void)state;
    for (int role = KAFKA_PRODUCER; role <= KAFKA_MEMBER; role++) {
        assert_true(open_with((enum kafka_role)role, NULL, &client));
        assert_true(kafka_healthy(client, &err));
        kafka_close(client, 0);
    }
}

static void test_error_kinds(void **state)
{
    (void)state;
    assert_true(kafka_code(RD_KAFKA_RESP_ERR_NO_ERROR, "x", &err));
    assert_false(kafka_code(RD_KAFKA_RESP_ERR__TRANSPORT, "asking", &err));
    assert_int_equal(err.kind, ERR_RETRY);
    assert_string_equal(err.message, "asking: Local: Broker transport failure (_TRANSPORT)");
    assert_int_equal(kafka_err_kind(RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE), ERR_REJECT);
    assert_int_equal(kafka_err_kind(RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION), ERR_ABORT);
    assert_int_equal(kafka_err_kind(RD_KAFKA_RESP_ERR_UNKNOWN_LEADER_EPOCH), ERR_RETRY);
    assert_int_equal(kafka_err_kind(RD_KAFKA_RESP_ERR__FENCED), ERR_FATAL);
    assert_int_equal(kafka_err_kind(RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET), ERR_FATAL);
    assert_int_equal(kafka_err_kind(RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE), ERR_FATAL);
    assert_true(kafka_error(NULL, "x", &err));
}

static void test_topic_names(void **state)
{
    char name[TOPIC_NAME_SIZE_MAX];

    (void)state;
    topic_name(name, "pelton.", TOPIC_REQUESTS_BULK);
    assert_string_equal(name, "pelton.requests.bulk");
    for (int topic = 0; topic < TOPIC_COUNT; topic++)
        assert_non_null(topic_specs[topic].name);
    assert_string_equal(topic_specs[TOPIC_REQUESTS_INTERACTIVE].retention_ms, "-1");
    assert_string_equal(topic_specs[TOPIC_STATE].cleanup, "compact");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_user_settings),
        cmocka_unit_test(test_every_role_opens),
        cmocka_unit_test(test_error_kinds),
        cmocka_unit_test(test_topic_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
