/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "scheduler/core.h"
#include "schemas/codec.h"

/* Cancels sent in answer to one heartbeat; the next one brings up what is left. */
enum { STALE_CANCELS_MAX = 64 };
/* Room for what a Result has beside text and ids: names, failure, numbers, framing. */
enum { RESULT_SIZE_REST = 8192, ID_SIZE_MAX = 5 /* a zigzag varint */ };

/* The job of this attempt, if it still is the job's newest and given to this incarnation (R5). */
static struct job *attempt_job(const struct scheduler *scheduler, const struct request_id *id,
                               uint32_t number, const struct request_id *incarnation)
{
    struct job *job = job_find(scheduler, id);

    if (!job || job->state != JOB_RUNNING || job->attempt->number != number ||
        !request_id_equal(&job->attempt->run->hello.incarnation, incarnation))
        return NULL;
    return job;
}

/* The worker said something else than before: its arithmetic is not what we rely on. */
static void contradicted(struct scheduler *scheduler, struct job *job)
{
    output_cancel(scheduler, job->attempt->run, &job->id, job->attempt->number);
    job_return(scheduler, job, true, "a worker contradicted the accepted tokens");
}

/* What the worker measured replaces what was predicted; an answer that is whole teaches. */
static void on_profile(struct scheduler *scheduler, struct job *job, struct i32_array counts,
                       bool whole)
{
    const struct run *run = job->attempt->run;
    struct profile *profile;

    if (counts.count == 0 || scheduler->config.expert_balance_weight <= 0)
        return;
    profile = profile_new(counts, run->hello.experts);
    if (!profile)
        return;
    if (!whole) {
        job_set_profile(job, profile);
        return;
    }
    if (job->payload)
        compose_learn(scheduler, run, job, profile);
    free(profile);
}

static void on_progress(struct scheduler *scheduler, const struct progress *progress)
{
    struct job *job =
        attempt_job(scheduler, &progress->request_id, progress->attempt, &progress->incarnation);

    if (!job)
        return;
    /* A gap cannot come from a worker that keeps its order; without the ids before it, these do
     * not help, and Done brings all of them. */
    if (attempt_extend(job->attempt, progress->first_index, progress->ids) == PREFIX_CONTRADICTED) {
        contradicted(scheduler, job);
        return;
    }
    job_prefilled(scheduler, job);
    on_profile(scheduler, job, progress->profile, false);
}

static void put_str(char **to, struct str *field)
{
    if (field->size)
        memcpy(*to, field->data, field->size);
    field->data = *to;
    *to += field->size;
}

/* A copy in one block of memory. */
static struct record *copy_outcome(const struct record *record)
{
    bool done = record->type == RECORD_DONE;
    size_t ids_size = done ? record->u.done.ids.count * sizeof *record->u.done.ids.items : 0;
    size_t size = sizeof *record + ids_size;
    const struct failure *failure = &record->u.failed.failure;
    struct record *copy;
    char *to;

    size += done ? record->u.done.text.size
                 : failure->code.size + failure->message.size + failure->param.size;
    copy = malloc(size);
    CHECK(copy);
    *copy = *record;
    to = (char *)(copy + 1);
    if (done) {
        if (ids_size)
            memcpy(to, record->u.done.ids.items, ids_size);
        copy->u.done.ids.items = (const int32_t *)(void *)(copy + 1);
        to += ids_size;
        put_str(&to, &copy->u.done.text);
        copy->u.done.profile = (struct i32_array){0}; /* its lesson is learned */
    } else {
        put_str(&to, &copy->u.failed.failure.code);
        put_str(&to, &copy->u.failed.failure.message);
        put_str(&to, &copy->u.failed.failure.param);
    }
    return copy;
}

static void complete(struct scheduler *scheduler, struct job *job, const struct done *done)
{
    uint64_t size = done->text.size + done->ids.count * (uint64_t)ID_SIZE_MAX +
                    job_custom_id(job).size + job->batch->tenant.size + job->model->name.size;
    struct outcome outcome = {.status = RESULT_COMPLETED, .done = done, .usage = &done->usage};

    if (size + RESULT_SIZE_REST > CODEC_REQUEST_SIZE_MAX) {
        outcome = (struct outcome){
            .status = RESULT_FAILED,
            .usage = &done->usage,
            .failure = {.code = str_from("result_too_large"),
                        .message = output_format(scheduler,
                                                 "the result of about %llu bytes is over the "
                                                 "limit of %d bytes",
                                                 (unsigned long long)size, CODEC_REQUEST_SIZE_MAX)},
        };
    }
    job_finish(scheduler, job, &outcome);
}

