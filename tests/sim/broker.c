/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/broker.h"

#include <stdlib.h>
#include <string.h>

#include "common/check.h"

/* Where records point to: strings and arrays of plain items. */
struct field {
    enum record_type type;
    size_t offset;
    size_t item_size; /* 0: a struct str; else an array {pointer, count} of items this large */
};

#define STR(type, part, member)                                                                    \
    {                                                                                              \
        type, offsetof(struct record, u.part.member), 0                                            \
    }
#define IDS(type, part, member)                                                                    \
    {                                                                                              \
        type, offsetof(struct record, u.part.member), sizeof(int32_t)                              \
    }
#define REQUEST_FIELDS(type, part)                                                                 \
    STR(type, part, tenant), STR(type, part, batch_id), STR(type, part, custom_id),                \
        STR(type, part, model), STR(type, part, body)
#define HELLO_FIELDS(type, part)                                                                   \
    STR(type, part, model), STR(type, part, revision), STR(type, part, numerics_id),               \
        STR(type, part, hardware), STR(type, part, precision)

static const struct field fields[] = {
    REQUEST_FIELDS(RECORD_REQUEST, request),
    REQUEST_FIELDS(RECORD_ASSIGNMENT, assignment.request),
    IDS(RECORD_ASSIGNMENT, assignment, prefix),
    HELLO_FIELDS(RECORD_HELLO, hello),
    HELLO_FIELDS(RECORD_WORKER_MARK, worker_mark.hello),
    {RECORD_HEARTBEAT, offsetof(struct record, u.heartbeat.running), sizeof(struct running)},
    IDS(RECORD_PROGRESS, progress, ids),
    IDS(RECORD_PROGRESS, progress, profile),
    STR(RECORD_DONE, done, text),
    IDS(RECORD_DONE, done, ids),
    IDS(RECORD_DONE, done, profile),
    STR(RECORD_FAILED, failed, failure.code),
    STR(RECORD_FAILED, failed, failure.message),
    STR(RECORD_FAILED, failed, failure.param),
    STR(RECORD_YIELD, yield, reason),
    STR(RECORD_RESULT, result, tenant),
    STR(RECORD_RESULT, result, batch_id),
    STR(RECORD_RESULT, result, custom_id),
    STR(RECORD_RESULT, result, model),
    STR(RECORD_RESULT, result, revision),
    STR(RECORD_RESULT, result, text),
    IDS(RECORD_RESULT, result, ids),
    STR(RECORD_RESULT, result, failure.code),
    STR(RECORD_RESULT, result, failure.message),
    STR(RECORD_RESULT, result, failure.param),
    STR(RECORD_RESULT, result, hardware),
    STR(RECORD_RESULT, result, precision),
    STR(RECORD_USAGE, usage, tenant),
    STR(RECORD_USAGE, usage, model),
    STR(RECORD_USAGE, usage, revision),
    STR(RECORD_USAGE, usage, batch_id),
    STR(RECORD_USAGE, usage, custom_id),
    STR(RECORD_USAGE, usage, precision),
    STR(RECORD_USAGE, usage, hardware),
    STR(RECORD_WORKER_TIME, worker_time, hardware),
    STR(RECORD_IN_FLIGHT, in_flight, topic),
    IDS(RECORD_IN_FLIGHT, in_flight, prefix),
    {RECORD_TICK, offsetof(struct record, u.tick.next_input), sizeof(struct partition_offset)},
    {RECORD_TICK, offsetof(struct record, u.tick.outputs), sizeof(struct partition_offset)},
    STR(RECORD_CANCEL_BATCH, cancel_batch, batch_id),
    STR(RECORD_CANCEL_BATCH, cancel_batch, tenant),
};

/* struct str, struct i32_array and the {pointer, count} pairs of records.h all look like this. */
struct span {
    const void *data;
    size_t count;
};

void broker_close(struct broker *broker)
{
    for (int topic = 0; topic < TOPIC_COUNT; topic++)
        for (int i = 0; i < SIM_PARTITIONS; i++)
            free(broker->logs[topic][i].items);
    arena_free(&broker->arena);
}

struct message_log *broker_log(struct broker *broker, enum topic topic, int32_t partition)
{
    CHECK(partition >= 0);
    CHECK(partition < SIM_PARTITIONS);
    return &broker->logs[topic][partition];
}

const struct record *broker_copy(struct broker *broker, const struct record *record)
{
    struct record *copy = arena_alloc(&broker->arena, sizeof *copy);

    *copy = *record;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const struct field *field = &fields[i];
        struct span span;
        char *data;
        if (field->type != record->type)
            continue;
        memcpy(&span, (char *)copy + field->offset, sizeof span);
        data = arena_strndup(&broker->arena, span.data,
                             span.count * (field->item_size ? field->item_size : 1));
        span.data = data;
        memcpy((char *)copy + field->offset, &span, sizeof span);
    }
    return copy;
}

void broker_append(struct broker *broker, enum topic topic, int32_t partition,
                   const struct message *message)
{
    struct message_log *log = broker_log(broker, topic, partition);

    if (log->count == log->capacity) {
        log->capacity = log->capacity ? log->capacity * 2 : 64;
        log->items = realloc(log->items, log->capacity * sizeof *log->items);
        CHECK(log->items);
    }
    log->items[log->count] = *message;
    if (message->record)
        log->items[log->count].record = broker_copy(broker, message->record);
    log->count++;
}

/* By key, where Kafka would choose so; the topics of one partition have one here, too. */
static int32_t partition_of(enum topic topic, const struct action *action)
{
    if (action->partition >= 0)
        return action->partition;
    return topic == TOPIC_RESULTS || topic == TOPIC_USAGE ? action->id.bytes[15] % 2 : 0;
}

static bool survives(const struct tear *tear, enum topic topic, int32_t partition, size_t index)
{
    uint64_t x = tear->coin + (uint64_t)topic * SIM_PARTITIONS + (uint64_t)partition;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u; /* the finaliser of splitmix64 */
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x = (x ^ (x >> 31)) % 3;
    return x == 0 || (x == 1 && index < tear->cut);
}

void broker_commit(struct broker *broker, const struct actions *actions, int64_t now_ms,
                   const struct tear *tear)
{
    for (size_t i = 0; i < actions->count; i++) {
        const struct action *action = &actions->items[i];
        struct message message = {action->record, action->id, now_ms};
        enum topic topic = action->type == ACTION_TOMBSTONE ? TOPIC_STATE : action->topic;
        if (action->type != ACTION_SEND && action->type != ACTION_DEAD_LETTER &&
            action->type != ACTION_TOMBSTONE)
            continue;
        int32_t partition = partition_of(topic, action);
        if (!tear || survives(tear, topic, partition, i))
            broker_append(broker, topic, partition, &message);
    }
}
