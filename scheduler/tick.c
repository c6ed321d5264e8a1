/* SPDX-License-Identifier: Apache-2.0
 *
 * Every loop has a limit, so that a batch of a million requests that is cancelled or expires
 * takes many small ticks instead of one transaction that is too large for its timeout.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/core.h"
#include "schemas/codec.h"

enum {
    STOPS_PER_TICK = 2000,  /* expired, cancelled or without a model */
    MODELS_PER_TICK = 64,   /* looked at for a worker that serves them */
    MARKS_PER_TICK = 256,   /* looked at for the end of the dedupe window: 12,800 a second */
    WORKER_TIME_MS = 60000, /* between two rows of a living worker */
    SERVED_SHOWN_MAX = 5,   /* models, in the error of a request for another one */
    NAME_SHOWN_MAX = 128,   /* bytes of each */
    POSITIONS_MS = 5000,    /* offsets that moved without any output are written this often */
};

void tick_worker_time(struct scheduler *scheduler, struct run *run)
{
    run->worker_time_ms = scheduler->now_ms;
    if (run->heartbeat_sent_ms <= run->worker_time_to_ms)
        return;
    output_worker_time(scheduler, run);
    run->worker_time_to_ms = run->heartbeat_sent_ms;
    if (!run->superseded)
        output_worker_mark(scheduler, run);
}

static void close_finished_runs(struct scheduler *scheduler, struct slot *slot)
{
    for (struct run *run = slot->runs, *next; run; run = next) {
        next = run->next;
        /* One with jobs has outcomes that wait for their requests to be read again. */
        if (!run->superseded || run->state != RUN_DEAD || run->jobs.count > 0)
            continue;
        queues_model_release(&scheduler->queues, run->model);
        run_close(slot, run);
    }
}

static void check_leases(struct scheduler *scheduler, struct slot *slot, uint32_t index)
{
    int64_t lease_ms = scheduler->config.lease_ms;
    int64_t end_ms = scheduler->now_ms - lease_ms - lease_margin_ms(lease_ms);
    bool ask = false;

    for (struct run *run = slot->runs; run; run = run->next) {
        if ((run->state == RUN_ALIVE || run->state == RUN_PRESUMED) && run->seen_ms < end_ms)
            run->state = RUN_EXPIRED;
        /* A question that is on its way may be older than this end of a lease: ask again. */
        if (run->state == RUN_EXPIRED && !slot->reading_to_end) {
            run->state = RUN_READING;
            ask = true;
        }
    }
    if (ask) {
        slot->reading_to_end = true;
        output_action(scheduler, ACTION_READ_EVENTS)->slot = index;
    }
    close_finished_runs(scheduler, slot);
}

/* Waiting requests over what the living workers may run. */
static double lag_pressure(const struct scheduler *scheduler)
{
    uint64_t waiting = 0, room = 0;

    for (int kind = 0; kind < CLASS_COUNT; kind++)
        waiting += scheduler->classes[kind].waiting_requests;
    for (uint32_t i = 0; i < scheduler->config.slots; i++) {
        const struct run *run = slot_current(&scheduler->slots[i]);
        if (run && run->state == RUN_ALIVE && !run->draining)
            room += run->batch_limit;
    }
    return room > 0 ? (double)waiting / (double)room : 0;
}

static void renew(struct scheduler *scheduler, struct run *run, double pressure)
{
    size_t held = run->jobs.count;
    uint64_t planned = scheduler->config.kv_share > 0 ? run->kv_tokens_used : run->kv_tokens;
    const struct batch_signal signal = {.load = run->load,
                                        .pressure = pressure,
                                        .step_us = (double)run->step_us,
                                        .running = held < run->batch_limit ? (uint32_t)held
                                                                           : run->batch_limit,
                                        .kv_tokens_used = run->kv_tokens_used,
                                        .kv_tokens = run->hello.kv_tokens,
                                        .kv_tokens_need = held ? (double)planned / (double)held : 0,
                                        .max_seqs = run->hello.max_seqs};

    if (run->state != RUN_ALIVE || run->superseded)
        return;
    run->batch_limit =
        batch_size_update(&run->batch, &scheduler->config.batch, &signal, scheduler->now_ms);
    if (held > 0 || run->batch_most == 0)
        run->batch_most = batch_size_most(&scheduler->config.batch, &signal);
    if (run->renewal_due)
        output_renewal(scheduler, run);
    run->renewal_due = false;
    if (scheduler->now_ms - run->worker_time_ms >= WORKER_TIME_MS)
        tick_worker_time(scheduler, run);
}

static void tend_workers(struct scheduler *scheduler)
{
    double pressure = lag_pressure(scheduler);

    for (uint32_t i = 0; i < scheduler->config.slots; i++) {
        check_leases(scheduler, &scheduler->slots[i], i);
        for (struct run *run = scheduler->slots[i].runs; run; run = run->next)
            renew(scheduler, run, pressure);
    }
}

