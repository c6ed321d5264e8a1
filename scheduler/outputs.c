/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "scheduler/core.h"
#include "schemas/codec.h"

struct record *output_record(struct scheduler *scheduler, enum record_type type)
{
    struct record *record = arena_zalloc(&scheduler->arena, 1, sizeof *record);

    record->type = type;
    return record;
}

struct str output_copy(struct scheduler *scheduler, struct str from)
{
    return (struct str){arena_strndup(&scheduler->arena, from.data, from.size), from.size};
}

struct str output_format(struct scheduler *scheduler, const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return output_copy(scheduler, str_from(text));
}

static struct i32_array copy_ids(struct scheduler *scheduler, const int32_t *items, size_t count)
{
    int32_t *copy;

    if (count == 0)
        return (struct i32_array){0};
    copy = arena_alloc(&scheduler->arena, count * sizeof *copy);
    memcpy(copy, items, count * sizeof *copy);
    return (struct i32_array){copy, count};
}

struct action *output_action(struct scheduler *scheduler, enum action_type type)
{
    struct actions *actions = scheduler->actions;

    if (actions->count == actions->capacity) {
        size_t capacity = actions->capacity ? actions->capacity * 2 : 64;
        struct action *items = realloc(actions->items, capacity * sizeof *items);
        CHECK(items);
        actions->items = items;
        actions->capacity = capacity;
    }
    actions->items[actions->count] = (struct action){.type = type, .partition = -1};
    return &actions->items[actions->count++];
}

static void send(struct scheduler *scheduler, enum topic topic, int32_t partition,
                 const struct request_id *id, const struct record *record)
{
    struct action *action = output_action(scheduler, ACTION_SEND);

    action->topic = topic;
    action->partition = partition;
    if (id)
        action->id = *id;
    action->record = record;
    scheduler->tick_due = true;
}

struct request output_request(const struct job *job)
{
    const struct payload *payload = job->payload;
    struct request request = {
        .request_id = job->id,
        .tenant = job->batch->tenant,
        .batch_id = job->batch->batch_id,
        .custom_id = job_custom_id(job),
        .service_class = (enum service_class)job->service_class,
        .endpoint = (enum endpoint)job->endpoint,
        .model = job->model->name,
        .body = job_body(job),
        .line = payload->line,
        .submitted_ms = payload->submitted_ms,
        .deadline_ms = job->deadline_ms,
        .stream = (enum stream_mode)job->stream,
    };

    memcpy(request.body_hash, payload->body_hash, sizeof request.body_hash);
    return request;
}

struct usage usage_of_result(const struct result *result)
{
    return (struct usage){
        .request_id = result->request_id,
        .admitted_ms = result->admitted_ms,
        .tenant = result->tenant,
        .model = result->model,
        .revision = result->revision,
        .batch_id = result->batch_id,
        .custom_id = result->custom_id,
        .service_class = result->service_class,
        .status = result->status,
        .attempt = result->attempt,
        .usage = result->usage,
        .precision = result->precision,
        .slot = result->slot,
        .hardware = result->hardware,
        .finished_ms = result->finished_ms,
    };
}

void output_usage(struct scheduler *scheduler, const struct usage *usage)
{
    struct record *record = output_record(scheduler, RECORD_USAGE);

    record->u.usage = *usage;
    send(scheduler, TOPIC_USAGE, -1, &usage->request_id, record);
}

/* What the outcome or the accepted prefix says. The core has ids only, no tokenizer: an unfinished
 * answer has no text. */
static void fill_answer(struct scheduler *scheduler, struct result *result, const struct job *job,
                        const struct outcome *outcome)
{
    const struct attempt *attempt = job->attempt;

    if (outcome->done) {
        result->text = output_copy(scheduler, outcome->done->text);
        result->ids = copy_ids(scheduler, outcome->done->ids.items, outcome->done->ids.count);
        result->finish_reason = outcome->done->finish_reason;
        result->usage = outcome->done->usage;
    } else if (outcome->usage) {
        result->usage = *outcome->usage;
    } else if (attempt) {
        result->ids = copy_ids(scheduler, attempt->prefix, attempt->prefix_count);
        result->usage.output_tokens = (uint32_t)attempt->prefix_count;
    }
}

/* Job and batch outlive the tick, the run may not: its strings are copied. */
static void fill_run(struct scheduler *scheduler, struct result *result, const struct run *run)
{
    if (result->model.size == 0)
        result->model = output_copy(scheduler, run->hello.model);
    result->slot = run->hello.slot;
    result->revision = output_copy(scheduler, run->hello.revision);
    result->hardware = output_copy(scheduler, run->hello.hardware);
    result->precision = output_copy(scheduler, run->hello.precision);
}

