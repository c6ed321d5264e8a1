/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "scheduler/balance.h"
#include "scheduler/core.h"
#include "schemas/codec.h"

/* A job with this many crashes runs alone, so that its neighbours do not die with it again. */
enum { ALONE_CRASHES = 2 };

struct job *job_find(const struct scheduler *scheduler, const struct request_id *id)
{
    return job_map_find(&scheduler->jobs, id);
}

struct job *job_open(struct scheduler *scheduler, const struct request_id *id,
                     enum service_class service_class, int32_t partition, int64_t offset)
{
    struct job *job = job_new(id);

    job->service_class = (uint8_t)service_class;
    job->partition = partition;
    job->offset = offset;
    job_map_add(&scheduler->jobs, job);
    return job;
}

enum job_length job_length(const struct scheduler *scheduler, const struct job *job)
{
    uint32_t limit = scheduler->config.long_request_tokens;

    return limit && job->tokens >= limit ? LENGTH_LONG : LENGTH_SHORT;
}

bool job_runs_alone(const struct scheduler *scheduler, const struct job *job)
{
    uint32_t limit = scheduler->config.crashes_max - 1;

    limit = limit < ALONE_CRASHES ? limit : ALONE_CRASHES;
    return limit > 0 && job->attempt && job->attempt->crashes >= limit;
}

static void count_waiting(struct scheduler *scheduler, const struct job *job, bool add)
{
    struct class_counts *counts = &scheduler->classes[job->service_class];
    uint64_t sign = add ? 1 : (uint64_t)-1; /* unsigned arithmetic wraps back */

    counts->waiting_requests += sign;
    counts->waiting_tokens += sign * job->tokens;
    counts->waiting_size += (size_t)sign * job_payload_size(job);
    if (job->model && job_length(scheduler, job) == LENGTH_SHORT)
        job->model->waiting_short[job->service_class] += sign;
}

/* A long one's prompt, until it is read. */
static void count_prompt(const struct scheduler *scheduler, const struct job *job, uint64_t sign)
{
    struct long_prompts *prompts = &job->attempt->run->long_prompts[job->service_class];

    if (job->attempt->prefill_work == 0 || job_length(scheduler, job) == LENGTH_SHORT)
        return;
    prompts->count += (uint32_t)sign;
    prompts->work += sign * job_prompt_work(job);
}

static void count_running(struct scheduler *scheduler, const struct job *job, bool add)
{
    struct run *run = job->attempt->run;
    uint64_t sign = add ? 1 : (uint64_t)-1;

    scheduler->in_flight += sign;
    run->kv_tokens += sign * job_kv_tokens(job, run->hello.max_context);
    run->held[job->service_class][job_length(scheduler, job)] += (uint32_t)sign;
    count_prompt(scheduler, job, sign);
    run->prefill_work += sign * job->attempt->prefill_work;
    compose_count(run, job->attempt->profile, add);
}

void job_set_profile(struct job *job, struct profile *profile)
{
    struct attempt *attempt = job->attempt;

    CHECK(job->state == JOB_RUNNING);
    compose_count(attempt->run, attempt->profile, false);
    free(attempt->profile);
    attempt->profile = profile;
    compose_count(attempt->run, profile, true);
}

void job_prefilled(const struct scheduler *scheduler, struct job *job)
{
    struct attempt *attempt = job->attempt;
    struct run *run = attempt->run;

    CHECK(job->state == JOB_RUNNING);
    if (attempt->prefill_work == 0)
        return;
    count_prompt(scheduler, job, (uint64_t)-1);
    long_pace_note(&run->pace, job_prompt_work(job), scheduler->now_ms);
    run->prefill_work -= attempt->prefill_work;
    attempt->prefill_work = 0;
}

/* Whoever keeps a worker free for this job need not any longer. */
static void unreserve(struct scheduler *scheduler, const struct job *job)
{
    for (uint32_t i = 0; i < scheduler->config.slots; i++)
        for (struct run *run = scheduler->slots[i].runs; run; run = run->next)
            if (run->reserved_for == job)
                run->reserved_for = NULL;
}

