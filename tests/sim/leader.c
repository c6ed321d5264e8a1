/* SPDX-License-Identifier: Apache-2.0
 *
 * The leader's shell: feeds the core from the logs, commits its actions, and dies, loses its
 * leadership or does not learn how a commit ended. A successor begins from the logs alone.
 */
#include <string.h>

#include "common/check.h"
#include "common/idmap.h"
#include "schemas/codec.h"
#include "tests/sim/sim.h"

static enum topic request_topic_of(int kind)
{
    return kind == CLASS_BULK ? TOPIC_REQUESTS_BULK : TOPIC_REQUESTS_INTERACTIVE;
}

static void feed(struct sim *sim, const struct event *event)
{
    scheduler_step(sim->leader.core, event, sim->now_ms, &sim->leader.actions);
}

static void feed_message(struct sim *sim, enum event_type type, enum topic topic, int32_t partition,
                         int64_t offset)
{
    const struct message *message = &broker_log(&sim->broker, topic, partition)->items[offset];
    struct event event = {
        .type = type,
        .position = {topic, partition, offset},
        .timestamp_ms = message->timestamp_ms,
        .record = message->record,
    };

    if (!message->record) {
        event.type = EVENT_BAD_REQUEST;
        event.raw = event.key = event.reason = str_from("junk");
    }
    if (message->record && message->record->type == RECORD_HEARTBEAT &&
        message->record->u.heartbeat.draining)
        sim->leader.draining[partition] = message->record->u.heartbeat.incarnation;
    feed(sim, &event);
}

/* The message's place in a compacted topic, as state_key() has it. */
static void key_of(const struct message *message, uint8_t key[16])
{
    memset(key, 0, 16);
    if (message->record && message->record->type == RECORD_TICK)
        key[0] = 0xff;
    else if (message->record && message->record->type == RECORD_WORKER_MARK)
        key[0] = (uint8_t)(0xf0 + message->record->u.worker_mark.hello.slot);
    else
        memcpy(key, message->id.bytes, 16);
}

/* Feeds the state topic: all of it, or what compaction leaves up to some point. */
static void restore_state(struct sim *sim)
{
    struct message_log *log = broker_log(&sim->broker, TOPIC_STATE, 0);
    struct idmap *newest = idmap_open(0);
    size_t compacted = sim_chance(sim, 1, 2) ? 0 : sim_below(sim, (uint32_t)log->count + 1);
    uint8_t key[16];

    for (size_t i = 0; i < compacted; i++) {
        key_of(&log->items[i], key);
        idmap_put(newest, key, NULL)->number = i;
    }
    for (size_t i = 0; i < log->count; i++) {
        const struct message *message = &log->items[i];
        struct event event = {.type = EVENT_RESTORE_STATE, .record = message->record};
        key_of(message, key);
        if (i < compacted && idmap_get(newest, key)->number != i)
            continue;
        if (!message->record) {
            event.type = EVENT_RESTORE_DELETED;
            event.id = message->id;
        }
        feed(sim, &event);
    }
    idmap_close(newest);
}

/* The position that the last Tick names for this output. */
static int64_t output_start(struct sim *sim, enum topic topic, int32_t partition)
{
    struct message_log *log = broker_log(&sim->broker, TOPIC_STATE, 0);
    const struct tick *tick = NULL;

    for (size_t i = log->count; i > 0 && !tick; i--)
        if (log->items[i - 1].record && log->items[i - 1].record->type == RECORD_TICK)
            tick = &log->items[i - 1].record->u.tick;
    for (size_t i = 0; tick && i < tick->outputs_count; i++)
        if (tick->outputs[i].partition == partition &&
            str_equal(tick->outputs[i].topic, str_from(topic_specs[topic].name)))
            return tick->outputs[i].offset;
    return 0;
}

static const enum topic outputs[] = {TOPIC_RESULTS, TOPIC_USAGE};

static void restore_outputs(struct sim *sim)
{
    for (int i = 0; i < 2 * SIM_PARTITIONS; i++) {
        enum topic topic = outputs[i % 2];
        struct message_log *log = broker_log(&sim->broker, topic, i / 2);
        for (size_t at = (size_t)output_start(sim, topic, i / 2); at < log->count; at++) {
            struct event event = {.type = EVENT_RESTORE_OUTPUT, .record = log->items[at].record};
            feed(sim, &event);
        }
    }
}

