/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/leadership.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "common/clock.h"
#include "common/kafka.h"
#include "common/log.h"

/* Heartbeats to a session: the usual third would let one lost heartbeat and a slow one end it. */
enum { HEARTBEATS_PER_SESSION = 5 };

struct leadership {
    rd_kafka_t *member;
    rd_kafka_queue_t *answers; /* of leadership_ask() */
    uintptr_t asked;           /* number of the last question */
    char *topic;
    bool held;
    bool joined;
};

static bool names_leader(const struct leadership *leadership,
                         const rd_kafka_topic_partition_list_t *partitions)
{
    for (int i = 0; i < partitions->cnt; i++) {
        if (partitions->elems[i].partition == 0 &&
            strcmp(partitions->elems[i].topic, leadership->topic) == 0)
            return true;
    }
    return false;
}

static void leadership_rebalance(rd_kafka_t *client, rd_kafka_resp_err_t event,
                                 rd_kafka_topic_partition_list_t *partitions, void *context)
{
    struct leadership *leadership = context;
    bool gains = event == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
    rd_kafka_error_t *error;
    struct err err;

    if (names_leader(leadership, partitions)) {
        LOG_INFO(gains ? "leadership_gained" : "leadership_lost", "topic=%s session_lost=%d",
                 leadership->topic, rd_kafka_assignment_lost(client));
        leadership->held = gains;
    }
    /* Nothing is read from the topic; without an offset the reset policy, an error, would apply. */
    for (int i = 0; gains && i < partitions->cnt; i++)
        partitions->elems[i].offset = RD_KAFKA_OFFSET_END;
    leadership->joined = gains;
    error = gains ? rd_kafka_incremental_assign(client, partitions)
                  : rd_kafka_incremental_unassign(client, partitions);
    if (!kafka_error(error, "assigning the leader topic", &err)) {
        /* Without the assignment the group gives us nothing to hold. */
        log_err(LOG_LEVEL_WARN, "leadership_assign_failed", &err);
        leadership->held = false;
    }
}

static bool leadership_subscribe(struct leadership *leadership, struct err *err)
{
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);

    rd_kafka_topic_partition_list_add(topics, leadership->topic, RD_KAFKA_PARTITION_UA);
    rd_kafka_resp_err_t code = rd_kafka_subscribe(leadership->member, topics);
    rd_kafka_topic_partition_list_destroy(topics);
    return kafka_code(code, "subscribing to the leader topic", err);
}

bool leadership_open(struct leadership **leadership, const struct leadership_options *options,
                     struct err *err)
{
    char session[64], heartbeat[64];
    struct leadership *opened = calloc(1, sizeof *opened);
    const char **items = calloc(options->settings.count + 2, sizeof *items);

    CHECK(opened && items);
    opened->topic = strdup(options->topic);
    CHECK(opened->topic);
    snprintf(session, sizeof session, "session.timeout.ms=%lld",
             (long long)options->session_timeout_ms);
    snprintf(heartbeat, sizeof heartbeat, "heartbeat.interval.ms=%lld",
             (long long)options->session_timeout_ms / HEARTBEATS_PER_SESSION);
    items[0] = session;
    items[1] = heartbeat;
    for (size_t i = 0; i < options->settings.count; i++)
        items[i + 2] = options->settings.items[i];
    struct kafka_options kafka = {
        .brokers = options->brokers,
        .client_id = options->client_id,
        .settings = {.items = items, .count = options->settings.count + 2},
        .group_id = options->group_id,
        .rebalance = leadership_rebalance,
        .context = opened,
    };
    bool ok = kafka_open(&opened->member, KAFKA_MEMBER, &kafka, err);
    if (ok) {
        opened->answers = rd_kafka_queue_new(opened->member);
        ok = leadership_subscribe(opened, err);
    }
    free(items);
    if (!ok) {
        leadership_close(opened);
        return false;
    }
    *leadership = opened;
    return true;
}

void leadership_close(struct leadership *leadership)
{
    if (!leadership)
        return;
    if (leadership->answers)
        rd_kafka_queue_destroy(leadership->answers);
    kafka_close(leadership->member, 0);
    free(leadership->topic);
    free(leadership);
}

