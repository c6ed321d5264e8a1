/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/shell/publisher.h"

#include "common/check.h"
#include "common/log.h"

#include <stdio.h>
#include <stdlib.h>

static void mark_dirty(struct publisher *publisher, struct task *task)
{
    if (task->dirty)
        return;
    task->dirty = true;
    task->dirty_next = NULL;
    if (publisher->dirty == NULL)
        publisher->dirty = task;
    else
        publisher->dirty_last->dirty_next = task;
    publisher->dirty_last = task;
    task_ref(task);
}

static struct task *take_dirty(struct publisher *publisher)
{
    struct task *task = publisher->dirty;

    if (task != NULL) {
        publisher->dirty = task->dirty_next;
        task->dirty = false;
    }
    return task;
}

/* ---- records ---- */

static bool send_progress(struct publisher *publisher, const struct report *report, struct err *err)
{
    struct task *task = report->task;
    const struct assignment *assignment = task_assignment(task);
    struct record record = {
        .type = RECORD_PROGRESS,
        .u.progress = {.slot = publisher->slot,
                       .incarnation = publisher->incarnation,
                       .request_id = assignment->request.request_id,
                       .attempt = assignment->attempt,
                       .first_index = report->progress_first,
                       .ids = report->progress,
                       .profile = report->profile},
    };

    task_ref(task);
    if (!link_event(publisher->link, &record, task, err)) {
        task_unref(task);
        return false;
    }
    task->progress_sent++;
    return true;
}

static bool send_chunk(struct publisher *publisher, const struct report *report, struct err *err)
{
    struct task *task = report->task;
    const struct assignment *assignment = task_assignment(task);
    struct token_chunk chunk = {
        .request_id = assignment->request.request_id,
        .batch_id = assignment->request.batch_id,
        .custom_id = assignment->request.custom_id,
        .attempt = assignment->attempt,
        .first_index = report->chunk_first,
        .ids = report->chunk,
        .text = report->chunk_text,
        .text_ends = report->chunk_ends,
    };

    task_ref(task);
    if (!link_chunk(publisher->link, &chunk, task, err)) {
        task_unref(task);
        return false;
    }
    task->chunks_unacked++;
    publisher->chunks++;
    return true;
}

static bool send_failed(struct publisher *publisher, const struct report *report, struct err *err)
{
    const struct assignment *assignment = task_assignment(report->task);
    struct record record = {
        .type = RECORD_FAILED,
        .u.failed = {.slot = publisher->slot,
                     .incarnation = publisher->incarnation,
                     .request_id = assignment->request.request_id,
                     .attempt = assignment->attempt,
                     .kind = report->failure_kind,
                     .failure = {.code = str_from(report->failure_code),
                                 .message = str_from(report->failure_message),
                                 .param = str_from(report->failure_param)},
                     .usage = report->usage},
    };

    publisher->failed++;
    return link_event(publisher->link, &record, NULL, err);
}

static bool send_done(struct publisher *publisher, const struct report *report, struct err *err)
{
    const struct assignment *assignment = task_assignment(report->task);
    const struct answer_view view = answer_view(report->task->answer);
    struct record record = {
        .type = RECORD_DONE,
        .u.done = {.slot = publisher->slot,
                   .incarnation = publisher->incarnation,
                   .request_id = assignment->request.request_id,
                   .attempt = assignment->attempt,
                   .text = {view.text, view.size},
                   .ids = {view.ids, view.count},
                   .finish_reason = report->finish_reason,
                   .usage = report->usage,
                   .profile = report->profile},
    };

    publisher->done++;
    return link_event(publisher->link, &record, NULL, err);
}

static bool send_yield(struct publisher *publisher, const struct report *report, struct err *err)
{
    const struct assignment *assignment = task_assignment(report->task);
    struct record record = {
        .type = RECORD_YIELD,
        .u.yield = {.slot = publisher->slot,
                    .incarnation = publisher->incarnation,
                    .request_id = assignment->request.request_id,
                    .attempt = assignment->attempt,
                    .reason = str_from("the worker stops")},
    };

    publisher->yielded++;
    return link_event(publisher->link, &record, NULL, err);
}