static void tell_output_ends(struct sim *sim)
{
    for (int i = 0; i < 2 * SIM_PARTITIONS; i++) {
        struct message_log *log = broker_log(&sim->broker, outputs[i % 2], i / 2);
        struct event event = {
            .type = EVENT_OUTPUT_END,
            .position = {outputs[i % 2], i / 2, (int64_t)log->count},
        };
        if (sim_chance(sim, 1, 2))
            feed(sim, &event);
    }
}

static void check_repairs(const struct sim *sim)
{
    struct scheduler_gauges gauges;

    scheduler_gauges(sim->leader.core, &gauges);
    if (!sim->tears && (gauges.torn.requests || gauges.torn.marks || gauges.torn.usages))
        sim_fail(sim, "a leader repairs what is not torn");
}

static int64_t start_offset(struct sim *sim, enum topic topic, int32_t partition)
{
    int64_t offset = scheduler_start_offset(sim->leader.core, topic, partition);
    size_t start = broker_log(&sim->broker, topic, partition)->start;

    if (offset < 0 ? start > 0 : offset < (int64_t)start)
        sim_fail(sim, "reading topic %d partition %d would start at %lld, but it is trimmed to %zu",
                 topic, partition, (long long)offset, start);
    return offset < 0 ? 0 : offset;
}

static void read_events(struct sim *sim, uint32_t slot, int64_t end)
{
    struct leader *leader = &sim->leader;

    while (leader->events_offset[slot] < end)
        feed_message(sim, EVENT_WORKER, TOPIC_WORKER_EVENTS, (int32_t)slot,
                     leader->events_offset[slot]++);
}

static void start(struct sim *sim)
{
    struct leader *leader = &sim->leader;
    struct event restored = {.type = EVENT_RESTORED};

    leader->core = scheduler_new(&sim->config);
    CHECK(leader->core);
    leader->actions.count = 0;
    restore_state(sim);
    restore_outputs(sim);
    feed(sim, &restored);
    check_repairs(sim);
    if (sim_chance(sim, 1, 2))
        tell_output_ends(sim);
    for (int kind = 0; kind < CLASS_COUNT; kind++)
        for (uint32_t i = 0; i < sim->config.request_partitions[kind]; i++) {
            leader->requests_offset[kind][i] =
                start_offset(sim, request_topic_of(kind), (int32_t)i);
            leader->paused[kind][i] = false;
        }
    leader->control_offset = 0;
    for (uint32_t i = 0; i < SIM_SLOTS; i++) {
        struct message_log *log = broker_log(&sim->broker, TOPIC_WORKER_EVENTS, (int32_t)i);
        leader->events_offset[i] = start_offset(sim, TOPIC_WORKER_EVENTS, (int32_t)i);
        leader->events_end[i] = -1;
        leader->draining[i] = (struct request_id){{0}};
        leader->events_late_ms[i] = 0;
        read_events(sim, i, (int64_t)log->count); /* before the first tick */
    }
    leader->tick_ms = sim->now_ms;
    sim_log(sim, "a leader begins");
}

static void stop(struct sim *sim, const char *why)
{
    sim_log(sim, "the leader ends: %s", why);
    scheduler_free(sim->leader.core);
    sim->leader.core = NULL;
    sim->leader.start_ms = sim->now_ms + (sim_chance(sim, 1, 2) ? 0 : sim_between(sim, 0, 5000));
    sim->takeovers++;
}

