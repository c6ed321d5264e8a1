/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/scheduler.h"

#include <stdlib.h>

#include "common/check.h"
#include "scheduler/core.h"
#include "schemas/codec.h"

/* Beginnings of requests that are remembered: templates, system prompts, tenants. 8 MB at most. */
enum { PROFILES_MAX = 4096 };

void actions_free(struct actions *actions)
{
    free(actions->items);
    *actions = (struct actions){0};
}

struct scheduler *scheduler_new(const struct scheduler_config *config)
{
    struct scheduler *scheduler = calloc(1, sizeof *scheduler);

    if (!scheduler)
        return NULL;
    CHECK(config->crashes_max >= 1);
    scheduler->config = *config;
    scheduler->done_marks = idmap_open(0);
    scheduler->batches = idmap_open(0);
    queues_open(&scheduler->queues);
    scheduler->model_any = queues_model(&scheduler->queues, str_from(""));
    scheduler->slots = calloc(config->slots + 1, sizeof *scheduler->slots);
    scheduler->by_fill = calloc(config->slots + 1, sizeof *scheduler->by_fill);
    CHECK(scheduler->slots);
    CHECK(scheduler->by_fill);
    for (uint32_t i = 0; i < config->slots; i++)
        scheduler->slots[i].stored = scheduler->slots[i].read = -1;
    for (int kind = 0; kind < CLASS_COUNT; kind++) {
        uint32_t count = config->request_partitions[kind];
        scheduler->partitions[kind] = calloc(count + 1, sizeof **scheduler->partitions);
        CHECK(scheduler->partitions[kind]);
        for (uint32_t i = 0; i < count; i++)
            scheduler->partitions[kind][i].stored = scheduler->partitions[kind][i].read = -1;
    }
    scheduler->control_read = -1;
    scheduler->certain_from = scheduler->certain_next = 1;
    scheduler->profiles = profile_table_open(PROFILES_MAX);
    if (config->prefix_affinity_weight > 0)
        scheduler->affinity.holders = holders_open(config->slots);
    return scheduler;
}

static void free_finished(struct scheduler *scheduler)
{
    struct job *job;

    while ((job = scheduler->finished.head)) {
        job_list_remove(&scheduler->finished, LINK_STATE, job);
        batch_release(scheduler, job->batch);
        queues_model_release(&scheduler->queues, job->model);
        job_free(job);
    }
}

static void free_batches(struct scheduler *scheduler)
{
    union idmap_value *value;
    size_t cursor = 0;

    while (idmap_next(scheduler->batches, &cursor, NULL, &value)) {
        struct job_batch *batch = value->pointer;
        free((void *)batch->tenant.data);
        free((void *)batch->batch_id.data);
        free(batch);
    }
    idmap_close(scheduler->batches);
}

void scheduler_free(struct scheduler *scheduler)
{
    struct job *job;
    size_t cursor = 0;

    if (!scheduler)
        return;
    free_finished(scheduler);
    while ((job = job_map_next(&scheduler->jobs, &cursor)))
        job_free(job);
    for (uint32_t i = 0; i < scheduler->config.slots; i++)
        while (scheduler->slots[i].runs) {
            scheduler->slots[i].runs->jobs = (struct job_list){0};
            run_close(&scheduler->slots[i], scheduler->slots[i].runs);
        }
    free_batches(scheduler);
    queues_close(&scheduler->queues);
    deadlines_free(&scheduler->deadlines);
    profile_table_close(scheduler->profiles);
    holders_close(scheduler->affinity.holders);
    job_map_free(&scheduler->jobs);
    idmap_close(scheduler->done_marks);
    torn_free(scheduler);
    for (int kind = 0; kind < CLASS_COUNT; kind++)
        free(scheduler->partitions[kind]);
    free(scheduler->slots);
    free(scheduler->by_fill);
    free(scheduler->outputs);
    arena_free(&scheduler->arena);
    free(scheduler);
}

void scheduler_step(struct scheduler *scheduler, const struct event *event, int64_t now_ms,
                    struct actions *actions)
{
    if (now_ms > scheduler->now_ms) /* a clock that was set back stands still here */
        scheduler->now_ms = now_ms;
    scheduler->actions = actions;
    switch (event->type) {
    case EVENT_RESTORE_STATE:
        restore_state(scheduler, event->record);
        break;
    case EVENT_RESTORE_DELETED:
        restore_deleted(scheduler, &event->id);
        break;
    case EVENT_RESTORE_OUTPUT:
        torn_restore_output(scheduler, event->record);
        break;
    case EVENT_RESTORE_GONE:
        scheduler->outputs_gone = true;
        break;
    case EVENT_RESTORED:
        restore_finish(scheduler);
        break;
    case EVENT_REQUEST:
        intake_request(scheduler, event);
        break;
    case EVENT_BAD_REQUEST:
        intake_bad_request(scheduler, event);
        break;
    case EVENT_CONTROL:
        intake_control(scheduler, event);
        break;
    case EVENT_WORKER:
        events_worker(scheduler, event);
        break;
    case EVENT_EVENTS_END:
        events_end(scheduler, event->slot);
        break;
    case EVENT_OUTPUT_END:
        output_end(scheduler, &event->position);
        break;
    case EVENT_TICK:
        tick_run(scheduler);
        break;
    case EVENT_COMMITTED:
        free_finished(scheduler);
        arena_reset(&scheduler->arena);
        break;
    }
    scheduler->actions = NULL;
}

