/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/check.h"
#include "scheduler/core.h"
#include "schemas/codec.h"

enum topic request_topic(int service_class)
{
    return service_class == CLASS_INTERACTIVE ? TOPIC_REQUESTS_INTERACTIVE : TOPIC_REQUESTS_BULK;
}

struct partition *request_partition(const struct scheduler *scheduler, enum topic topic,
                                    int32_t partition)
{
    int kind = topic == TOPIC_REQUESTS_BULK ? CLASS_BULK : CLASS_INTERACTIVE;

    if (topic != request_topic(kind) || partition < 0 ||
        (uint32_t)partition >= scheduler->config.request_partitions[kind])
        return NULL;
    return &scheduler->partitions[kind][partition];
}

int64_t partition_next_offset(const struct partition *partition)
{
    if (partition->queued.head)
        return partition->queued.head->offset;
    return partition->read > partition->stored ? partition->read : partition->stored;
}

/* False: this message was seen before and says nothing new. */
static bool advance(struct scheduler *scheduler, int64_t *read, int64_t offset)
{
    if (offset < *read)
        return false;
    *read = offset + 1;
    scheduler->positions++;
    return true;
}

static bool advance_requests(struct scheduler *scheduler, struct partition *partition,
                             const struct event *event)
{
    int64_t slack_ms = scheduler->config.dedupe_window_ms / 100;

    if (event->timestamp_ms < scheduler->restored_ms + slack_ms)
        partition->reread_ms = scheduler->now_ms;
    return advance(scheduler, &partition->read, event->position.offset);
}

static void conflict(struct scheduler *scheduler, const struct event *event)
{
    const struct request *from = &event->record->u.request;
    struct request request = *from;
    struct str reason = str_from("id_conflict: this request_id is known with another body");

    request.tenant = output_copy(scheduler, from->tenant);
    request.batch_id = output_copy(scheduler, from->batch_id);
    request.custom_id = output_copy(scheduler, from->custom_id);
    request.model = output_copy(scheduler, from->model);
    request.body = output_copy(scheduler, from->body);
    output_dead_letter(scheduler, &request, event->position, reason);
}

static void duplicate(struct scheduler *scheduler, const struct event *event, bool agrees)
{
    if (agrees)
        scheduler->duplicates_total++;
    else
        conflict(scheduler, event);
}

/* The request of a restored job is read again. What came for it meanwhile takes effect now. */
static void complete_restored(struct scheduler *scheduler, struct job *job,
                              struct partition *partition, const struct request *request)
{
    struct record *held = job->attempt->held;

    job_attach(scheduler, job, request);
    partition->payloads_missing--;
    if (held)
        events_outcome(scheduler, job, held);
    else if (job->state == JOB_RETURNED && job->attempt->crashes >= scheduler->config.crashes_max)
        job_give_up(scheduler, job, "its worker died");
    else if (job->batch->cancelled)
        job_stop(scheduler, job, RESULT_CANCELLED, "the batch was cancelled");
}

static void known_job(struct scheduler *scheduler, struct job *job, const struct event *event)
{
    const struct request *request = &event->record->u.request;
    const struct position *position = &event->position;
    struct partition *partition =
        request_partition(scheduler, position->topic, position->partition);
    bool own = request_topic(job->service_class) == position->topic &&
               job->partition == position->partition && job->offset == position->offset;

    if (!job->payload && own)
        complete_restored(scheduler, job, partition, request);
    else if (position->offset < partition->stored)
        return; /* an earlier leader has treated it */
    else if (job->payload)
        duplicate(scheduler, event, memcmp(job->payload->body_hash, request->body_hash, 32) == 0);
    else /* its own body is not read again yet: nothing to compare with */
        scheduler->duplicates_total++;
}

static void new_job(struct scheduler *scheduler, const struct event *event)
{
    const struct request *request = &event->record->u.request;
    const struct position *position = &event->position;
    enum service_class service_class =
        position->topic == TOPIC_REQUESTS_BULK ? CLASS_BULK : CLASS_INTERACTIVE;
    struct job *job = job_open(scheduler, &request->request_id, service_class, position->partition,
                               position->offset);

    job->admitted_ms = event->timestamp_ms;
    job_attach(scheduler, job, request);
    if (job->batch->cancelled)
        job_stop(scheduler, job, RESULT_CANCELLED, "the batch was cancelled");
    else if (job->deadline_ms && job->deadline_ms <= scheduler->now_ms)
        job_stop(scheduler, job, RESULT_EXPIRED, "the completion window is over");
    else
        job_change(scheduler, job, JOB_QUEUED, NULL);
    /* Older ones are a backlog, not traffic: a successor reads all that waits again. */
    if (job->state == JOB_QUEUED && event->timestamp_ms >= scheduler->restored_ms)
        scheduler->work.arrived_tokens += job->tokens;
}

void intake_request(struct scheduler *scheduler, const struct event *event)
{
    const struct request *request = &event->record->u.request;
    struct partition *partition =
        request_partition(scheduler, event->position.topic, event->position.partition);
    struct job *job;
    union idmap_value *mark;

    CHECK(partition);
    if (!advance_requests(scheduler, partition, event))
        return;
    job = job_find(scheduler, &request->request_id);
    mark = job ? NULL : idmap_get(scheduler->done_marks, request->request_id.bytes);
    if (job)
        known_job(scheduler, job, event);
    else if (event->position.offset < partition->stored)
        return; /* finished under an earlier leader; this is only on the way to restored jobs */
    else if (mark)
        duplicate(scheduler, event, done_mark_agrees(*mark, request->body_hash));
    else
        new_job(scheduler, event);
}

void intake_bad_request(struct scheduler *scheduler, const struct event *event)
{
    struct partition *partition =
        request_partition(scheduler, event->position.topic, event->position.partition);
    struct action *action;

    CHECK(partition);
    if (!advance_requests(scheduler, partition, event) ||
        event->position.offset < partition->stored)
        return;
    action = output_action(scheduler, ACTION_DEAD_LETTER);
    action->topic = TOPIC_DEAD_LETTERS;
    action->position = event->position;
    action->raw = output_copy(scheduler, event->raw);
    action->key = output_copy(scheduler, event->key);
    action->reason = output_copy(scheduler, event->reason);
    scheduler->dead_letters_total++;
    scheduler->tick_due = true;
}

void intake_control(struct scheduler *scheduler, const struct event *event)
{
    const struct cancel_batch *cancel = &event->record->u.cancel_batch;
    struct job_batch *batch;

    if (!advance(scheduler, &scheduler->control_read, event->position.offset))
        return;
    if (event->record->type != RECORD_CANCEL_BATCH)
        return; /* Batch and claim are for those who submit; the requests say all we need */
    batch = batch_open(scheduler, cancel->tenant, cancel->batch_id);
    batch->cancelled = true;
    if (batch->cancelling || batch->jobs.count == 0)
        return;
    batch->cancelling = true;
    batch->cancelling_next = scheduler->cancelling;
    scheduler->cancelling = batch;
}
