/* SPDX-License-Identifier: Apache-2.0 */
#include "common/kafka_admin.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "common/clock.h"

enum { POLL_MS = 10 };

/* One admin operation: its queue and options, and the event that answers. */
struct operation {
    rd_kafka_queue_t *queue;
    rd_kafka_AdminOptions_t *options;
    rd_kafka_event_t *event;
};

static bool operation_open(struct operation *operation, rd_kafka_t *client,
                           rd_kafka_admin_op_t kind, int timeout_ms, struct err *err)
{
    char text[200];

    *operation = (struct operation){.queue = rd_kafka_queue_new(client),
                                    .options = rd_kafka_AdminOptions_new(client, kind)};
    return kafka_code(rd_kafka_AdminOptions_set_request_timeout(operation->options, timeout_ms,
                                                                text, sizeof text),
                      "admin request", err);
}

static bool operation_wait(struct operation *operation, const char *what, int timeout_ms,
                           struct err *err)
{
    operation->event = rd_kafka_queue_poll(operation->queue, timeout_ms + 1000);
    if (!operation->event)
        return err_set(err, ERR_RETRY, "%s: no answer within %d ms", what, timeout_ms);
    if (rd_kafka_event_error(operation->event) == RD_KAFKA_RESP_ERR_NO_ERROR)
        return true;
    return err_set(err, kafka_err_kind(rd_kafka_event_error(operation->event)), "%s: %s", what,
                   rd_kafka_event_error_string(operation->event));
}

static void operation_close(struct operation *operation)
{
    if (operation->event)
        rd_kafka_event_destroy(operation->event);
    rd_kafka_AdminOptions_destroy(operation->options);
    rd_kafka_queue_destroy(operation->queue);
}

/* Creates the topic; *exists instead of an error where it is there already. */
static bool create(rd_kafka_t *client, const struct kafka_topic *topic, int timeout_ms,
                   bool *exists, struct err *err)
{
    char text[200];
    struct operation operation;
    rd_kafka_NewTopic_t *wanted = rd_kafka_NewTopic_new(topic->name, topic->partitions,
                                                        topic->replication, text, sizeof text);
    bool ok;

    if (!wanted)
        return err_set(err, ERR_REJECT, "topic %s: %s", topic->name, text);
    ok = operation_open(&operation, client, RD_KAFKA_ADMIN_OP_CREATETOPICS, timeout_ms, err);
    for (const char *const *setting = topic->settings; ok && setting[0]; setting += 2)
        ok = kafka_code(rd_kafka_NewTopic_set_config(wanted, setting[0], setting[1]), setting[0],
                        err);
    if (ok) {
        rd_kafka_CreateTopics(client, &wanted, 1, operation.options, operation.queue);
        ok = operation_wait(&operation, topic->name, timeout_ms, err);
    }
    if (ok) {
        size_t count;
        const rd_kafka_topic_result_t **results = rd_kafka_CreateTopics_result_topics(
            rd_kafka_event_CreateTopics_result(operation.event), &count);
        rd_kafka_resp_err_t code = rd_kafka_topic_result_error(results[0]);
        *exists = code == RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS;
        if (code && !*exists) {
            const char *reason = rd_kafka_topic_result_error_string(results[0]);
            ok = err_set(err, kafka_err_kind(code), "creating topic %s: %s", topic->name,
                         reason ? reason : rd_kafka_err2str(code));
        }
    }
    operation_close(&operation);
    rd_kafka_NewTopic_destroy(wanted);
    return ok;
}

/* Appends "name is (wanted want)" to the report where the two differ. */
static void compare(struct kafka_topic_report *report, const char *name, const char *is,
                    const char *want)
{
    size_t used = strlen(report->difference);

    if (strcmp(is, want) == 0)
        return;
    report->state = KAFKA_TOPIC_DIFFERENT;
    snprintf(report->difference + used, sizeof report->difference - used, "%s%s %s (wanted %s)",
             used ? "; " : "", name, is, want);
}

static bool compare_settings(rd_kafka_t *client, const struct kafka_topic *topic, int timeout_ms,
                             struct kafka_topic_report *report, struct err *err)
{
    struct operation operation;
    rd_kafka_ConfigResource_t *resource =
        rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topic->name);
    const rd_kafka_ConfigResource_t **resources;
    const rd_kafka_ConfigEntry_t **entries;
    size_t resource_count, entry_count;
    bool ok =
        operation_open(&operation, client, RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS, timeout_ms, err);

    if (ok) {
        rd_kafka_DescribeConfigs(client, &resource, 1, operation.options, operation.queue);
        ok = operation_wait(&operation, topic->name, timeout_ms, err);
    }
    if (ok) {
        resources = rd_kafka_DescribeConfigs_result_resources(
            rd_kafka_event_DescribeConfigs_result(operation.event), &resource_count);
        CHECK(resource_count == 1);
        ok = kafka_code(rd_kafka_ConfigResource_error(resources[0]), topic->name, err);
        entries = rd_kafka_ConfigResource_configs(resources[0], &entry_count);
        for (const char *const *setting = topic->settings; ok && setting[0]; setting += 2)
            for (size_t i = 0; i < entry_count; i++)
                if (strcmp(rd_kafka_ConfigEntry_name(entries[i]), setting[0]) == 0)
                    compare(report, setting[0], rd_kafka_ConfigEntry_value(entries[i]), setting[1]);
    }
    operation_close(&operation);
    rd_kafka_ConfigResource_destroy(resource);
    return ok;
}