/* ---- what may be sent when ---- */

/* An answer that no message can hold is the request's failure, not the worker's. */
static bool too_large(struct publisher *publisher, struct task *task, struct err *err)
{
    char message[sizeof err->message];
    struct report *report;
    bool ok;

    if (err->kind != ERR_REJECT)
        return false;
    snprintf(message, sizeof message, "the answer is too large to be sent: %.150s", err->message);
    report = report_failed(task, FAILURE_REJECT, "result_too_large", "", message);
    if (task->outcome != NULL)
        report->usage = task->outcome->usage;
    ok = send_failed(publisher, report, err);
    free(report);
    tasks_drop(publisher->tasks, task);
    return ok;
}

static bool send_outcome(struct publisher *publisher, const struct report *outcome, struct err *err)
{
    switch (outcome->type) {
    case REPORT_DONE:
        return send_done(publisher, outcome, err);
    case REPORT_FAILED:
        return send_failed(publisher, outcome, err);
    case REPORT_RELEASED:
        return send_yield(publisher, outcome, err);
    case REPORT_PROGRESS:
        break;
    }
    CHECK(!"an outcome");
    return false;
}

static bool pump_task(struct publisher *publisher, struct task *task, struct err *err)
{
    while (task->held && task->chunks != NULL &&
           task->chunks->chunk_needs <= task->progress_acked) {
        struct report *report = task->chunks;

        if (!send_chunk(publisher, report, err))
            return too_large(publisher, task, err);
        task->chunks = report->next;
        if (report != task->outcome)
            free(report);
    }
    if (!task->held || task->outcome == NULL || task->chunks != NULL || task->chunks_unacked > 0)
        return true;
    if (!send_outcome(publisher, task->outcome, err))
        return too_large(publisher, task, err);
    tasks_drop(publisher->tasks, task);
    return true;
}

bool publisher_pump(struct publisher *publisher, struct err *err)
{
    struct task *task;

    while ((task = take_dirty(publisher)) != NULL) {
        bool ok = pump_task(publisher, task, err);

        task_unref(task);
        if (!ok)
            return false;
    }
    return true;
}

static void keep(struct task *task, struct report *report)
{
    bool outcome = report->type != REPORT_PROGRESS;
    bool chunk = report->chunk.count > 0;

    if (outcome)
        task->outcome = report;
    if (chunk) {
        report->chunk_needs = task->progress_sent;
        report->next = NULL;
        if (task->chunks == NULL)
            task->chunks = report;
        else
            task->chunks_last->next = report;
        task->chunks_last = report;
    }
    if (!outcome && !chunk)
        free(report);
}

bool publisher_report(struct publisher *publisher, struct report *report, struct err *err)
{
    struct task *task = report->task;
    bool outcome = report->type != REPORT_PROGRESS;
    bool ok = true;

    if (!task->held) {
        free(report);
    } else if (report->progress.count > 0 && !send_progress(publisher, report, err)) {
        free(report);
        ok = too_large(publisher, task, err);
    } else {
        keep(task, report);
        mark_dirty(publisher, task);
    }
    if (outcome)
        task_unref(task);
    return ok;
}

void publisher_reset(struct publisher *publisher)
{
    struct task *task;

    while ((task = take_dirty(publisher)) != NULL) {
        CHECK(!task->held);
        task_unref(task);
    }
    publisher->broken = false;
}

void publisher_delivered(struct publisher *publisher, struct task *task, bool chunk,
                         const char *error)
{
    if (error != NULL && task->held) {
        LOG_WARN("message_lost", "topic=%s error=%s", chunk ? "tokens" : "worker-events", error);
        publisher->broken = true;
    }
    if (chunk)
        task->chunks_unacked--;
    else
        task->progress_acked++;
    if (task->held)
        mark_dirty(publisher, task);
    task_unref(task);
}