void output_result(struct scheduler *scheduler, const struct job *job,
                   const struct outcome *outcome)
{
    struct record *record = output_record(scheduler, RECORD_RESULT);
    struct result *result = &record->u.result;
    struct usage usage;

    *result = (struct result){
        .request_id = job->id,
        .tenant = job->batch->tenant,
        .batch_id = job->batch->batch_id,
        .custom_id = job_custom_id(job),
        .service_class = (enum service_class)job->service_class,
        .endpoint = (enum endpoint)job->endpoint,
        .model = output_copy(scheduler, job->model->name),
        .status = outcome->status,
        .attempt = job->attempt ? job->attempt->number : 0,
        .admitted_ms = job->admitted_ms,
        .finished_ms = scheduler->now_ms,
    };
    result->failure.code = output_copy(scheduler, outcome->failure.code);
    result->failure.message = output_copy(scheduler, outcome->failure.message);
    result->failure.param = output_copy(scheduler, outcome->failure.param);
    fill_answer(scheduler, result, job, outcome);
    if (job->attempt && job->attempt->run)
        fill_run(scheduler, result, job->attempt->run);
    send(scheduler, TOPIC_RESULTS, -1, &job->id, record);
    usage = usage_of_result(result);
    output_usage(scheduler, &usage);
}

struct done_mark done_mark_of(const struct job *job, enum result_status status)
{
    struct done_mark mark = {
        .request_id = job->id,
        .status = status,
        .service_class = (enum service_class)job->service_class,
        .partition = job->partition,
        .offset = job->offset,
        .attempt = job->attempt ? job->attempt->number : 0,
        .crashes = job->attempt ? job->attempt->crashes : 0,
        .admitted_ms = job->admitted_ms,
    };

    if (job->payload)
        memcpy(mark.body_hash, job->payload->body_hash, sizeof mark.body_hash);
    return mark;
}

void output_done_mark(struct scheduler *scheduler, const struct done_mark *mark)
{
    struct record *record = output_record(scheduler, RECORD_DONE_MARK);

    record->u.done_mark = *mark;
    record->u.done_mark.finished_ms = scheduler->now_ms;
    record->u.done_mark.tick = scheduler->tick_number + 1;
    record->u.done_mark.uncertain = torn_uncertain(scheduler);
    send(scheduler, TOPIC_STATE, -1, &mark->request_id, record);
}

void output_in_flight(struct scheduler *scheduler, const struct job *job)
{
    struct record *record = output_record(scheduler, RECORD_IN_FLIGHT);
    const struct attempt *attempt = job->attempt;
    const char *topic = topic_specs[request_topic(job->service_class)].name;

    record->u.in_flight = (struct in_flight){
        .request_id = job->id,
        .topic = str_from(topic),
        .partition = job->partition,
        .offset = job->offset,
        .attempt = attempt->number,
        .crashes = attempt->crashes,
        .events_offset = attempt->events_offset,
        .prefix = copy_ids(scheduler, attempt->prefix, attempt->prefix_count),
        .admitted_ms = job->admitted_ms,
        .first_assigned_ms = attempt->first_assigned_ms,
    };
    /* Slot 0 and incarnation 0 where it waits for its next attempt. */
    if (attempt->run) {
        record->u.in_flight.slot = attempt->run->hello.slot;
        record->u.in_flight.incarnation = attempt->run->hello.incarnation;
    }
    send(scheduler, TOPIC_STATE, -1, &job->id, record);
}

void output_assignment(struct scheduler *scheduler, const struct job *job)
{
    struct record *record = output_record(scheduler, RECORD_ASSIGNMENT);
    const struct attempt *attempt = job->attempt;
    const struct run *run = attempt->run;

    record->u.assignment = (struct assignment){
        .epoch = scheduler->epoch,
        .incarnation = run->hello.incarnation,
        .attempt = attempt->number,
        .admitted_ms = job->admitted_ms,
        .stream = job->stream == STREAM_ON ||
                  (job->stream == STREAM_AUTO && job->service_class == CLASS_INTERACTIVE),
        .prefix = copy_ids(scheduler, attempt->prefix, attempt->prefix_count),
        .request = output_request(job),
    };
    send(scheduler, TOPIC_ASSIGNMENTS, (int32_t)run->hello.slot, &job->id, record);
}

void output_cancel(struct scheduler *scheduler, const struct run *run, const struct request_id *id,
                   uint32_t attempt)
{
    struct record *record = output_record(scheduler, RECORD_CANCEL);

    record->u.cancel = (struct cancel){
        .epoch = scheduler->epoch,
        .incarnation = run->hello.incarnation,
        .request_id = *id,
        .attempt = attempt,
    };
    send(scheduler, TOPIC_ASSIGNMENTS, (int32_t)run->hello.slot, id, record);
}

