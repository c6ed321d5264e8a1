/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "scheduler/core.h"
#include "schemas/codec.h"

static const struct request_id incarnation_none;

static bool topic_from(struct str name, enum topic *topic)
{
    for (int i = 0; i < TOPIC_COUNT; i++)
        if (str_equal(name, str_from(topic_specs[i].name))) {
            *topic = (enum topic)i;
            return true;
        }
    return false;
}

void restore_forget(struct scheduler *scheduler, const struct request_id *id)
{
    struct job *job = job_find(scheduler, id);

    if (!job)
        return;
    job_map_remove(&scheduler->jobs, job);
    job_free(job);
}

static void restore_in_flight(struct scheduler *scheduler, const struct in_flight *in_flight)
{
    enum topic topic = TOPIC_COUNT;
    struct attempt *attempt;
    struct job *job;

    if (!topic_from(in_flight->topic, &topic) ||
        !request_partition(scheduler, topic, in_flight->partition))
        return; /* of a topic that this deployment no longer has */
    restore_forget(scheduler, &in_flight->request_id);
    idmap_remove(scheduler->done_marks, in_flight->request_id.bytes, NULL);
    job = job_open(scheduler, &in_flight->request_id,
                   topic == TOPIC_REQUESTS_BULK ? CLASS_BULK : CLASS_INTERACTIVE,
                   in_flight->partition, in_flight->offset);
    job->admitted_ms = in_flight->admitted_ms;
    attempt = job->attempt = attempt_new();
    attempt->number = in_flight->attempt;
    attempt->crashes = in_flight->crashes;
    attempt->events_offset = in_flight->events_offset;
    attempt->first_assigned_ms = in_flight->first_assigned_ms;
    attempt->restored_incarnation = in_flight->incarnation;
    attempt->restored_slot = in_flight->slot;
    attempt_extend(attempt, 0, in_flight->prefix);
}

static void store_position(struct scheduler *scheduler, const struct partition_offset *position)
{
    enum topic topic = TOPIC_COUNT;
    struct partition *partition;

    if (!topic_from(position->topic, &topic))
        return;
    partition = request_partition(scheduler, topic, position->partition);
    if (partition)
        partition->stored = position->offset;
    if (topic == TOPIC_WORKER_EVENTS && position->partition >= 0 &&
        (uint32_t)position->partition < scheduler->config.slots)
        scheduler->slots[position->partition].stored = position->offset;
}

static void restore_tick(struct scheduler *scheduler, const struct tick *tick)
{
    scheduler->epoch = tick->epoch;
    scheduler->seq = tick->seq;
    for (size_t i = 0; i < tick->next_input_count; i++)
        store_position(scheduler, &tick->next_input[i]);
    for (size_t i = 0; i < tick->outputs_count; i++) {
        struct position end = {TOPIC_COUNT, tick->outputs[i].partition, tick->outputs[i].offset};
        if (topic_from(tick->outputs[i].topic, &end.topic))
            output_end(scheduler, &end);
    }
    for (size_t i = 0; i < scheduler->outputs_count; i++) {
        struct output_end *end = &scheduler->outputs[i];
        end->certain = end->certain_next = end->offset;
    }
    torn_restore_tick(scheduler, tick);
}

static void restore_worker(struct scheduler *scheduler, const struct worker_mark *mark)
{
    struct slot *slot;
    struct run *run;

    if (mark->hello.slot >= scheduler->config.slots)
        return;
    slot = &scheduler->slots[mark->hello.slot];
    if (slot->runs) { /* an older mark of the slot */
        queues_model_release(&scheduler->queues, slot->runs->model);
        run_close(slot, slot->runs);
    }
    run = run_open(slot, &mark->hello);
    run->model = queues_model(&scheduler->queues, mark->hello.model);
    affinity_hello(scheduler, run);
    run->worker_time_to_ms = mark->worker_time_to_ms;
    run->heartbeat_sent_ms = mark->worker_time_to_ms;
}

void restore_state(struct scheduler *scheduler, const struct record *record)
{
    const struct done_mark *mark = &record->u.done_mark;

    switch (record->type) {
    case RECORD_IN_FLIGHT:
        restore_in_flight(scheduler, &record->u.in_flight);
        break;
    case RECORD_DONE_MARK:
        restore_forget(scheduler, &mark->request_id);
        done_mark_put(scheduler, &mark->request_id, mark->body_hash, mark->finished_ms);
        torn_restore_mark(scheduler, mark);
        break;
    case RECORD_TICK:
        restore_tick(scheduler, &record->u.tick);
        break;
    case RECORD_WORKER_MARK:
        restore_worker(scheduler, &record->u.worker_mark);
        break;
    default:
        break; /* of a newer version that knows more kinds of state */
    }
}

