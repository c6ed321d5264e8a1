/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/term.h"

#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/stop.h"
#include "scheduler/feed.h"
#include "scheduler/outbox.h"
#include "scheduler/reader.h"
#include "scheduler/recovery.h"

enum {
    CONFIRM_MS = 2000,
    INIT_MS = 5000,  /* of one call; repeated while the lock is ours */
    ASK_MS = 1000,   /* an end of worker-events; asked again at the next tick */
    PAUSE_MS = 100,  /* between two tries */
    TOPICS_MS = 5000 /* the list of topics */
};
#define COPY_US   1000000 /* group offsets for lag tools, and our own lag gauge */
#define GAUGES_US 500000
#define TOPICS_US 30000000 /* have partitions been added? */

/* ACTION_READ_EVENTS of a slot. */
enum events_read { READ_NONE, READ_WANTED, READ_MARKED };

struct term {
    const struct term_options *options;
    struct reader *reader;
    struct outbox *outbox;
    struct codec *codec;
    struct feed feed;
    const struct topic_map *topics;
    uint32_t slots;
    enum events_read *reads;        /* [slot] */
    int64_t *admitted[TOPIC_COUNT]; /* requests only: [partition], next not admitted */
    bool admitted_moved;
    uint64_t lag; /* messages behind it, all partitions */
    struct capacity capacity;
    size_t applied; /* actions whose pause or resume is done */
    int64_t commit_us;
    int64_t copy_due_us, gauges_due_us, topics_due_us;
    bool healthy;
};

static const enum topic requests[CLASS_COUNT] = {
    [CLASS_INTERACTIVE] = TOPIC_REQUESTS_INTERACTIVE, [CLASS_BULK] = TOPIC_REQUESTS_BULK};

/* Serves the group. False when the term has to end: ABORT, with err. */
static bool term_goes_on(void *context, struct err *err)
{
    struct term *term = context;

    if (!leadership_poll(term->options->leadership, 0, err))
        return false;
    if (!leadership_held(term->options->leadership))
        return err_set(err, ERR_ABORT, "leadership is lost");
    if (stop_requested())
        return err_set(err, ERR_ABORT, "stopped");
    return true;
}

/* ---- beginning ---- */

static bool term_init_outbox(struct term *term, struct err *err)
{
    const struct term_options *options = term->options;
    struct outbox_options outbox = {
        .brokers = options->settings->common.brokers,
        .client_id = options->client_id,
        .settings = options->kafka_settings,
        .transactional_id = options->transactional_id,
        .topics = term->topics,
        .codec = term->codec,
    };

    if (!outbox_open(&term->outbox, &outbox, err))
        return false;
    while (term_goes_on(term, err)) {
        /* Both may take several tries while brokers come and go. */
        if (leadership_confirm(options->leadership, CONFIRM_MS, err) &&
            outbox_init(term->outbox, INIT_MS, err))
            return true;
        if (err->kind != ERR_RETRY)
            return false;
        log_err(LOG_LEVEL_INFO, "init_waits", err);
        clock_sleep_ms(PAUSE_MS);
    }
    return false;
}

static void term_new_core(struct term *term)
{
    uint32_t partitions[CLASS_COUNT];

    for (int i = 0; i < CLASS_COUNT; i++) {
        size_t count = (size_t)term->topics->partitions[requests[i]];
        partitions[i] = (uint32_t)count;
        term->admitted[requests[i]] = calloc(count, sizeof(int64_t));
        CHECK(term->admitted[requests[i]]);
    }
    term->slots = (uint32_t)term->topics->partitions[TOPIC_WORKER_EVENTS];
    term->reads = calloc(term->slots, sizeof *term->reads);
    CHECK(term->reads);
    struct scheduler_config config =
        settings_core(term->options->settings, term->slots, partitions);
    term->feed.scheduler = scheduler_new(&config);
    CHECK(term->feed.scheduler);
    term->feed.codec = term->codec;
    steady_init(&term->feed.clock, clock_wall_ms(), clock_mono_us());
}