/* False for what no waiting cures; the rest librdkafka gets over by itself, by joining again. */
static bool leadership_event(const struct leadership *leadership, const rd_kafka_message_t *message,
                             struct err *err)
{
    switch (message->err) {
    case RD_KAFKA_RESP_ERR_NO_ERROR: /* somebody wrote to the leader topic */
    case RD_KAFKA_RESP_ERR__PARTITION_EOF:
        return true;
    case RD_KAFKA_RESP_ERR__FATAL:
    case RD_KAFKA_RESP_ERR__AUTHENTICATION:
    case RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
        return err_set(err, ERR_FATAL, "the group of %s: %s", leadership->topic,
                       rd_kafka_message_errstr(message));
    case RD_KAFKA_RESP_ERR_INVALID_SESSION_TIMEOUT:
        return err_set(err, ERR_REJECT,
                       "the group of %s: session_timeout is not within what the broker allows "
                       "(its group.min.session.timeout.ms and group.max.session.timeout.ms)",
                       leadership->topic);
    default:
        LOG_WARN("group_trouble", "topic=%s error=%s", leadership->topic,
                 rd_kafka_message_errstr(message));
        return true;
    }
}

bool leadership_poll(struct leadership *leadership, int timeout_ms, struct err *err)
{
    int64_t deadline_us = clock_mono_us() + (int64_t)timeout_ms * 1000;
    bool held = leadership->held;

    for (;;) {
        int64_t left_ms = (deadline_us - clock_mono_us()) / 1000;
        rd_kafka_message_t *message =
            rd_kafka_consumer_poll(leadership->member, left_ms > 0 ? (int)left_ms : 0);
        if (message) {
            bool ok = leadership_event(leadership, message, err);
            rd_kafka_message_destroy(message);
            if (!ok)
                return false;
        }
        if (leadership->held != held || (!message && left_ms <= 0))
            return true;
    }
}

bool leadership_held(const struct leadership *leadership)
{
    return leadership->held;
}

bool leadership_joined(const struct leadership *leadership)
{
    return leadership->joined;
}

/* Sends an offset commit for leader-0, which the coordinator checks against member and generation.
 * The offset means nothing. NO_ERROR: the membership is current. */
static rd_kafka_resp_err_t leadership_ask(struct leadership *leadership, int timeout_ms)
{
    rd_kafka_topic_partition_list_t *offsets = rd_kafka_topic_partition_list_new(1);
    uintptr_t question = ++leadership->asked;
    rd_kafka_event_t *answer;
    bool ours = false;

    rd_kafka_topic_partition_list_add(offsets, leadership->topic, 0)->offset = 0;
    rd_kafka_resp_err_t code = rd_kafka_commit_queue(leadership->member, offsets,
                                                     leadership->answers, NULL, (void *)question);
    rd_kafka_topic_partition_list_destroy(offsets);
    if (code)
        return code;
    /* An answer to an earlier question, late, says nothing about now. */
    while (!ours && (answer = rd_kafka_queue_poll(leadership->answers, timeout_ms))) {
        ours = rd_kafka_event_opaque(answer) == (void *)question;
        code = rd_kafka_event_error(answer);
        rd_kafka_event_destroy(answer);
    }
    return ours ? code : RD_KAFKA_RESP_ERR__TIMED_OUT;
}

bool leadership_confirm(struct leadership *leadership, int timeout_ms, struct err *err)
{
    rd_kafka_resp_err_t code = leadership_ask(leadership, timeout_ms);

    /* The answer counts only if nobody has taken the lock meanwhile: a client whose session ended
     * has to serve the loss here before it can join again with a new, valid membership. */
    if (!leadership_poll(leadership, 0, err))
        return false;
    if (!leadership->held)
        return err_set(err, ERR_ABORT, "leadership of %s is lost", leadership->topic);
    if (code)
        return err_set(err, ERR_RETRY, "membership in the group of %s is not confirmed: %s",
                       leadership->topic, rd_kafka_err2str(code));
    return true;
}