void restore_deleted(struct scheduler *scheduler, const struct request_id *id)
{
    restore_forget(scheduler, id);
    idmap_remove(scheduler->done_marks, id->bytes, NULL);
}

static void presume_alive(struct scheduler *scheduler, struct run *run)
{
    run->state = RUN_PRESUMED;
    run->seen_ms = run->worker_time_ms = scheduler->now_ms;
    batch_size_init(&run->batch, &scheduler->config.batch, scheduler->now_ms);
    run->batch_limit = 1;
}

/* The run that the job was given to; one that a newer Hello replaced has no mark any more. */
static struct run *run_of(struct scheduler *scheduler, const struct attempt *attempt)
{
    struct slot *slot = &scheduler->slots[attempt->restored_slot];
    struct run *run = slot_find(slot, &attempt->restored_incarnation);
    struct hello hello = {.slot = attempt->restored_slot,
                          .incarnation = attempt->restored_incarnation};

    if (run)
        return run;
    run = run_open(slot, &hello);
    run->model = queues_model(&scheduler->queues, hello.model);
    run->superseded = true;
    presume_alive(scheduler, run);
    return run;
}

static int compare_jobs(const void *a, const void *b)
{
    const struct job *x = *(struct job *const *)a, *y = *(struct job *const *)b;

    if (x->admitted_ms != y->admitted_ms)
        return x->admitted_ms < y->admitted_ms ? -1 : 1;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return memcmp(x->id.bytes, y->id.bytes, sizeof x->id.bytes);
}

static void place_jobs(struct scheduler *scheduler)
{
    size_t count = scheduler->jobs.count, cursor = 0, filled = 0;
    struct job **jobs = malloc((count + 1) * sizeof *jobs), *next;

    CHECK(jobs);
    while ((next = job_map_next(&scheduler->jobs, &cursor)))
        jobs[filled++] = next;
    qsort(jobs, count, sizeof *jobs, compare_jobs); /* the map has no order; ours is by age */
    for (size_t i = 0; i < count; i++) {
        struct job *job = jobs[i];
        struct attempt *attempt = job->attempt;
        scheduler->partitions[job->service_class][job->partition].payloads_missing++;
        attempt->listed_ms = attempt->returned_ms = scheduler->now_ms;
        if (request_id_equal(&attempt->restored_incarnation, &incarnation_none) ||
            attempt->restored_slot >= scheduler->config.slots) {
            job_change(scheduler, job, JOB_RETURNED, NULL);
        } else {
            struct run *run = run_of(scheduler, attempt);
            attempt->numerics = run->numerics;
            attempt->listed_sent_ms = run->heartbeat_sent_ms;
            job_change(scheduler, job, JOB_RUNNING, run);
        }
    }
    free(jobs);
}

void restore_finish(struct scheduler *scheduler)
{
    scheduler->epoch++;
    scheduler->seq = 0;
    scheduler->restored_ms = scheduler->tick_written_ms = scheduler->now_ms;
    for (int kind = 0; kind < CLASS_COUNT; kind++)
        for (uint32_t i = 0; i < scheduler->config.request_partitions[kind]; i++)
            scheduler->partitions[kind][i].reread_ms = scheduler->now_ms;
    for (uint32_t i = 0; i < scheduler->config.slots; i++)
        for (struct run *run = scheduler->slots[i].runs; run; run = run->next)
            presume_alive(scheduler, run);
    torn_settle(scheduler);
    place_jobs(scheduler);
}

void output_end(struct scheduler *scheduler, const struct position *position)
{
    struct output_end *ends;

    for (size_t i = 0; i < scheduler->outputs_count; i++) {
        struct output_end *end = &scheduler->outputs[i];
        if (end->topic == position->topic && end->partition == position->partition) {
            end->offset = position->offset;
            return;
        }
    }
    ends = realloc(scheduler->outputs, (scheduler->outputs_count + 1) * sizeof *ends);
    CHECK(ends);
    scheduler->outputs = ends;
    ends[scheduler->outputs_count++] =
        (struct output_end){position->topic, position->partition, position->offset, -1, -1};
}