bool kafka_topic_check(rd_kafka_t *client, const struct kafka_topic *topic, int timeout_ms,
                       struct kafka_topic_report *report, struct err *err)
{
    int32_t partitions;
    char is[16], want[16];

    *report = (struct kafka_topic_report){.state = KAFKA_TOPIC_SAME};
    if (!kafka_partition_count(client, topic->name, timeout_ms, &partitions, err))
        return false;
    snprintf(is, sizeof is, "%" PRId32, partitions);
    snprintf(want, sizeof want, "%" PRId32, topic->partitions);
    compare(report, "partitions", is, want);
    return compare_settings(client, topic, timeout_ms, report, err);
}

/* The controller answers before the brokers have heard of the topic: one that had just started was
 * seen to deny what had just been created. */
static bool await_topic(rd_kafka_t *client, const char *name, int timeout_ms, struct err *err)
{
    const int64_t until_us = clock_mono_us() + timeout_ms * INT64_C(1000);
    int32_t partitions;

    while (!kafka_partition_count(client, name, timeout_ms, &partitions, err)) {
        if (err->kind != ERR_REJECT || clock_mono_us() >= until_us)
            return false;
        clock_sleep_ms(POLL_MS);
    }
    return true;
}

bool kafka_topic_ensure(rd_kafka_t *client, const struct kafka_topic *topic, int timeout_ms,
                        struct kafka_topic_report *report, struct err *err)
{
    bool exists;

    if (!create(client, topic, timeout_ms, &exists, err) ||
        !await_topic(client, topic->name, timeout_ms, err))
        return false;
    if (exists)
        return kafka_topic_check(client, topic, timeout_ms, report, err);
    *report = (struct kafka_topic_report){.state = KAFKA_TOPIC_CREATED};
    return true;
}

bool kafka_broker_count(rd_kafka_t *client, int timeout_ms, int *count, struct err *err)
{
    const struct rd_kafka_metadata *metadata;

    if (!kafka_await_broker(client, timeout_ms, err) ||
        !kafka_code(rd_kafka_metadata(client, 0, NULL, &metadata, timeout_ms), "brokers", err))
        return false;
    *count = metadata->broker_cnt;
    rd_kafka_metadata_destroy(metadata);
    return true;
}

char *kafka_cluster_id(rd_kafka_t *client, int timeout_ms, struct err *err)
{
    char *theirs = NULL, *ours = NULL;

    if (!kafka_await_broker(client, timeout_ms, err))
        return NULL;
    theirs = rd_kafka_clusterid(client, timeout_ms);
    if (theirs)
        ours = strdup(theirs);
    else
        err_set(err, ERR_RETRY, "the Kafka cluster names no id");
    if (theirs)
        rd_kafka_mem_free(client, theirs);
    return ours;
}

bool kafka_delete_records(rd_kafka_t *client, const struct kafka_position *positions, size_t count,
                          int timeout_ms, struct err *err)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)count);
    rd_kafka_DeleteRecords_t *request;
    struct operation operation;
    bool ok;

    for (size_t i = 0; i < count; i++)
        rd_kafka_topic_partition_list_add(list, positions[i].topic, positions[i].partition)
            ->offset = positions[i].offset;
    request = rd_kafka_DeleteRecords_new(list);
    rd_kafka_topic_partition_list_destroy(list);
    ok = operation_open(&operation, client, RD_KAFKA_ADMIN_OP_DELETERECORDS, timeout_ms, err);
    if (ok) {
        rd_kafka_DeleteRecords(client, &request, 1, operation.options, operation.queue);
        ok = operation_wait(&operation, "DeleteRecords", timeout_ms, err);
    }
    if (ok) {
        const rd_kafka_topic_partition_list_t *answer = rd_kafka_DeleteRecords_result_offsets(
            rd_kafka_event_DeleteRecords_result(operation.event));
        for (int i = 0; ok && i < answer->cnt; i++)
            ok = kafka_code(answer->elems[i].err, answer->elems[i].topic, err);
    }
    operation_close(&operation);
    rd_kafka_DeleteRecords_destroy(request);
    return ok;
}
