/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/shell/tasks.h"

#include "common/check.h"

#include <stdlib.h>

static const struct request_id *id_of(const struct task *task)
{
    return &task_assignment(task)->request.request_id;
}

void tasks_open(struct tasks *tasks, size_t capacity)
{
    tasks->held = idmap_open(capacity);
    tasks->running = calloc(capacity, sizeof *tasks->running);
    tasks->capacity = capacity;
    CHECK(tasks->running != NULL);
}

void tasks_close(struct tasks *tasks)
{
    tasks_drop_all(tasks);
    idmap_close(tasks->held);
    free(tasks->running);
}

size_t tasks_count(const struct tasks *tasks)
{
    return idmap_count(tasks->held);
}

struct task *tasks_find(const struct tasks *tasks, const struct request_id *id)
{
    union idmap_value *value = idmap_get(tasks->held, id->bytes);

    return value != NULL ? value->pointer : NULL;
}

void tasks_add(struct tasks *tasks, struct task *task)
{
    union idmap_value *value;
    bool added;

    CHECK(tasks_count(tasks) < tasks->capacity);
    value = idmap_put(tasks->held, id_of(task)->bytes, &added);
    CHECK(added);
    value->pointer = task;
    task->held = true;
}

void tasks_drop(struct tasks *tasks, struct task *task)
{
    CHECK(task->held);
    CHECK(idmap_remove(tasks->held, id_of(task)->bytes, NULL));
    task->held = false;
    task_unref(task);
}

void tasks_drop_all(struct tasks *tasks)
{
    union idmap_value *value;
    size_t cursor = 0;

    while (idmap_next(tasks->held, &cursor, NULL, &value)) {
        tasks_drop(tasks, value->pointer);
        cursor = 0; /* a removal moves entries */
    }
}

const struct running *tasks_running(struct tasks *tasks, size_t *count)
{
    union idmap_value *value;
    size_t cursor = 0;

    *count = 0;
    while (idmap_next(tasks->held, &cursor, NULL, &value)) {
        const struct assignment *assignment = task_assignment(value->pointer);

        tasks->running[(*count)++] =
            (struct running){assignment->request.request_id, assignment->attempt};
    }
    return tasks->running;
}
