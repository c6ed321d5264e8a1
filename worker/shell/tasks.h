/* SPDX-License-Identifier: Apache-2.0
 *
 * tasks - the table of held tasks: every request that the scheduler counts as
 * ours, until our last message about it is sent. Belongs to the Kafka thread.
 */
#ifndef WORKER_SHELL_TASKS_H
#define WORKER_SHELL_TASKS_H

#include "common/idmap.h"
#include "worker/shell/task.h"

struct tasks {
    struct idmap *held;      /* by request_id */
    struct running *running; /* (capacity) for tasks_running() */
    size_t capacity;
};

void tasks_open(struct tasks *tasks, size_t capacity);
void tasks_close(struct tasks *tasks); /* drops what is left */

size_t tasks_count(const struct tasks *tasks);
struct task *tasks_find(const struct tasks *tasks, const struct request_id *id); /* or NULL */
/* The table takes the caller's reference. At most capacity tasks, one for each request. */
void tasks_add(struct tasks *tasks, struct task *task);
/* Not held any more: nothing is published about it from now on. May free the task. */
void tasks_drop(struct tasks *tasks, struct task *task);
void tasks_drop_all(struct tasks *tasks);

/* For a Heartbeat; valid until the next call. */
const struct running *tasks_running(struct tasks *tasks, size_t *count);

#endif