/* They were all there when the process started: a broker that has restarted may not know yet. */
static bool term_load_topics(struct term *term, struct err *err)
{
    const char *prefix = term->options->settings->common.topic_prefix;

    if (reader_topics(term->reader, prefix, TOPICS_MS, &term->topics, err))
        return true;
    if (err->kind == ERR_REJECT)
        err->kind = ERR_RETRY;
    return false;
}

static bool term_begin(struct term *term, struct err *err)
{
    const struct term_options *options = term->options;
    struct reader_options reader = {
        .brokers = options->settings->common.brokers,
        .client_id = options->client_id,
        .settings = options->kafka_settings,
        .group_id = options->lag_group_id,
    };

    if (!codec_open(&term->codec, err) || !reader_open(&term->reader, &reader, err) ||
        !term_load_topics(term, err) || !term_init_outbox(term, err))
        return false;
    term_new_core(term);
    struct recovery recovery = {.feed = &term->feed,
                                .reader = term->reader,
                                .topics = term->topics,
                                .goes_on = term_goes_on,
                                .context = term};
    if (!recovery_run(&recovery, err))
        return false;
    /* Until the first tick says better, nothing behind the beginning is admitted. */
    for (int i = 0; i < CLASS_COUNT; i++) {
        for (int32_t p = 0; p < term->topics->partitions[requests[i]]; p++)
            term->admitted[requests[i]][p] = reader_position(term->reader, requests[i], p);
    }
    struct capacity_config capacity =
        settings_capacity(options->settings, term->slots, options->lstm);
    capacity_init(&term->capacity, &capacity, feed_now_ms(&term->feed));
    return true;
}

static void term_free(struct term *term)
{
    outbox_close(term->outbox);
    reader_close(term->reader);
    scheduler_free(term->feed.scheduler);
    actions_free(&term->feed.actions);
    codec_close(term->codec);
    free(term->reads);
    for (int topic = 0; topic < TOPIC_COUNT; topic++)
        free(term->admitted[topic]);
}

/* ---- actions ---- */

/* Pauses at once: until the tick, a thousand large requests could come in. */
static bool term_apply_pauses(struct term *term, struct err *err)
{
    for (; term->applied < term->feed.actions.count; term->applied++) {
        const struct action *action = &term->feed.actions.items[term->applied];
        enum topic topic = action->position.topic;
        int32_t partition = action->position.partition;
        if ((action->type == ACTION_PAUSE && !reader_pause(term->reader, topic, partition, err)) ||
            (action->type == ACTION_RESUME && !reader_resume(term->reader, topic, partition, err)))
            return false;
    }
    return true;
}

static void term_note_admitted(struct term *term, const struct tick *tick)
{
    for (size_t i = 0; i < tick->next_input_count; i++) {
        const struct partition_offset *next = &tick->next_input[i];
        for (int k = 0; k < CLASS_COUNT; k++) {
            enum topic topic = requests[k];
            if (str_equal(next->topic, str_from(topic_specs[topic].name)) &&
                next->partition < term->topics->partitions[topic]) {
                term->admitted[topic][next->partition] = next->offset;
                term->admitted_moved = true;
            }
        }
    }
}

/* What follows from a committed tick, besides its messages. */
static void term_act(struct term *term)
{
    for (size_t i = 0; i < term->feed.actions.count; i++) {
        const struct action *action = &term->feed.actions.items[i];
        if (action->type == ACTION_READ_EVENTS) {
            CHECK(action->slot < term->slots);
            term->reads[action->slot] = READ_WANTED;
        } else if (action->type == ACTION_TRIM) {
            reader_trim(term->reader, action->position.topic, action->position.partition,
                        action->position.offset);
        } else if (action->type == ACTION_SEND && action->record->type == RECORD_TICK) {
            term_note_admitted(term, &action->record->u.tick);
        }
    }
}

