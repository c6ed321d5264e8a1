/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/recovery.h"

#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"

/* Asking an end may take this long; a broker's restart takes about 5 s. */
enum { ASK_MS = 10000, POLL_MS = 20 };

/* What the last tick in the state says about results and usage: [partition], -1 unknown. */
struct restore {
    const struct recovery *recovery;
    int64_t *ends[TOPIC_COUNT];
    uint64_t records[TOPIC_COUNT];
};

static const enum topic outputs[] = {TOPIC_RESULTS, TOPIC_USAGE};
/* The first two are read to their ends before the requests begin: these have no end worth waiting
 * for, and nobody would pause them in time. */
static const enum topic live[] = {TOPIC_WORKER_EVENTS, TOPIC_CONTROL, TOPIC_REQUESTS_INTERACTIVE,
                                  TOPIC_REQUESTS_BULK};
enum { LIVE_BEFORE = 2 };
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static bool restore_failed(enum topic topic, const rd_kafka_message_t *message, const char *why,
                           struct err *err)
{
    char key[48];
    size_t size = 0;

    /* Keys of ours are ASCII; a foreign one is only to be known again. */
    for (; message->key && size < message->key_len && size + 1 < sizeof key; size++) {
        char c = ((const char *)message->key)[size];
        key[size] = c >= ' ' && c <= '~' ? c : '?';
    }
    key[size] = '\0';
    /* A restart reads it again: only a person can say what is to become of it. */
    return err_set(err, ERR_REJECT,
                   "%s[%d] at offset %lld, key \"%s\": %.80s; see \"A foreign record in state\" in "
                   "docs/ARCHITECTURE.md",
                   topic_specs[topic].name, (int)message->partition, (long long)message->offset,
                   key, why);
}

static void restore_note_outputs(struct restore *restore, const struct tick *tick)
{
    for (size_t i = 0; i < tick->outputs_count; i++) {
        const struct partition_offset *output = &tick->outputs[i];
        for (size_t k = 0; k < COUNT(outputs); k++) {
            enum topic topic = outputs[k];
            if (str_equal(output->topic, str_from(topic_specs[topic].name)) &&
                output->partition < restore->recovery->topics->partitions[topic])
                restore->ends[topic][output->partition] = output->offset;
        }
    }
}

/* A tombstone. Only those of requests mean something. */
static void restore_deleted(struct restore *restore, const rd_kafka_message_t *message)
{
    static const char prefix[] = "request/";
    size_t prefix_size = sizeof prefix - 1;
    struct event event = {.type = EVENT_RESTORE_DELETED};

    if (message->key_len <= prefix_size || memcmp(message->key, prefix, prefix_size) != 0)
        return;
    struct str text = {(const char *)message->key + prefix_size, message->key_len - prefix_size};
    if (request_id_parse(text, &event.id))
        feed_step(restore->recovery->feed, &event);
}

static bool restore_state(void *context, enum topic topic, const rd_kafka_message_t *message,
                          struct err *err)
{
    struct restore *restore = context;
    struct event event = {.type = EVENT_RESTORE_STATE};
    struct record *record;
    struct err cause;

    restore->records[topic]++;
    if (!message->payload) {
        restore_deleted(restore, message);
        return true;
    }
    if (!codec_decode(restore->recovery->feed->codec, message->payload, message->len, &record,
                      &cause))
        return restore_failed(topic, message, cause.message, err);
    if (record->type < RECORD_IN_FLIGHT || record->type > RECORD_WORKER_MARK) {
        restore_failed(topic, message, "not a record of the state", err);
        record_free(record);
        return false;
    }
    if (record->type == RECORD_TICK)
        restore_note_outputs(restore, &record->u.tick);
    event.record = record;
    feed_step(restore->recovery->feed, &event);
    record_free(record);
    return true;
}

static bool restore_output(void *context, enum topic topic, const rd_kafka_message_t *message,
                           struct err *err)
{
    struct restore *restore = context;
    struct event event = {.type = EVENT_RESTORE_OUTPUT};
    struct record *record;

    restore->records[topic]++;
    /* We wrote none of these; whoever did, no request is concerned. */
    if (!message->payload ||
        !codec_decode(restore->recovery->feed->codec, message->payload, message->len, &record, err))
        return true;
    if (record->type == RECORD_RESULT || record->type == RECORD_USAGE ||
        record->type == RECORD_WORKER_TIME) {
        event.record = record;
        feed_step(restore->recovery->feed, &event);
    }
    record_free(record);
    return true;
}

/* Marks the ends of these topics, as they are now, and reads until all of them are reached. */
static bool restore_read(const struct recovery *recovery, const enum topic *topics, size_t count,
                         const struct reader_sink *sink, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        for (int32_t p = 0; p < recovery->topics->partitions[topics[i]]; p++) {
            if (!recovery->goes_on(recovery->context, err) ||
                !reader_mark_end(recovery->reader, topics[i], p, ASK_MS, err))
                return false;
        }
    }
    for (size_t i = 0; i < count; i++) {
        for (int32_t p = 0; p < recovery->topics->partitions[topics[i]]; p++) {
            while (!reader_end_reached(recovery->reader, topics[i], p)) {
                if (!recovery->goes_on(recovery->context, err) ||
                    !reader_poll(recovery->reader, POLL_MS, sink, err))
                    return false;
            }
        }
    }
    return true;
}

/* offset: where to begin with a partition, -1 for the beginning. */
static bool restore_assign(const struct restore *restore, const enum topic *topics, size_t count,
                           int64_t (*offset)(const struct restore *restore, enum topic topic,
                                             int32_t partition),
                           struct err *err)
{
    const struct recovery *recovery = restore->recovery;
    struct reader_from *from;
    size_t from_count = 0, partitions = 0;