static uint32_t expire(struct scheduler *scheduler, uint32_t limit)
{
    struct job *job;

    while (limit > 0 && (job = deadlines_due(&scheduler->deadlines, scheduler->now_ms))) {
        job_stop(scheduler, job, RESULT_EXPIRED, "the completion window is over");
        limit--;
    }
    return limit;
}

static uint32_t cancel(struct scheduler *scheduler, uint32_t limit)
{
    struct job_batch *batch;

    while (limit > 0 && (batch = scheduler->cancelling)) {
        if (batch->jobs.head) {
            job_stop(scheduler, batch->jobs.head, RESULT_CANCELLED, "the batch was cancelled");
            limit--;
        } else {
            batch->cancelling = false;
            scheduler->cancelling = batch->cancelling_next;
        }
    }
    return limit;
}

static struct job *group_any(const struct group *group)
{
    return group->current ? group->current->oldest : NULL;
}

/* One that was done by a torn tick, and never given to a worker. */
static struct job *reopened_any(const struct scheduler *scheduler, const struct model *model)
{
    for (struct job *job = scheduler->returned.head; job; job = job->links[LINK_STATE].next)
        if (job->payload && job->model == model && job->attempt->number == 0)
            return job;
    return NULL;
}

static struct job *model_any_waiting(const struct scheduler *scheduler, const struct model *model)
{
    for (int kind = 0; kind < CLASS_COUNT; kind++)
        for (int length = 0; length < LENGTH_COUNT; length++)
            if (model->groups[kind][length].count > 0)
                return group_any(&model->groups[kind][length]);
    return reopened_any(scheduler, model);
}

static bool model_served(const struct scheduler *scheduler, const struct model *model,
                         bool *any_alive)
{
    bool served = false;

    *any_alive = false;
    for (uint32_t i = 0; i < scheduler->config.slots; i++)
        for (struct run *run = scheduler->slots[i].runs; run; run = run->next) {
            if (run->superseded || run->state == RUN_DEAD)
                continue;
            *any_alive |= run->state == RUN_ALIVE;
            served |= run->hello.role == ROLE_BOTH &&
                      (run->model == model || model == scheduler->model_any);
        }
    return served;
}

static bool is_listed(struct model *const *listed, size_t count, const struct model *model)
{
    for (size_t i = 0; i < count; i++)
        if (listed[i] == model)
            return true;
    return false;
}

static int text_size(struct str text)
{
    return (int)(text.size < NAME_SHOWN_MAX ? text.size : NAME_SHOWN_MAX);
}

/* "a", "b" and others: what a mistyped name may have meant. The fleet may serve any number of
 * models, so the list has an end. */
static struct str list_served(struct scheduler *scheduler)
{
    char text[SERVED_SHOWN_MAX * (NAME_SHOWN_MAX + 4) + sizeof " and others"];
    struct model *listed[SERVED_SHOWN_MAX];
    size_t count = 0, size = 0;

    for (uint32_t i = 0; i < scheduler->config.slots; i++)
        for (struct run *run = scheduler->slots[i].runs; run; run = run->next) {
            if (run->superseded || run->state != RUN_ALIVE || run->hello.role != ROLE_BOTH ||
                is_listed(listed, count, run->model))
                continue;
            if (count == SERVED_SHOWN_MAX)
                return output_format(scheduler, "%.*s and others", (int)size, text);
            size += (size_t)snprintf(text + size, sizeof text - size, "%s\"%.*s\"",
                                     count > 0 ? ", " : "", text_size(run->model->name),
                                     run->model->name.data);
            listed[count++] = run->model;
        }
    return output_format(scheduler, "%.*s", (int)size, text);
}

static uint32_t refuse_model(struct scheduler *scheduler, struct model *model, uint32_t limit)
{
    struct job *job = model_any_waiting(scheduler, model);
    struct str served = job ? list_served(scheduler) : str_from("");

    for (; limit > 0 && job; job = model_any_waiting(scheduler, model)) {
        struct outcome outcome = {
            .status = RESULT_FAILED,
            .failure =
                {
                    .code = str_from("model_not_found"),
                    .message = output_format(
                        scheduler, "no worker serves the model \"%.*s\"; served: %.*s",
                        text_size(model->name), model->name.data, (int)served.size, served.data),
                    .param = str_from("model"),
                },
        };
        job_finish(scheduler, job, &outcome);
        limit--;
    }
    return limit;
}

/* While no worker lives at all, everybody waits: the fleet may be restarting. */
static uint32_t check_models(struct scheduler *scheduler, uint32_t limit)
{
    struct model *model = scheduler->queues.cursor;

    for (uint32_t i = 0; i < MODELS_PER_TICK && limit > 0; i++) {
        bool any_alive;
        bool served = model_served(scheduler, model, &any_alive);
        if (served || !any_alive)
            model->unserved_ms = 0;
        else if (model->unserved_ms == 0)
            model->unserved_ms = scheduler->now_ms;
        else if (scheduler->now_ms - model->unserved_ms > scheduler->config.model_wait_ms)
            limit = refuse_model(scheduler, model, limit);
        model = model->next;
        if (model == scheduler->queues.cursor)
            break;
    }
    scheduler->queues.cursor = model;
    return limit;
}