/* Answers ACTION_READ_EVENTS for slots whose end, as it was when asked, is reached. */
static void term_answer_reads(struct term *term)
{
    struct err err;

    for (uint32_t slot = 0; slot < term->slots; slot++) {
        int32_t partition = (int32_t)slot;
        if (term->reads[slot] == READ_WANTED) {
            if (reader_mark_end(term->reader, TOPIC_WORKER_EVENTS, partition, ASK_MS, &err)) {
                term->reads[slot] = READ_MARKED;
            } else {
                log_err(LOG_LEVEL_WARN, "events_end_unknown", &err);
                return; /* the broker is away: the next tick asks again */
            }
        }
        if (term->reads[slot] == READ_MARKED &&
            reader_end_reached(term->reader, TOPIC_WORKER_EVENTS, partition)) {
            term->reads[slot] = READ_NONE;
            feed_step(&term->feed, &(struct event){.type = EVENT_EVENTS_END, .slot = slot});
        }
    }
}

/* ---- ticking ---- */

static void term_tell_ends(struct term *term)
{
    static const enum topic outputs[] = {TOPIC_RESULTS, TOPIC_USAGE};

    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++) {
        for (int32_t p = 0; p < term->topics->partitions[outputs[i]]; p++) {
            int64_t end = outbox_written_end(term->outbox, outputs[i], p);
            if (end >= 0)
                feed_step(&term->feed, &(struct event){.type = EVENT_OUTPUT_END,
                                                       .position = {outputs[i], p, end}});
        }
    }
}

static bool term_tick(struct term *term, struct err *err)
{
    const struct term_options *options = term->options;
    int64_t start_us = clock_mono_us();
    size_t sent;

    feed_step(&term->feed, &(struct event){.type = EVENT_TICK});
    int64_t decided_us = clock_mono_us();
    if (!term_apply_pauses(term, err) ||
        !outbox_commit(term->outbox, &term->feed.actions, (int)options->commit_timeout_ms, &sent,
                       err))
        return false;
    int64_t end_us = clock_mono_us();
    exporter_tick(options->exporter, decided_us - start_us);
    term_act(term);
    term->feed.actions.count = 0;
    term->applied = 0;
    feed_step(&term->feed, &(struct event){.type = EVENT_COMMITTED});
    term_tell_ends(term);
    if (sent > 0) {
        term->commit_us = end_us - decided_us;
        exporter_commit(options->exporter, term->commit_us, sent);
        if (term->commit_us < options->settings->commit_timeout_us)
            term->healthy = true;
    }
    return true;
}

/* Copies the admitted offsets into the group of the lag tools, and shows the lag ourselves. */
static void term_copy_offsets(struct term *term)
{
    term->lag = 0;
    for (int i = 0; i < CLASS_COUNT; i++) {
        enum topic topic = requests[i];
        size_t partitions = (size_t)term->topics->partitions[topic];
        struct reader_copy *copies = calloc(partitions, sizeof *copies);
        int64_t lag = 0;

        CHECK(copies);
        for (int32_t p = 0; p < term->topics->partitions[topic]; p++) {
            int64_t next = term->admitted[topic][p];
            copies[p] = (struct reader_copy){topic, p, next};
            int64_t end = reader_end(term->reader, topic, p);
            lag += end > next ? end - next : 0;
        }
        if (term->admitted_moved)
            reader_copy_offsets(term->reader, copies, partitions);
        exporter_lag(term->options->exporter, (enum service_class)i, lag);
        term->lag += (uint64_t)lag;
        free(copies);
    }
    term->admitted_moved = false;
}

