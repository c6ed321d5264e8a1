/* SPDX-License-Identifier: Apache-2.0
 *
 * Of a torn transaction some partitions are committed and others are not; of one partition it may
 * be the beginning alone (KAFKA-17754: a delayed EndTxn ends what has been sent by then). Which
 * outcomes state, results and usage agree on can only be seen when a term begins, and only where
 * results and usage are read: behind the ends that the last Tick names. So these ends stay behind
 * on purpose, and marks say which tick wrote them.
 *
 * A tick is certain once two more ticks have committed and CERTAIN_MS to twice as long have passed.
 * Kafka lets a transaction begin only when the one before has ended in all its partitions, so the
 * last tick alone should ever be torn; the rest is distrust. A commit that takes 2 s ends the term
 * (R4), and with its producer id nothing can happen any more.
 */
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "scheduler/core.h"
#include "schemas/codec.h"

enum {
    CERTAIN_MS = 2000,
    TRIM_MS = 30000,
};

/* What is found of an outcome in results and usage. */
struct found {
    const struct done_mark *mark; /* NULL: state has none */
    bool usage_seen, result_seen;
    struct usage usage; /* as seen, or made from the Result; its strings are in the arena */
};

/* ---- while leading ---- */

int64_t torn_uncertain(const struct scheduler *scheduler)
{
    return scheduler->tick_number + 1 - scheduler->certain_from + 1;
}

static void keep_for(struct scheduler *scheduler, const struct job_list *jobs)
{
    for (const struct job *job = jobs->head; job; job = job->links[LINK_STATE].next) {
        struct partition *partition = &scheduler->partitions[job->service_class][job->partition];
        if (job->offset < partition->trim_next)
            partition->trim_next = job->offset;
    }
}

/* Moves the bounds on: trim becomes what was needed when the last snapshot was taken, trim_next
 * what is needed now. What ends in this tick may have to run again. */
static void move_trims(struct scheduler *scheduler)
{
    for (int kind = 0; kind < CLASS_COUNT; kind++)
        for (uint32_t i = 0; i < scheduler->config.request_partitions[kind]; i++) {
            struct partition *partition = &scheduler->partitions[kind][i];
            partition->trim = partition->trim_next;
            partition->trim_next = partition_next_offset(partition);
        }
    keep_for(scheduler, &scheduler->returned);
    keep_for(scheduler, &scheduler->finished);
    for (uint32_t i = 0; i < scheduler->config.slots; i++)
        for (struct run *run = scheduler->slots[i].runs; run; run = run->next)
            keep_for(scheduler, &run->jobs);
}

/* Only beside the Tick record that says so: a successor must never be sent to an offset that is
 * gone. */
static void trim(struct scheduler *scheduler)
{
    if (!scheduler->config.trim_requests || scheduler->now_ms - scheduler->trim_ms < TRIM_MS)
        return;
    for (int kind = 0; kind < CLASS_COUNT; kind++)
        for (uint32_t i = 0; i < scheduler->config.request_partitions[kind]; i++) {
            struct partition *partition = &scheduler->partitions[kind][i];
            if (partition->trim <= partition->trimmed)
                continue;
            partition->trimmed = partition->trim;
            scheduler->trim_ms = scheduler->now_ms;
            output_action(scheduler, ACTION_TRIM)->position =
                (struct position){request_topic(kind), (int32_t)i, partition->trim};
        }
}

void torn_begin_tick(struct scheduler *scheduler)
{
    if (scheduler->now_ms - scheduler->certain_ms < CERTAIN_MS)
        return;
    scheduler->certain_ms = scheduler->now_ms;
    scheduler->certain_from = scheduler->certain_next;
    scheduler->certain_next = scheduler->tick_number + 1;
    for (size_t i = 0; i < scheduler->outputs_count; i++) {
        struct output_end *end = &scheduler->outputs[i];
        end->certain = end->certain_next;
        end->certain_next = end->offset;
    }
    move_trims(scheduler);
    trim(scheduler);
}

/* ---- while restoring ---- */

/* Forgets the marks of earlier ticks. They stand in the order in which they were written. */
static void forget_before(struct uncertain_marks *marks, int64_t tick)
{
    while (marks->first < marks->count && marks->items[marks->first].tick < tick)
        marks->first++;
    if (marks->first <= marks->count / 2)
        return;
    marks->count -= marks->first;
    memmove(marks->items, marks->items + marks->first, marks->count * sizeof *marks->items);
    marks->first = 0;
}

void torn_restore_mark(struct scheduler *scheduler, const struct done_mark *mark)
{
    struct uncertain_marks *marks = &scheduler->uncertain;

    if (mark->tick == 0)
        return; /* of an earlier version, which knew nothing of this */
    forget_before(marks, mark->tick + 1 - mark->uncertain);
    if (marks->count == marks->capacity) {
        marks->capacity = marks->capacity ? marks->capacity * 2 : 64;
        marks->items = realloc(marks->items, marks->capacity * sizeof *marks->items);
        CHECK(marks->items);
    }
    marks->items[marks->count++] = *mark;
}

void torn_restore_tick(struct scheduler *scheduler, const struct tick *tick)
{
    scheduler->tick_number = tick->number;
    scheduler->certain_from = scheduler->certain_next = tick->number + 1 - tick->uncertain;
    forget_before(&scheduler->uncertain, scheduler->certain_from);
}

