/* SPDX-License-Identifier: Apache-2.0
 *
 * task - one attempt at a request, from its Assignment to its last message; and
 * report - what the model thread says about it.
 *
 * A task belongs to the Kafka thread, which counts references: one for the
 * table of held tasks, one while the model thread works on it, one for each
 * message under way. The model thread reads record and prompt, which are
 * constant, and owns the answer until it gives its outcome in a report.
 */
#ifndef WORKER_SHELL_TASK_H
#define WORKER_SHELL_TASK_H

#include "schemas/codec.h"
#include "worker/answer.h"
#include "worker/prompt.h"

enum report_type {
    REPORT_PROGRESS, /* more ids */
    REPORT_DONE,     /* the outcome: task->answer is whole */
    REPORT_FAILED,   /* the outcome: failure_* say why */
    REPORT_RELEASED, /* the outcome: stopped unfinished because we were told to */
};

/* One allocation, for free(); a successful push gives it to the other thread. */
struct report {
    enum report_type type;
    struct task *task;
    struct report *next; /* Kafka thread: in task->chunks */

    /* Ids that no earlier report had. */
    uint32_t progress_first;
    struct i32_array progress;

    struct i32_array profile; /* of experts; DONE, and the first PROGRESS (engine_profile) */

    /* Ids whose text is final and that no earlier report had; empty if nobody streams. */
    uint32_t chunk_first;
    struct i32_array chunk;
    struct i32_array chunk_ends; /* bytes from the start of chunk_text */
    struct str chunk_text;
    uint32_t chunk_needs; /* Kafka thread: Progress messages to be acknowledged before it */

    /* Outcomes only. */
    struct token_usage usage;
    enum finish_reason finish_reason;
    enum failure_kind failure_kind;
    const char *failure_code;  /* static */
    const char *failure_param; /* static */
    char failure_message[240];
};

struct task {
    uint64_t tag;          /* unique within the process */
    struct record *record; /* its Assignment, owned */
    struct prompt *prompt; /* owned; NULL: the request was refused */
    int64_t intake_us;
    struct answer *answer; /* owned */

    /* Kafka thread only. */
    uint32_t refs;
    bool held;     /* in the table; when not, nothing is published about it any more */
    bool in_model; /* given to the runner, its outcome not taken yet */
    uint32_t progress_sent, progress_acked; /* messages */
    uint32_t chunks_unacked;
    struct report *chunks, *chunks_last; /* waiting for acknowledgement or lease */
    struct report *outcome; /* waiting for the chunks before it; may be the last of chunks */
    bool dirty;             /* in the publisher's list */
    struct task *dirty_next;
};

/* Takes the record, an Assignment. One reference. */
struct task *task_new(uint64_t tag, struct record *record, int64_t intake_us);
struct task *task_ref(struct task *task);
void task_unref(struct task *task);
const struct assignment *task_assignment(const struct task *task);

/* A report without ids or text. */
struct report *report_new(enum report_type type, struct task *task);

/* A REPORT_FAILED; message is cut to what fits. code and param are static. */
struct report *report_failed(struct task *task, enum failure_kind kind, const char *code,
                             const char *param, const char *message);

#endif
