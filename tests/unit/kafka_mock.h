/* SPDX-License-Identifier: Apache-2.0
 *
 * kafka_mock - librdkafka's own mock brokers, on ports of 127.0.0.1, for one test.
 *
 * Topics are made by rd_kafka_mock_topic_create(), errors by rd_kafka_mock_push_request_errors().
 */
#ifndef TESTS_KAFKA_MOCK_H
#define TESTS_KAFKA_MOCK_H

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#include "common/check.h"

struct kafka_mock {
    rd_kafka_t *host; /* a client whose only use is to own the cluster */
    rd_kafka_mock_cluster_t *cluster;
    const char *brokers; /* bootstrap.servers */
};

static inline void kafka_mock_open(struct kafka_mock *mock, int brokers)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char text[200];

    /* It has no brokers to connect to, and would say so. */
    CHECK(rd_kafka_conf_set(conf, "log_level", "0", text, sizeof text) == RD_KAFKA_CONF_OK);
    mock->host = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text);
    CHECK(mock->host);
    mock->cluster = rd_kafka_mock_cluster_new(mock->host, brokers);
    CHECK(mock->cluster);
    mock->brokers = rd_kafka_mock_cluster_bootstraps(mock->cluster);
}

static inline void kafka_mock_close(struct kafka_mock *mock)
{
    rd_kafka_mock_cluster_destroy(mock->cluster);
    rd_kafka_destroy(mock->host);
}

#endif