static struct found *found_open(struct scheduler *scheduler, const struct request_id *id)
{
    union idmap_value *value = idmap_put(scheduler->found, id->bytes, NULL);

    if (!value->pointer)
        value->pointer = arena_zalloc(&scheduler->arena, 1, sizeof(struct found));
    return value->pointer;
}

/* From here on the state is read whole: these are the marks whose outcomes have to be there. */
static void open_found(struct scheduler *scheduler)
{
    const struct uncertain_marks *marks = &scheduler->uncertain;

    if (scheduler->found)
        return;
    scheduler->found = idmap_open(marks->count);
    for (size_t i = marks->first; i < marks->count; i++) {
        const struct request_id *id = &marks->items[i].request_id;
        /* It may have come back or been forgotten since. */
        if (idmap_get(scheduler->done_marks, id->bytes))
            found_open(scheduler, id)->mark = &marks->items[i];
    }
}

/* The row went out, its WorkerMark may not have: no second one for the same time. */
static void restore_worker_time(struct scheduler *scheduler, const struct worker_time *time)
{
    struct run *run = time->slot < scheduler->config.slots
                          ? slot_find(&scheduler->slots[time->slot], &time->incarnation)
                          : NULL;

    if (!run || time->to_ms <= run->worker_time_to_ms)
        return;
    run->worker_time_to_ms = time->to_ms;
    if (time->to_ms > run->heartbeat_sent_ms)
        run->heartbeat_sent_ms = time->to_ms;
}

void torn_restore_output(struct scheduler *scheduler, const struct record *record)
{
    bool result = record->type == RECORD_RESULT;
    struct usage usage;
    struct found *found;

    open_found(scheduler);
    if (record->type == RECORD_WORKER_TIME)
        restore_worker_time(scheduler, &record->u.worker_time);
    if (!result && record->type != RECORD_USAGE)
        return;
    usage = result ? usage_of_result(&record->u.result) : record->u.usage;
    if (!idmap_get(scheduler->found, usage.request_id.bytes) &&
        idmap_get(scheduler->done_marks, usage.request_id.bytes))
        return;
    found = found_open(scheduler, &usage.request_id);
    found->usage_seen |= !result;
    found->result_seen |= result;
    usage.tenant = output_copy(scheduler, usage.tenant);
    usage.model = output_copy(scheduler, usage.model);
    usage.revision = output_copy(scheduler, usage.revision);
    usage.batch_id = output_copy(scheduler, usage.batch_id);
    usage.custom_id = output_copy(scheduler, usage.custom_id);
    usage.precision = output_copy(scheduler, usage.precision);
    usage.hardware = output_copy(scheduler, usage.hardware);
    found->usage = usage;
}

/* The Result is there: the request is done, and what is missing is sent. */
static void settle(struct scheduler *scheduler, const struct request_id *id,
                   const struct found *found)
{
    if (!found->mark) {
        int64_t window_ms = scheduler->config.dedupe_window_ms;
        struct job *job = job_find(scheduler, id);
        if (!job && found->usage.finished_ms < scheduler->now_ms - window_ms)
            return; /* it had its mark, and that is forgotten by now */
        struct done_mark mark = {.request_id = *id, .status = found->usage.status, .offset = -1};
        if (job)
            mark = done_mark_of(job, found->usage.status);
        restore_forget(scheduler, id);
        done_mark_put(scheduler, id, NULL, scheduler->now_ms);
        output_done_mark(scheduler, &mark);
        scheduler->torn.marks++;
    }
    if (!found->usage_seen && !scheduler->outputs_gone) {
        output_usage(scheduler, &found->usage);
        scheduler->torn.usages++;
    }
}

/* The mark says done and there is no Result: the request runs again, in its next attempt. The
 * accepted ids are not known any more; it says the same ones. */
static void reopen(struct scheduler *scheduler, const struct done_mark *mark)
{
    struct attempt *attempt;
    struct job *job;

    /* Offset -1: its Result was seen when the mark was written. */
    if (mark->offset < 0 ||
        !request_partition(scheduler, request_topic(mark->service_class), mark->partition))
        return;
    idmap_remove(scheduler->done_marks, mark->request_id.bytes, NULL);
    job =
        job_open(scheduler, &mark->request_id, mark->service_class, mark->partition, mark->offset);
    job->admitted_ms = mark->admitted_ms;
    attempt = job->attempt = attempt_new();
    attempt->number = mark->attempt;
    attempt->crashes = mark->crashes;
    output_in_flight(scheduler, job);
    scheduler->torn.requests++;
}

void torn_settle(struct scheduler *scheduler)
{
    struct request_id id;
    size_t cursor = 0;
    union idmap_value *value;

    open_found(scheduler);
    while (idmap_next(scheduler->found, &cursor, id.bytes, &value)) {
        const struct found *found = value->pointer;
        /* A Usage alone decides nothing; the request runs on or again, and the ledger takes one of
         * two equal keys. */
        if (found->result_seen)
            settle(scheduler, &id, found);
        else if (found->mark && !scheduler->outputs_gone)
            reopen(scheduler, found->mark);
    }
    torn_free(scheduler);
    scheduler->certain_ms = scheduler->now_ms;
}

void torn_free(struct scheduler *scheduler)
{
    idmap_close(scheduler->found);
    scheduler->found = NULL;
    free(scheduler->uncertain.items);
    scheduler->uncertain = (struct uncertain_marks){0};
}