static void leave_state(struct scheduler *scheduler, struct job *job, enum job_state to)
{
    struct partition *partition = &scheduler->partitions[job->service_class][job->partition];

    switch ((enum job_state)job->state) {
    case JOB_NEW:
        break;
    case JOB_QUEUED:
        if (to == JOB_RUNNING)
            queues_take(&scheduler->queues, job);
        else
            queues_remove(&scheduler->queues, job);
        job_list_remove(&partition->queued, LINK_OFFSET, job);
        count_waiting(scheduler, job, false);
        break;
    case JOB_RETURNED:
        job_list_remove(&scheduler->returned, LINK_STATE, job);
        count_waiting(scheduler, job, false);
        if (job_runs_alone(scheduler, job))
            unreserve(scheduler, job);
        break;
    case JOB_RUNNING:
        job_list_remove(&job->attempt->run->jobs, LINK_STATE, job);
        count_running(scheduler, job, false);
        if (job->attempt->run->reserved_for == job)
            job->attempt->run->reserved_for = NULL;
        job->attempt->run = NULL;
        break;
    case JOB_FINISHED:
        CHECK(job->state != JOB_FINISHED);
    }
}

static void enter_state(struct scheduler *scheduler, struct job *job, enum job_state to,
                        struct run *run)
{
    struct partition *partition = &scheduler->partitions[job->service_class][job->partition];

    job->state = (uint8_t)to;
    switch (to) {
    case JOB_NEW:
        break;
    case JOB_QUEUED:
        queues_push(&scheduler->queues, job, job_length(scheduler, job));
        job_list_append(&partition->queued, LINK_OFFSET, job);
        count_waiting(scheduler, job, true);
        break;
    case JOB_RETURNED:
        job_list_append(&scheduler->returned, LINK_STATE, job);
        count_waiting(scheduler, job, true);
        break;
    case JOB_RUNNING:
        job->attempt->run = run;
        job_list_append(&run->jobs, LINK_STATE, job);
        if (job_runs_alone(scheduler, job))
            run->reserved_for = job;
        count_running(scheduler, job, true);
        break;
    case JOB_FINISHED:
        job_map_remove(&scheduler->jobs, job);
        deadlines_remove(&scheduler->deadlines, job);
        if (job->batch)
            job_list_remove(&job->batch->jobs, LINK_BATCH, job);
        if (!job->payload)
            partition->payloads_missing--;
        job_list_append(&scheduler->finished, LINK_STATE, job);
        break;
    }
}

void job_change(struct scheduler *scheduler, struct job *job, enum job_state to, struct run *run)
{
    CHECK((to == JOB_RUNNING) == (run != NULL));
    leave_state(scheduler, job, to);
    enter_state(scheduler, job, to, run);
}

void job_attach(struct scheduler *scheduler, struct job *job, const struct request *request)
{
    enum job_state state = (enum job_state)job->state;
    struct run *run = state == JOB_RUNNING ? job->attempt->run : NULL;

    /* Out and in again, so that every count includes the payload. */
    job_change(scheduler, job, JOB_NEW, NULL);
    job_set_payload(job, request);
    job->model = queues_model(&scheduler->queues, request->model);
    job->batch = batch_open(scheduler, request->tenant, request->batch_id);
    job->batch->refs++;
    job_list_append(&job->batch->jobs, LINK_BATCH, job);
    deadlines_add(&scheduler->deadlines, job);
    if (state != JOB_NEW)
        job_change(scheduler, job, state, run);
}

/* What the attempt will ask of its worker. Prompt tokens as job->tokens counts them; those in the
 * worker's cache are not computed, but those behind them attend to them. */
static void predict(struct scheduler *scheduler, struct job *job, const struct run *run,
                    uint64_t cached)
{
    struct attempt *attempt = job->attempt;
    const struct profile *profile = compose_predict(scheduler, run, job);

    free(attempt->profile);
    attempt->profile = profile ? profile_copy(profile) : NULL;
    attempt->prefill_work = balance_prefill_work(job_body(job).size / 4 + attempt->prefix_count) -
                            balance_prefill_work(cached);
}

void job_assign(struct scheduler *scheduler, struct job *job, struct run *run, uint64_t cached)
{
    struct attempt *attempt = job->attempt;

    if (!attempt) {
        attempt = job->attempt = attempt_new();
        attempt->first_assigned_ms = scheduler->now_ms;
    }
    attempt->number++;
    attempt->events_offset = slot_next_offset(&scheduler->slots[run->hello.slot]);
    attempt->listed_ms = scheduler->now_ms;
    attempt->listed_sent_ms = run->heartbeat_sent_ms;
    attempt->numerics = run->numerics;
    run->kv_tokens_newer += job_prompt_tokens(job);
    predict(scheduler, job, run, cached);
    job_change(scheduler, job, JOB_RUNNING, run);
    output_in_flight(scheduler, job);
    output_assignment(scheduler, job);
}