static void poll(struct sim *sim)
{
    struct leader *leader = &sim->leader;

    for (int kind = 0; kind < CLASS_COUNT; kind++)
        for (uint32_t i = 0; i < sim->config.request_partitions[kind]; i++) {
            int64_t end =
                (int64_t)broker_log(&sim->broker, request_topic_of(kind), (int32_t)i)->count;
            uint32_t budget = leader->paused[kind][i] ? 0 : sim_below(sim, 4);
            for (; budget > 0 && leader->requests_offset[kind][i] < end; budget--)
                feed_message(sim, EVENT_REQUEST, request_topic_of(kind), (int32_t)i,
                             leader->requests_offset[kind][i]++);
        }
    for (uint32_t i = 0; i < SIM_SLOTS; i++) {
        int64_t end = (int64_t)broker_log(&sim->broker, TOPIC_WORKER_EVENTS, (int32_t)i)->count;
        int64_t limit = leader->events_offset[i] + sim_below(sim, 8);
        if (sim_trouble(sim, 3000))
            leader->events_late_ms[i] = sim->now_ms + sim_between(sim, 50, 8000);
        if (sim->now_ms < leader->events_late_ms[i])
            continue;
        read_events(sim, i, end < limit ? end : limit);
        if (leader->events_end[i] >= 0 && leader->events_offset[i] >= leader->events_end[i]) {
            struct event event = {.type = EVENT_EVENTS_END, .slot = i};
            leader->events_end[i] = -1;
            feed(sim, &event);
        }
    }
    if (leader->control_offset < (int64_t)broker_log(&sim->broker, TOPIC_CONTROL, 0)->count)
        feed_message(sim, EVENT_CONTROL, TOPIC_CONTROL, 0, leader->control_offset++);
}

/* What is no message, after the commit. */
static void act(struct sim *sim, const struct action *action)
{
    struct leader *leader = &sim->leader;
    const struct position *position = &action->position;
    int kind = position->topic == TOPIC_REQUESTS_BULK ? CLASS_BULK : CLASS_INTERACTIVE;

    if (action->type == ACTION_PAUSE || action->type == ACTION_RESUME)
        leader->paused[kind][position->partition] = action->type == ACTION_PAUSE;
    else if (action->type == ACTION_READ_EVENTS)
        leader->events_end[action->slot] =
            (int64_t)broker_log(&sim->broker, TOPIC_WORKER_EVENTS, (int32_t)action->slot)->count;
    else if (action->type == ACTION_TRIM)
        broker_log(&sim->broker, position->topic, position->partition)->start =
            (size_t)position->offset;
}

/* Whoever has told this leader that it drains gets nothing new. */
static void check_draining(struct sim *sim)
{
    struct leader *leader = &sim->leader;

    for (size_t i = 0; i < leader->actions.count; i++) {
        const struct action *action = &leader->actions.items[i];
        if (action->type == ACTION_SEND && action->record->type == RECORD_ASSIGNMENT &&
            request_id_equal(&action->record->u.assignment.incarnation,
                             &leader->draining[action->partition]))
            sim_fail(sim, "slot %d drains and gets request %u", action->partition,
                     sim_number(sim, &action->record->u.assignment.request.request_id));
    }
}

static void tick(struct sim *sim)
{
    struct leader *leader = &sim->leader;
    struct event event = {.type = EVENT_TICK};

    feed(sim, &event);
    check_draining(sim);
    leader->tick_ms = sim->now_ms + sim_between(sim, 20, 250);
    if (leader->actions.count == 0)
        return;
    if (sim_trouble(sim, 150)) {
        stop(sim, "its transaction is aborted");
        return;
    }
    if (sim_trouble(sim, 150)) {
        broker_commit(&sim->broker, &leader->actions, sim->now_ms, NULL);
        stop(sim, "its commit's end is unknown");
        return;
    }
    /* What puts a torn transaction right is often torn again. */
    if (sim->tears && sim_trouble(sim, leader->torn ? 4 : 80)) {
        struct tear tear = {sim_random(sim), sim_below(sim, (uint32_t)leader->actions.count + 1)};
        broker_commit(&sim->broker, &leader->actions, sim->now_ms, &tear);
        leader->torn = true;
        stop(sim, "its commit is torn");
        return;
    }
    broker_commit(&sim->broker, &leader->actions, sim->now_ms, NULL);
    leader->torn = false;
    for (size_t i = 0; i < leader->actions.count; i++)
        act(sim, &leader->actions.items[i]);
    event.type = EVENT_COMMITTED;
    feed(sim, &event);
    leader->actions.count = 0;
    tell_output_ends(sim);
}

void leader_step(struct sim *sim)
{
    struct leader *leader = &sim->leader;

    if (!leader->core) {
        if (sim->now_ms >= leader->start_ms)
            start(sim);
        return;
    }
    if (sim_trouble(sim, 2000)) {
        stop(sim, "killed");
        return;
    }
    poll(sim);
    if (sim->now_ms >= leader->tick_ms)
        tick(sim);
}

void leader_close(struct sim *sim)
{
    scheduler_free(sim->leader.core);
    actions_free(&sim->leader.actions);
}
