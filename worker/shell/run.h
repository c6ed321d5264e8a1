/* SPDX-License-Identifier: Apache-2.0
 *
 * run - the model thread's side of a task: what was reported of its answer.
 */
#ifndef WORKER_SHELL_RUN_H
#define WORKER_SHELL_RUN_H

#include "worker/engine.h"
#include "worker/shell/task.h"

struct run {
    struct task *task;
    uint64_t tag;          /* the task's */
    uint32_t reported;     /* ids in reports, the forced prefix included */
    uint32_t chunked;      /* ids in chunks */
    int64_t unreported_us; /* since when there are others; 0: there are none */
    bool in_engine;
    bool profiled;          /* a report had the expert profile */
    struct report *outcome; /* to be pushed */
};

/* A report with all ids and text that are new, and the expert profile (may be empty); NULL if there
 * are none and it is no outcome. */
struct report *run_report(struct run *run, enum report_type type, struct i32_array profile);

/* What the report holds is not reported again. */
void run_mark(struct run *run, const struct report *report);

/* Requests of one tenant may share KV pages: 128 bits of its hash. */
struct prefix_salt run_salt(const struct run *run);

struct token_usage run_usage(const struct run *run, const struct engine_usage *used);

#endif