/* New partitions, of a larger fleet or a busier topic, begin with a new term. */
static bool term_check_topics(struct term *term, struct err *err)
{
    struct topic_map now;
    struct err unknown;

    topic_map_name(&now, term->options->settings->common.topic_prefix);
    if (!reader_topics_now(term->reader, &now, ASK_MS, &unknown)) {
        log_err(LOG_LEVEL_WARN, "topics_unknown", &unknown);
        return true;
    }
    if (memcmp(now.partitions, term->topics->partitions, sizeof now.partitions) == 0)
        return true;
    return err_set(err, ERR_ABORT, "the partitions of a topic have changed");
}

static void term_plan(struct term *term)
{
    struct capacity *capacity = &term->capacity;
    uint32_t wanted = capacity->decision.wanted;
    bool decided = capacity->decided;
    struct scheduler_gauges gauges;

    scheduler_gauges(term->feed.scheduler, &gauges);
    struct capacity_counts counts = capacity_count(&gauges, term->lag);
    if (!capacity_update(capacity, &counts, feed_now_ms(&term->feed)))
        return;
    exporter_plan(term->options->exporter, capacity);
    if (!decided || capacity->decision.wanted != wanted)
        LOG_INFO("planner", "role=both wanted=%u before=%u workers=%u reason=%s",
                 capacity->decision.wanted, decided ? wanted : counts.workers, counts.workers,
                 capacity->decision.reason);
}

static bool term_chores(struct term *term, struct err *err)
{
    int64_t now_us = clock_mono_us();

    if (now_us >= term->copy_due_us) {
        term->copy_due_us = now_us + COPY_US;
        term_copy_offsets(term);
    }
    if (now_us >= term->gauges_due_us) {
        term->gauges_due_us = now_us + GAUGES_US;
        exporter_core(term->options->exporter, term->feed.scheduler, term->slots);
        exporter_messages(term->options->exporter, term->feed.messages_total,
                          term->feed.unreadable_total);
        term_plan(term);
    }
    if (now_us >= term->topics_due_us) {
        bool first = term->topics_due_us == 0;
        term->topics_due_us = now_us + TOPICS_US;
        return first || term_check_topics(term, err);
    }
    return true;
}

static int64_t term_interval_us(const struct term *term)
{
    const struct settings *settings = term->options->settings;

    if (term->commit_us < settings->tick_min_us)
        return settings->tick_min_us;
    return term->commit_us < settings->tick_max_us ? term->commit_us : settings->tick_max_us;
}

static bool term_lead(struct term *term, struct err *err)
{
    const struct reader_sink sink = {feed_live, &term->feed};
    int64_t due_us = clock_mono_us();

    while (term_goes_on(term, err)) {
        int64_t left_ms = (due_us - clock_mono_us() + 999) / 1000;
        /* At least one look between two ticks, however slow the commits are. */
        if (!reader_poll(term->reader, left_ms > 0 ? (int)left_ms : 0, &sink, err) ||
            !term_apply_pauses(term, err))
            return false;
        if (clock_mono_us() < due_us)
            continue;
        due_us = clock_mono_us() + term_interval_us(term);
        term_answer_reads(term);
        if (!term_tick(term, err) || !term_chores(term, err))
            return false;
    }
    return false;
}

enum term_end term_run(const struct term_options *options, bool *healthy, struct err *err)
{
    struct term term = {.options = options};

    exporter_role(options->exporter, EXPORTER_RECOVERING);
    if (term_begin(&term, err)) {
        exporter_role(options->exporter, EXPORTER_LEADING);
        LOG_INFO("leading", "slots=%u", term.slots);
        term_lead(&term, err);
    }
    bool fenced = term.outbox && outbox_fenced(term.outbox);
    *healthy = term.healthy;
    term_free(&term);
    exporter_no_core(options->exporter);
    if (stop_requested())
        return TERM_STOPPED;
    if (fenced)
        return TERM_FENCED;
    if (!leadership_held(options->leadership))
        return TERM_LOST;
    return err->kind == ERR_FATAL || err->kind == ERR_REJECT ? TERM_FATAL : TERM_FAILED;
}