void events_outcome(struct scheduler *scheduler, struct job *job, const struct record *record)
{
    struct outcome outcome = {.status = RESULT_FAILED};

    if (record->type == RECORD_DONE) {
        complete(scheduler, job, &record->u.done);
        return;
    }
    outcome.failure = record->u.failed.failure;
    outcome.usage = &record->u.failed.usage;
    job_finish(scheduler, job, &outcome);
}

/* A Result repeats parts of the request, so it waits until a restored job has them again. Until
 * then the outcome is in memory only: if this leader dies too, the request runs once more. */
static void outcome_now_or_held(struct scheduler *scheduler, struct job *job,
                                const struct record *record)
{
    if (job->payload)
        events_outcome(scheduler, job, record);
    else if (!job->attempt->held)
        job->attempt->held = copy_outcome(record);
}

static void on_done(struct scheduler *scheduler, const struct record *record)
{
    const struct done *done = &record->u.done;
    struct job *job = attempt_job(scheduler, &done->request_id, done->attempt, &done->incarnation);

    if (!job)
        return;
    if (attempt_agrees(job->attempt, done->ids)) {
        on_profile(scheduler, job, done->profile, true);
        affinity_done(scheduler, job, &done->usage);
        outcome_now_or_held(scheduler, job, record);
    } else {
        contradicted(scheduler, job);
    }
}

static void on_failed(struct scheduler *scheduler, const struct record *record)
{
    const struct failed *failed = &record->u.failed;
    struct job *job =
        attempt_job(scheduler, &failed->request_id, failed->attempt, &failed->incarnation);

    if (!job)
        return;
    if (failed->kind == FAILURE_REJECT)
        outcome_now_or_held(scheduler, job, record);
    else
        job_return(scheduler, job, true, "the worker reported a failure");
}

static void on_yield(struct scheduler *scheduler, const struct yield *yield)
{
    struct job *job =
        attempt_job(scheduler, &yield->request_id, yield->attempt, &yield->incarnation);

    if (job)
        job_return(scheduler, job, false, "");
}

static void return_all(struct scheduler *scheduler, struct run *run, bool crash)
{
    struct job *job = run->jobs.head;

    while (job) {
        struct job *next = job->links[LINK_STATE].next;
        /* One whose outcome is known needs no other attempt, only its request again. */
        if (!job->attempt->held) {
            /* The worker may only have been out of reach, its command still unread. It will read
             * this one before any renewal that lets it go on. */
            if (crash && !run->superseded)
                output_cancel(scheduler, run, &job->id, job->attempt->number);
            job_return(scheduler, job, crash, "its worker died");
        }
        job = next;
    }
}

static void on_hello(struct scheduler *scheduler, struct slot *slot, uint32_t index,
                     const struct hello *hello)
{
    struct hello own = *hello;
    struct run *current = slot_current(slot);
    struct run *run;

    if (slot_find(slot, &hello->incarnation))
        return;
    if (current) {
        /* The older worker leaves when it reads this Hello; its requests are given away when
         * its lease is over and its events are read, as for any other end. */
        tick_worker_time(scheduler, current);
        current->superseded = true;
        current->reserved_for = NULL;
    }
    own.slot = index;
    run = run_open(slot, &own);
    run->model = queues_model(&scheduler->queues, hello->model);
    run->state = RUN_ALIVE;
    run->seen_ms = run->worker_time_ms = scheduler->now_ms;
    batch_size_init(&run->batch, &scheduler->config.batch, scheduler->now_ms);
    run->batch_limit = 1;
    affinity_hello(scheduler, run);
    output_worker_mark(scheduler, run);
}

/* What the worker holds although it is not (or no longer) given to it is cancelled; what it should
 * hold and does not is lost to it, and given another attempt. */
static void compare_running(struct scheduler *scheduler, struct run *run,
                            const struct heartbeat *heartbeat)
{
    int64_t patience_ms = scheduler->config.lease_ms;
    uint32_t cancels = 0;
    struct job *job;

    for (size_t i = 0; i < heartbeat->running_count; i++) {
        const struct running *running = &heartbeat->running[i];
        job =
            attempt_job(scheduler, &running->request_id, running->attempt, &heartbeat->incarnation);
        if (job) {
            job->attempt->listed_ms = scheduler->now_ms;
            job->attempt->listed_sent_ms = heartbeat->sent_ms;
        } else if (cancels++ < STALE_CANCELS_MAX) {
            output_cancel(scheduler, run, &running->request_id, running->attempt);
        }
    }
    for (job = run->jobs.head; job;) {
        struct job *next = job->links[LINK_STATE].next;
        const struct attempt *attempt = job->attempt;
        /* By both clocks: ours may be late with reading, and then the list is an old one. The
         * Cancel stops the worker if it has the request after all, and reads it later. */
        if (!attempt->held && scheduler->now_ms - attempt->listed_ms > 2 * patience_ms &&
            heartbeat->sent_ms - attempt->listed_sent_ms > 2 * patience_ms) {
            output_cancel(scheduler, run, &job->id, attempt->number);
            job_return(scheduler, job, false, "");
        }
        job = next;
    }
}

