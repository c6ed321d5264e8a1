/* SPDX-License-Identifier: Apache-2.0
 *
 * runner - the thread that owns the model: tasks in, reports out.
 *
 * It steps the engine as long as the lease lasts, makes text of ids, looks for
 * stop strings, and reports coalesced: streamed answers after a few tokens or a
 * tenth of a second, others seldom, only so that a lost worker's successor need
 * not start anew.
 *
 * All functions but runner_wake() belong to the Kafka thread.
 */
#ifndef WORKER_SHELL_RUNNER_H
#define WORKER_SHELL_RUNNER_H

#include "common/err.h"
#include "worker/engine.h"
#include "worker/shell/board.h"
#include "worker/shell/task.h"

struct runner_options {
    struct engine *engine;    /* the runner's until runner_close() */
    const struct text *text;  /* must outlive the runner */
    uint32_t tasks_max;       /* held at once; the bound of every queue in here */
    uint32_t engine_max;      /* of them, given to the engine: its max_seqs + max_waiting */
    uint32_t stream_tokens;   /* a streamed answer is reported after so many */
    int64_t stream_us;        /* or after this time */
    uint32_t progress_tokens; /* the same for answers that nobody streams */
    int64_t progress_us;
    bool prefix_shared; /* tenants may share KV pages (engine_request.salt) */
};

struct runner;

bool runner_open(struct runner **runner, const struct runner_options *options, struct err *err);
/* Stops the thread. Tasks that it still had are not reported. */
void runner_close(struct runner *runner);

/* The task is the runner's, by a reference of the caller's, until its outcome is taken. At most
 * tasks_max at once, with rising tags. */
void runner_submit(struct runner *runner, struct task *task);
/* Stop one task: its outcome is REPORT_RELEASED, unless it ended before. At most once a task. */
void runner_release(struct runner *runner, uint64_t tag);
/* The same for all tasks. */
void runner_release_all(struct runner *runner);

void runner_lease(struct runner *runner, int64_t until_us); /* monotonic: no step begins after it */
/* Sequences of a step, and of a micro-batch where steps overlap (0: the engine's own choice). */
void runner_sizes(struct runner *runner, uint32_t batch_size, uint32_t micro_batch_size);

/* The next report, for free(), or NULL. */
struct report *runner_take(struct runner *runner);
/* Waits for a report or runner_wake(). */
void runner_wait(struct runner *runner, int64_t timeout_ms);
void runner_wake(struct runner *runner); /* any thread */

/* board_read() and board_healthy() of its board. */
void runner_stats(struct runner *runner, struct board_stats *stats);
/* False: the engine failed; nothing is stepped any more. */
bool runner_healthy(struct runner *runner, struct err *err);

#endif