/* Marks older than this are not needed any more. While a request waits, its partition's stored
 * offset stands there, and a successor reads again what was finished behind it; until it has, it
 * needs the marks of all that, however old they are. So nothing is forgotten that finished after
 * the lowest waiting request came, nor while a partition still brings what came before this
 * leader. Timestamps are the producers', hence the slack (1.7 hours for 7 days). */
static int64_t marks_oldest_ms(const struct scheduler *scheduler)
{
    int64_t window_ms = scheduler->config.dedupe_window_ms, slack_ms = window_ms / 100;
    int64_t oldest_ms = scheduler->now_ms - window_ms;

    for (int kind = 0; kind < CLASS_COUNT; kind++)
        for (uint32_t i = 0; i < scheduler->config.request_partitions[kind]; i++) {
            const struct partition *partition = &scheduler->partitions[kind][i];
            const struct job *head = partition->queued.head;
            if (partition->paused || scheduler->now_ms - partition->reread_ms <= slack_ms)
                return 0;
            if (head && head->admitted_ms - slack_ms < oldest_ms)
                oldest_ms = head->admitted_ms - slack_ms;
        }
    return oldest_ms;
}

/* Forgets ids whose dedupe window is over. By what held a tick ago: what ends in this one might
 * have to run again, with its offset, should this tick be torn. */
static void sweep_done_marks(struct scheduler *scheduler)
{
    struct request_id old[MARKS_PER_TICK];
    size_t count = 0;
    int64_t oldest_ms = marks_oldest_ms(scheduler);
    int64_t oldest_s =
        (oldest_ms < scheduler->marks_oldest_ms ? oldest_ms : scheduler->marks_oldest_ms) / 1000;

    scheduler->marks_oldest_ms = oldest_ms;
    for (int i = 0; i < MARKS_PER_TICK; i++) {
        union idmap_value *mark;
        if (!idmap_next(scheduler->done_marks, &scheduler->sweep_cursor, old[count].bytes, &mark)) {
            scheduler->sweep_cursor = 0;
            break;
        }
        count += (int64_t)(uint32_t)mark->number < oldest_s;
    }
    for (size_t i = 0; i < count; i++) {
        idmap_remove(scheduler->done_marks, old[i].bytes, NULL);
        output_action(scheduler, ACTION_TOMBSTONE)->id = old[i];
        scheduler->tick_due = true;
    }
}

/* Bulk may fill three quarters of the room, so that interactive requests always find some. A
 * paused partition goes on at seven eighths of its limit. */
static void pause_or_resume(struct scheduler *scheduler)
{
    size_t bulk = scheduler->classes[CLASS_BULK].waiting_size;
    size_t all = scheduler->classes[CLASS_INTERACTIVE].waiting_size + bulk;
    size_t max = scheduler->config.waiting_size_max;

    for (int kind = 0; kind < CLASS_COUNT; kind++) {
        size_t limit = kind == CLASS_BULK ? max / 4 * 3 : max;
        bool full = all > max || (kind == CLASS_BULK && bulk > limit);
        bool roomy = all < max / 8 * 7 && (kind != CLASS_BULK || bulk < limit / 8 * 7);
        for (uint32_t i = 0; i < scheduler->config.request_partitions[kind]; i++) {
            struct partition *partition = &scheduler->partitions[kind][i];
            /* Restored jobs need their requests, whatever is waiting. */
            bool pause = full && partition->payloads_missing == 0;
            if (partition->paused ? !(roomy || partition->payloads_missing) : !pause)
                continue;
            partition->paused = !partition->paused;
            output_action(scheduler, partition->paused ? ACTION_PAUSE : ACTION_RESUME)->position =
                (struct position){request_topic(kind), (int32_t)i, 0};
        }
    }
}

void tick_run(struct scheduler *scheduler)
{
    uint32_t limit = STOPS_PER_TICK;

    tend_workers(scheduler);
    limit = expire(scheduler, limit);
    limit = cancel(scheduler, limit);
    check_models(scheduler, limit);
    assign_all(scheduler);
    sweep_done_marks(scheduler);
    pause_or_resume(scheduler);

    if (scheduler->positions != scheduler->positions_written &&
        scheduler->now_ms - scheduler->tick_written_ms >= POSITIONS_MS)
        scheduler->tick_due = true;
    if (!scheduler->tick_due)
        return;
    torn_begin_tick(scheduler);
    output_tick(scheduler);
    scheduler->tick_due = false;
    scheduler->tick_written_ms = scheduler->now_ms;
    scheduler->positions_written = scheduler->positions;
}