void job_give_up(struct scheduler *scheduler, struct job *job, const char *why)
{
    struct request request = output_request(job);
    struct position origin = {request_topic(job->service_class), job->partition, job->offset};
    struct str message = output_format(scheduler, "%u attempts failed, the last one because %s",
                                       job->attempt->crashes, why);
    struct outcome outcome = {
        .status = RESULT_FAILED,
        .failure = {.code = str_from("worker_crashed"), .message = message},
    };

    output_dead_letter(scheduler, &request, origin, message);
    job_finish(scheduler, job, &outcome);
}

void job_return(struct scheduler *scheduler, struct job *job, bool crash, const char *why)
{
    struct attempt *attempt = job->attempt;

    if (crash)
        attempt->crashes++;
    attempt->returned_ms = scheduler->now_ms;
    if (job->payload && attempt->crashes >= scheduler->config.crashes_max) {
        job_give_up(scheduler, job, why);
        return;
    }
    scheduler->reassigned_total++;
    job_change(scheduler, job, JOB_RETURNED, NULL);
    output_in_flight(scheduler, job);
}

void job_finish(struct scheduler *scheduler, struct job *job, const struct outcome *outcome)
{
    const struct done_mark mark = done_mark_of(job, outcome->status);

    output_result(scheduler, job, outcome);
    output_done_mark(scheduler, &mark);
    done_mark_put(scheduler, &job->id, job->payload->body_hash, scheduler->now_ms);
    scheduler->results_total[outcome->status]++;
    if (outcome->status == RESULT_COMPLETED) {
        scheduler->work.finished_tokens += job->tokens;
        scheduler->work.output_tokens += outcome->usage->output_tokens;
    }
    job_change(scheduler, job, JOB_FINISHED, NULL);
}

void job_stop(struct scheduler *scheduler, struct job *job, enum result_status status,
              const char *message)
{
    bool expired = status == RESULT_EXPIRED;
    struct outcome outcome = {
        .status = status,
        .failure = {.code = str_from(expired ? "batch_expired" : "batch_cancelled"),
                    .message = str_from(message)},
    };

    if (job->state == JOB_RUNNING)
        output_cancel(scheduler, job->attempt->run, &job->id, job->attempt->number);
    job_finish(scheduler, job, &outcome);
}

static void batch_key(struct str tenant, struct str batch_id, uint8_t key[16])
{
    struct str parts[] = {tenant, batch_id};

    name_key(parts, 2, key);
}

struct job_batch *batch_open(struct scheduler *scheduler, struct str tenant, struct str batch_id)
{
    uint8_t key[16];
    union idmap_value *value;
    struct job_batch *batch;

    batch_key(tenant, batch_id, key);
    value = idmap_put(scheduler->batches, key, NULL);
    if (value->pointer)
        return value->pointer;
    batch = calloc(1, sizeof *batch);
    CHECK(batch);
    memcpy(batch->key, key, sizeof key);
    batch->tenant = str_copy(tenant);
    batch->batch_id = str_copy(batch_id);
    value->pointer = batch;
    return batch;
}

void batch_release(struct scheduler *scheduler, struct job_batch *batch)
{
    if (!batch || --batch->refs > 0 || batch->cancelled)
        return;
    idmap_remove(scheduler->batches, batch->key, NULL);
    free((void *)batch->tenant.data);
    free((void *)batch->batch_id.data);
    free(batch);
}

static uint32_t hash_start(const uint8_t *hash)
{
    uint32_t start;

    memcpy(&start, hash, sizeof start);
    return start;
}

void done_mark_put(struct scheduler *scheduler, const struct request_id *id, const uint8_t *hash,
                   int64_t finished_ms)
{
    uint64_t start = hash ? hash_start(hash) : 0;

    idmap_put(scheduler->done_marks, id->bytes, NULL)->number =
        start << 32 | (uint32_t)(finished_ms / 1000);
}

bool done_mark_agrees(union idmap_value mark, const uint8_t *hash)
{
    uint32_t start = (uint32_t)(mark.number >> 32);

    return start == 0 || start == hash_start(hash);
}
