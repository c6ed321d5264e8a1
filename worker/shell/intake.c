/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/shell/intake.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"

/* Who sent the command, and to whom. False: it is no command. */
static bool addressed(const struct record *record, int64_t *epoch,
                      const struct request_id **incarnation)
{
    switch (record->type) {
    case RECORD_ASSIGNMENT:
        *epoch = record->u.assignment.epoch;
        *incarnation = &record->u.assignment.incarnation;
        return true;
    case RECORD_LEASE_RENEWAL:
        *epoch = record->u.lease_renewal.epoch;
        *incarnation = &record->u.lease_renewal.incarnation;
        return true;
    case RECORD_CANCEL:
        *epoch = record->u.cancel.epoch;
        *incarnation = &record->u.cancel.incarnation;
        return true;
    default:
        return false;
    }
}

static void renew(struct session *session, const struct lease_renewal *renewal)
{
    if (lease_renew(&session->lease, renewal->heartbeat_seq))
        runner_lease(session->options.runner, session->lease.until_us);
    runner_sizes(session->options.runner, renewal->batch_size, renewal->micro_batch_size);
}

/* The scheduler has taken the request back: nothing more is said about it. */
static void stop(struct session *session, struct task *task)
{
    if (task->in_model)
        runner_release(session->options.runner, task->tag);
    else if (session->drain_until_us > 0 && task->outcome == NULL)
        session->parked--;
    tasks_drop(&session->tasks, task);
}

static bool refuse(struct session *session, struct task *task, enum failure_kind kind,
                   const struct prompt_fault *fault, const char *message, struct err *err)
{
    const struct request *request = &task_assignment(task)->request;
    char id[REQUEST_ID_TEXT_SIZE + 1];

    request_id_format(&request->request_id, id);
    /* A file of many requests may be refused line by line: the results say it, and the metrics. */
    LOG_DEBUG("refused", "request=%s code=%s param=%s error=%s", id, fault->code, fault->param,
              message);
    return publisher_report(&session->publisher,
                            report_failed(task_ref(task), kind, fault->code, fault->param, message),
                            err);
}

static bool prepare(struct session *session, struct task *task, struct prompt_fault *fault,
                    struct err *err)
{
    const struct session_options *options = &session->options;
    const struct assignment *assignment = task_assignment(task);
    const struct request *request = &assignment->request;
    struct prompt_source source = {
        .text = options->text,
        .endpoint = request->endpoint,
        .body = request->body,
        .request_id = request->request_id,
        .now_s = assignment->admitted_ms / 1000,
        .max_context = options->info.max_context,
        .vocab_size = options->info.vocab_size,
    };

    if (request->model.size > 0 && !str_equal(request->model, str_from(options->model_name))) {
        *fault = (struct prompt_fault){"model_not_found", "model"};
        return err_set(err, ERR_REJECT, "model \"%.*s\" is not served here; \"%s\" is",
                       (int)(request->model.size < 100 ? request->model.size : 100),
                       request->model.data, options->model_name);
    }
    return prompt_open(&task->prompt, &source, fault, err);
}

static bool assign(struct session *session, struct record *record, struct err *err)
{
    const struct assignment *assignment = &record->u.assignment;
    struct task *task = tasks_find(&session->tasks, &assignment->request.request_id);
    struct prompt_fault fault = {"server_error", ""};
    struct err why;

    if (task != NULL && task_assignment(task)->attempt >= assignment->attempt) {
        record_free(record); /* said again by a new leader */
        return true;
    }
    if (task != NULL)
        stop(session, task);
    task = task_new(++session->tags, record, clock_mono_us());
    if (tasks_count(&session->tasks) >= session->options.tasks_max ||
        session->in_model >= session->options.tasks_max) {
        task_unref(task); /* never held: the next Heartbeat tells the scheduler so */
        LOG_WARN("queue_full", "tasks=%zu", tasks_count(&session->tasks));
        return true;
    }
    tasks_add(&session->tasks, task);
    if (session->drain_until_us > 0) {
        session->parked++;
        return true;
    }
    if (!prepare(session, task, &fault, &why))
        return refuse(session, task, FAILURE_REJECT, &fault, why.message, err);
    task->in_model = true;
    session->in_model++;
    runner_submit(session->options.runner, task_ref(task));
    return true;
}

static void cancel(struct session *session, const struct cancel *cancelled)
{
    struct task *task = tasks_find(&session->tasks, &cancelled->request_id);

    if (task != NULL && task_assignment(task)->attempt == cancelled->attempt)
        stop(session, task);
}

bool intake_command(struct session *session, struct record *record, struct err *err)
{
    const struct request_id *incarnation;
    int64_t epoch;

    if (!addressed(record, &epoch, &incarnation) || epoch < session->epoch) {
        record_free(record);
        return true;
    }
    /* Whoever it is for: a leader that spoke to this slot's former worker is the newest all the
     * same, and what an older one still sends must not count. */
    session->epoch = epoch;
    if (!request_id_equal(incarnation, &session->incarnation)) {
        record_free(record);
        return true;
    }
    if (record->type == RECORD_ASSIGNMENT)
        return assign(session, record, err);
    if (record->type == RECORD_LEASE_RENEWAL)
        renew(session, &record->u.lease_renewal);
    else
        cancel(session, &record->u.cancel);
    record_free(record);
    return true;
}
