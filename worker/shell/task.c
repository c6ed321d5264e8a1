/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/shell/task.h"

#include "common/check.h"

#include <stdio.h>
#include <stdlib.h>

struct task *task_new(uint64_t tag, struct record *record, int64_t intake_us)
{
    struct task *task = calloc(1, sizeof *task);

    CHECK(task != NULL);
    CHECK(record->type == RECORD_ASSIGNMENT);
    task->tag = tag;
    task->record = record;
    task->intake_us = intake_us;
    task->refs = 1;
    return task;
}

struct task *task_ref(struct task *task)
{
    CHECK(task->refs > 0);
    task->refs++;
    return task;
}

void task_unref(struct task *task)
{
    CHECK(task->refs > 0);
    if (--task->refs > 0)
        return;
    while (task->chunks != NULL) {
        struct report *report = task->chunks;

        task->chunks = report->next;
        if (report != task->outcome)
            free(report);
    }
    free(task->outcome);
    answer_close(task->answer);
    prompt_close(task->prompt);
    record_free(task->record);
    free(task);
}

const struct assignment *task_assignment(const struct task *task)
{
    return &task->record->u.assignment;
}

struct report *report_new(enum report_type type, struct task *task)
{
    struct report *report = calloc(1, sizeof *report);

    CHECK(report != NULL);
    report->type = type;
    report->task = task;
    return report;
}

struct report *report_failed(struct task *task, enum failure_kind kind, const char *code,
                             const char *param, const char *message)
{
    struct report *report = report_new(REPORT_FAILED, task);

    report->failure_kind = kind;
    report->failure_code = code;
    report->failure_param = param;
    snprintf(report->failure_message, sizeof report->failure_message, "%s", message);
    return report;
}