void output_renewal(struct scheduler *scheduler, const struct run *run)
{
    struct record *record = output_record(scheduler, RECORD_LEASE_RENEWAL);

    record->u.lease_renewal = (struct lease_renewal){
        .epoch = scheduler->epoch,
        .incarnation = run->hello.incarnation,
        .heartbeat_seq = run->heartbeat_seq,
        .batch_size = run->batch_limit,
        .micro_batch_size = scheduler->config.micro_batch_size,
    };
    send(scheduler, TOPIC_ASSIGNMENTS, (int32_t)run->hello.slot, NULL, record);
}

void output_worker_mark(struct scheduler *scheduler, const struct run *run)
{
    struct record *record = output_record(scheduler, RECORD_WORKER_MARK);
    struct hello *hello = &record->u.worker_mark.hello;

    *hello = run->hello;
    hello->model = output_copy(scheduler, hello->model);
    hello->revision = output_copy(scheduler, hello->revision);
    hello->numerics_id = output_copy(scheduler, hello->numerics_id);
    hello->hardware = output_copy(scheduler, hello->hardware);
    hello->precision = output_copy(scheduler, hello->precision);
    record->u.worker_mark.worker_time_to_ms = run->worker_time_to_ms;
    send(scheduler, TOPIC_STATE, -1, NULL, record);
}

void output_worker_time(struct scheduler *scheduler, const struct run *run)
{
    struct record *record = output_record(scheduler, RECORD_WORKER_TIME);

    record->u.worker_time = (struct worker_time){
        .slot = run->hello.slot,
        .incarnation = run->hello.incarnation,
        .hardware = output_copy(scheduler, run->hello.hardware),
        .from_ms = run->worker_time_to_ms,
        .to_ms = run->heartbeat_sent_ms,
    };
    send(scheduler, TOPIC_USAGE, -1, NULL, record);
}

void output_dead_letter(struct scheduler *scheduler, const struct request *request,
                        struct position origin, struct str reason)
{
    struct action *action = output_action(scheduler, ACTION_DEAD_LETTER);
    struct record *record = output_record(scheduler, RECORD_REQUEST);

    record->u.request = *request;
    action->topic = TOPIC_DEAD_LETTERS;
    action->id = request->request_id;
    action->record = record;
    action->position = origin;
    action->reason = output_copy(scheduler, reason);
    scheduler->dead_letters_total++;
    scheduler->tick_due = true;
}

static size_t add_position(struct partition_offset *positions, size_t count, enum topic topic,
                           int32_t partition, int64_t offset)
{
    if (offset < 0)
        return count;
    positions[count] = (struct partition_offset){
        .topic = str_from(topic_specs[topic].name),
        .partition = partition,
        .offset = offset,
    };
    return count + 1;
}

void output_tick(struct scheduler *scheduler)
{
    const struct scheduler_config *config = &scheduler->config;
    struct record *record = output_record(scheduler, RECORD_TICK);
    size_t inputs = config->request_partitions[CLASS_INTERACTIVE] +
                    config->request_partitions[CLASS_BULK] + config->slots + 1;
    struct partition_offset *next = arena_zalloc(&scheduler->arena, inputs, sizeof *next);
    struct partition_offset *ends =
        arena_zalloc(&scheduler->arena, scheduler->outputs_count + 1, sizeof *ends);
    size_t next_count = 0, ends_count = 0;

    for (int kind = 0; kind < CLASS_COUNT; kind++)
        for (uint32_t i = 0; i < config->request_partitions[kind]; i++)
            next_count = add_position(next, next_count, request_topic(kind), (int32_t)i,
                                      partition_next_offset(&scheduler->partitions[kind][i]));
    for (uint32_t i = 0; i < config->slots; i++)
        next_count = add_position(next, next_count, TOPIC_WORKER_EVENTS, (int32_t)i,
                                  slot_next_offset(&scheduler->slots[i]));
    next_count = add_position(next, next_count, TOPIC_CONTROL, 0, scheduler->control_read);
    for (size_t i = 0; i < scheduler->outputs_count; i++)
        ends_count = add_position(ends, ends_count, scheduler->outputs[i].topic,
                                  scheduler->outputs[i].partition, scheduler->outputs[i].certain);

    record->u.tick = (struct tick){
        .epoch = scheduler->epoch,
        .seq = ++scheduler->seq,
        .committed_ms = scheduler->now_ms,
        .next_input = next,
        .next_input_count = next_count,
        .outputs = ends,
        .outputs_count = ends_count,
        .number = scheduler->tick_number + 1,
        .uncertain = torn_uncertain(scheduler),
    };
    scheduler->tick_number++;
    send(scheduler, TOPIC_STATE, -1, NULL, record);
}