static int64_t lower(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t scheduler_start_offset(const struct scheduler *scheduler, enum topic topic,
                               int32_t partition)
{
    bool events = topic == TOPIC_WORKER_EVENTS;
    const struct partition *requests = request_partition(scheduler, topic, partition);
    const struct job *job;
    size_t cursor = 0;
    int64_t offset = -1;

    if (requests)
        offset = requests->stored;
    else if (events && partition >= 0 && (uint32_t)partition < scheduler->config.slots)
        offset = scheduler->slots[partition].stored;
    while ((job = job_map_next(&scheduler->jobs, &cursor))) {
        const struct run *run = job->attempt ? job->attempt->run : NULL;
        if (requests && request_partition(scheduler, request_topic(job->service_class),
                                          job->partition) == requests)
            offset = lower(offset, job->offset);
        if (events && run && run->hello.slot == (uint32_t)partition)
            offset = lower(offset, job->attempt->events_offset);
    }
    return offset;
}

void scheduler_gauges(const struct scheduler *scheduler, struct scheduler_gauges *gauges)
{
    union idmap_value *value;
    size_t cursor = 0;

    *gauges = (struct scheduler_gauges){
        .in_flight = scheduler->in_flight,
        .done_marks = idmap_count(scheduler->done_marks),
        .duplicates_total = scheduler->duplicates_total,
        .dead_letters_total = scheduler->dead_letters_total,
        .reassigned_total = scheduler->reassigned_total,
        .epoch = scheduler->epoch,
        .torn = scheduler->torn,
        .work = scheduler->work,
        .prefixes = scheduler->affinity.totals,
    };
    for (int i = 0; i < 4; i++)
        gauges->results_total[i] = scheduler->results_total[i];
    for (int kind = 0; kind < CLASS_COUNT; kind++) {
        gauges->classes[kind].waiting_requests = scheduler->classes[kind].waiting_requests;
        gauges->classes[kind].waiting_tokens = scheduler->classes[kind].waiting_tokens;
        gauges->waiting_size += scheduler->classes[kind].waiting_size;
        for (uint32_t i = 0; i < scheduler->config.request_partitions[kind]; i++)
            gauges->paused |= scheduler->partitions[kind][i].paused;
    }
    while (idmap_next(scheduler->queues.flows, &cursor, NULL, &value)) {
        const struct flow *flow = value->pointer;
        const struct job *job = flow->oldest;
        struct scheduler_class_gauges *counts = &gauges->classes[job->service_class];
        int64_t wait_ms = scheduler->now_ms - job->admitted_ms;
        counts->oldest_wait_ms =
            wait_ms > counts->oldest_wait_ms ? wait_ms : counts->oldest_wait_ms;
    }
    for (uint32_t i = 0; i < scheduler->config.slots; i++) {
        const struct run *run = slot_current(&scheduler->slots[i]);
        gauges->workers_alive += run && run->state == RUN_ALIVE;
        if (!run || run->state != RUN_ALIVE || run->draining)
            continue;
        gauges->workers_serving++;
        gauges->batch_most += run->batch_most ? run->batch_most : run->batch_limit;
    }
}

bool scheduler_worker_gauges(const struct scheduler *scheduler, uint32_t slot,
                             struct scheduler_worker_gauges *gauges)
{
    const struct run *run =
        slot < scheduler->config.slots ? slot_current(&scheduler->slots[slot]) : NULL;

    if (!run)
        return false;
    const struct predict_params predictor = predict_defaults(PREDICT_EWMA);
    *gauges = (struct scheduler_worker_gauges){
        .slot = slot,
        .alive = run->state == RUN_ALIVE,
        .in_flight = (uint32_t)run->jobs.count,
        .batch_size = run->batch_limit,
        .load = run->load,
        .load_forecast = predict_series_forecast(&predictor, &run->load_series, 1),
        .imbalance = run->imbalance,
        .experts_used = run->experts_used,
        .step_us = run->step_us,
    };
    return true;
}