/* Adds what the worker has done since its last heartbeat. */
static void count_work(struct scheduler *scheduler, struct run *run,
                       const struct heartbeat *heartbeat)
{
    if (heartbeat->steps > run->steps)
        scheduler->work.steps += (uint64_t)(heartbeat->steps - run->steps);
    if (heartbeat->decode_tokens > run->decode_tokens)
        scheduler->work.decode_tokens += (uint64_t)(heartbeat->decode_tokens - run->decode_tokens);
    if (heartbeat->busy_us > run->busy_us)
        scheduler->work.busy_us += (uint64_t)(heartbeat->busy_us - run->busy_us);
    run->steps = heartbeat->steps;
    run->decode_tokens = heartbeat->decode_tokens;
    run->busy_us = heartbeat->busy_us;
}

static void on_heartbeat(struct scheduler *scheduler, struct slot *slot,
                         const struct heartbeat *heartbeat)
{
    const struct predict_params predictor = predict_defaults(PREDICT_EWMA);
    struct run *run = slot_find(slot, &heartbeat->incarnation);

    if (!run || run->superseded || heartbeat->seq <= run->heartbeat_seq)
        return;
    run->state = RUN_ALIVE;
    run->seen_ms = scheduler->now_ms;
    run->heartbeat_seq = heartbeat->seq;
    if (heartbeat->sent_ms > run->heartbeat_sent_ms)
        run->heartbeat_sent_ms = heartbeat->sent_ms;
    run->renewal_due = true;
    run->load = heartbeat->load;
    predict_series_observe(&predictor, &run->load_series, run->load);
    run->kv_tokens_used = heartbeat->kv_tokens_used;
    run->kv_tokens_new = run->kv_tokens_newer;
    run->kv_tokens_newer = 0;
    run->step_us = heartbeat->step_us;
    run->imbalance = heartbeat->imbalance;
    run->experts_used = heartbeat->experts_used;
    count_work(scheduler, run, heartbeat);
    run->draining = heartbeat->draining;
    if (run->draining)
        run->reserved_for = NULL; /* another worker may be kept free for it */
    compare_running(scheduler, run, heartbeat);
}

static void on_goodbye(struct scheduler *scheduler, struct slot *slot,
                       const struct goodbye *goodbye)
{
    struct run *run = slot_find(slot, &goodbye->incarnation);

    if (!run)
        return;
    if (goodbye->sent_ms > run->heartbeat_sent_ms)
        run->heartbeat_sent_ms = goodbye->sent_ms;
    if (!run->superseded)
        tick_worker_time(scheduler, run);
    run->superseded = true;
    run->state = RUN_DEAD;
    return_all(scheduler, run, false);
}

void events_worker(struct scheduler *scheduler, const struct event *event)
{
    const struct record *record = event->record;
    uint32_t index = (uint32_t)event->position.partition;
    struct slot *slot;

    CHECK(event->position.partition >= 0);
    CHECK(index < scheduler->config.slots);
    slot = &scheduler->slots[index];
    if (event->position.offset < slot->read)
        return;
    slot->read = event->position.offset + 1;
    scheduler->positions++;
    /* Below what state names all has had its effect, only accepted ids are not kept there. */
    if (event->position.offset < slot->stored && record->type != RECORD_PROGRESS)
        return;

    switch (record->type) {
    case RECORD_HELLO:
        on_hello(scheduler, slot, index, &record->u.hello);
        break;
    case RECORD_HEARTBEAT:
        on_heartbeat(scheduler, slot, &record->u.heartbeat);
        break;
    case RECORD_PROGRESS:
        on_progress(scheduler, &record->u.progress);
        break;
    case RECORD_DONE:
        on_done(scheduler, record);
        break;
    case RECORD_FAILED:
        on_failed(scheduler, record);
        break;
    case RECORD_YIELD:
        on_yield(scheduler, &record->u.yield);
        break;
    case RECORD_GOODBYE:
        on_goodbye(scheduler, slot, &record->u.goodbye);
        break;
    default:
        break; /* not a worker's record: of a newer version, or misdirected; it changes nothing */
    }
}

void events_end(struct scheduler *scheduler, uint32_t index)
{
    struct slot *slot = &scheduler->slots[index];

    CHECK(index < scheduler->config.slots);
    slot->reading_to_end = false;
    for (struct run *run = slot->runs; run; run = run->next) {
        if (run->state != RUN_READING)
            continue;
        run->state = RUN_DEAD;
        run->reserved_for = NULL;
        if (!run->superseded)
            tick_worker_time(scheduler, run);
        return_all(scheduler, run, true);
    }
}