    for (size_t i = 0; i < count; i++)
        partitions += (size_t)recovery->topics->partitions[topics[i]];
    from = calloc(partitions, sizeof *from);
    CHECK(from);
    for (size_t i = 0; i < count; i++) {
        for (int32_t p = 0; p < recovery->topics->partitions[topics[i]]; p++)
            from[from_count++] = (struct reader_from){
                .topic = topics[i],
                .partition = p,
                .offset = offset(restore, topics[i], p),
                /* A request that is gone was lost; all else that retention took has served. */
                .gone_allowed =
                    topics[i] != TOPIC_REQUESTS_INTERACTIVE && topics[i] != TOPIC_REQUESTS_BULK,
            };
    }
    bool ok = reader_assign(recovery->reader, from, from_count, err);
    free(from);
    return ok;
}

static int64_t state_offset(const struct restore *restore, enum topic topic, int32_t partition)
{
    (void)restore;
    (void)topic;
    (void)partition;
    return -1;
}

static int64_t output_offset(const struct restore *restore, enum topic topic, int32_t partition)
{
    return restore->ends[topic][partition];
}

static int64_t live_offset(const struct restore *restore, enum topic topic, int32_t partition)
{
    int64_t position = reader_position(restore->recovery->reader, topic, partition);

    /* Read to the end already: go on from there. */
    if (position >= 0)
        return position;
    return scheduler_start_offset(restore->recovery->feed->scheduler, topic, partition);
}

/* What retention has deleted of the outputs, while all stood still, cannot be looked for. */
static void restore_tell_gone(const struct restore *restore)
{
    const struct recovery *recovery = restore->recovery;

    for (size_t i = 0; i < COUNT(outputs); i++) {
        for (int32_t p = 0; p < recovery->topics->partitions[outputs[i]]; p++) {
            int64_t wanted = restore->ends[outputs[i]][p];
            int64_t first = reader_position(recovery->reader, outputs[i], p);
            if (first > (wanted < 0 ? 0 : wanted))
                feed_step(recovery->feed, &(struct event){.type = EVENT_RESTORE_GONE});
        }
    }
}

/* A transaction that a broker has torn is for people to know, although nothing is lost by it. */
static void restore_report(const struct recovery *recovery)
{
    struct scheduler_gauges gauges;

    scheduler_gauges(recovery->feed->scheduler, &gauges);
    if (gauges.torn.requests || gauges.torn.marks || gauges.torn.usages)
        LOG_WARN("transaction_torn", "requests_again=%llu marks_added=%llu usages_added=%llu",
                 (unsigned long long)gauges.torn.requests, (unsigned long long)gauges.torn.marks,
                 (unsigned long long)gauges.torn.usages);
}

/* Tells the core where its outputs end: what is written from now on stands behind. */
static void restore_tell_ends(const struct restore *restore)
{
    for (size_t i = 0; i < COUNT(outputs); i++) {
        for (int32_t p = 0; p < restore->recovery->topics->partitions[outputs[i]]; p++) {
            struct event event = {
                .type = EVENT_OUTPUT_END,
                .position = {outputs[i], p,
                             reader_position(restore->recovery->reader, outputs[i], p)}};
            feed_step(restore->recovery->feed, &event);
        }
    }
}

static bool restore_run(struct restore *restore, struct err *err)
{
    static const enum topic state[] = {TOPIC_STATE};
    const struct recovery *recovery = restore->recovery;
    struct reader_sink state_sink = {restore_state, restore};
    struct reader_sink output_sink = {restore_output, restore};
    struct reader_sink live_sink = {feed_live, recovery->feed};

    if (!restore_assign(restore, state, 1, state_offset, err) ||
        !restore_read(recovery, state, 1, &state_sink, err) ||
        !restore_assign(restore, outputs, COUNT(outputs), output_offset, err))
        return false;
    restore_tell_gone(restore);
    if (!restore_read(recovery, outputs, COUNT(outputs), &output_sink, err))
        return false;
    feed_step(recovery->feed, &(struct event){.type = EVENT_RESTORED});
    restore_tell_ends(restore);
    restore_report(recovery);
    /* Worker events and control to their ends before anything is decided: what still runs is
     * adopted, what is cancelled is not started. */
    return restore_assign(restore, live, LIVE_BEFORE, live_offset, err) &&
           restore_read(recovery, live, LIVE_BEFORE, &live_sink, err) &&
           restore_assign(restore, live, COUNT(live), live_offset, err);
}

bool recovery_run(const struct recovery *recovery, struct err *err)
{
    struct restore restore = {.recovery = recovery};
    int64_t start_us = clock_mono_us();

    for (size_t i = 0; i < COUNT(outputs); i++) {
        size_t partitions = (size_t)recovery->topics->partitions[outputs[i]];
        restore.ends[outputs[i]] = calloc(partitions, sizeof(int64_t));
        CHECK(restore.ends[outputs[i]]);
        for (size_t p = 0; p < partitions; p++)
            restore.ends[outputs[i]][p] = -1;
    }
    bool ok = restore_run(&restore, err);
    if (ok)
        LOG_INFO("recovered", "state=%llu results=%llu usage=%llu ms=%lld",
                 (unsigned long long)restore.records[TOPIC_STATE],
                 (unsigned long long)restore.records[TOPIC_RESULTS],
                 (unsigned long long)restore.records[TOPIC_USAGE],
                 (long long)(clock_mono_us() - start_us) / 1000);
    for (size_t i = 0; i < COUNT(outputs); i++)
        free(restore.ends[outputs[i]]);
    return ok;
}
