/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/shell/runner.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/ring.h"
#include "worker/shell/board.h"
#include "worker/shell/run.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum command_type { COMMAND_SUBMIT, COMMAND_RELEASE, COMMAND_RELEASE_ALL };

struct command {
    enum command_type type;
    struct task *task;
    uint64_t tag;
};

struct runner {
    struct runner_options options;
    struct engine_info info;
    struct ring *commands; /* struct command */
    struct ring *reports;  /* struct report */
    pthread_t thread;

    /* Relaxed: each is a single number that no other data hangs on. */
    _Atomic int64_t lease_until_us;
    _Atomic uint32_t batch_size;
    _Atomic uint32_t micro_batch_size; /* 0: the engine's own */
    _Atomic bool stop;

    /* Model thread only. */
    struct run *runs; /* (tasks_max), runs_count used, in order of arrival */
    uint32_t runs_count;
    uint32_t engine_count;
    struct engine_token *tokens; /* (max_seqs) */
    int32_t *profile;            /* (profile_count) scratch */

    struct board *board; /* both threads */
};

/* ---- model thread: reports ---- */

/* Valid until the next call. */
static struct i32_array profile_of(struct runner *runner, const struct run *run, bool wanted)
{
    if (!wanted || !run->in_engine || runner->info.profile_count == 0 ||
        !engine_profile(runner->options.engine, run->task->tag, runner->profile))
        return (struct i32_array){0};
    return (struct i32_array){runner->profile, runner->info.profile_count};
}

/* A full ring keeps the ids for the next report. */
static void report_progress(struct runner *runner, struct run *run)
{
    struct i32_array profile = profile_of(runner, run, !run->profiled);
    struct report *report = run_report(run, REPORT_PROGRESS, profile);

    if (report == NULL) {
        run->unreported_us = 0;
        return;
    }
    /* Marked first: a pushed report is the other thread's. */
    struct run before = *run;

    run_mark(run, report);
    if (!ring_push(runner->reports, report)) {
        *run = before;
        free(report);
    }
}

static bool is_due(const struct runner *runner, const struct run *run, int64_t now_us)
{
    const struct runner_options *options = &runner->options;
    bool stream = task_assignment(run->task)->stream;
    size_t count;

    if (run->unreported_us == 0 || run->outcome != NULL)
        return false;
    count = answer_view(run->task->answer).count - run->reported;
    return count >= (stream ? options->stream_tokens : options->progress_tokens) ||
           now_us - run->unreported_us >= (stream ? options->stream_us : options->progress_us);
}

/* ---- model thread: the life of a run ---- */

/* Takes the run out of the engine; its outcome is pushed by push_outcomes(). */
static void end(struct runner *runner, struct run *run, enum report_type type,
                enum finish_reason finish_reason)
{
    struct i32_array profile = profile_of(runner, run, type == REPORT_DONE);
    struct engine_usage used = {0};
    int64_t before_us = 0; /* from intake to the engine */

    if (run->in_engine) {
        CHECK(engine_remove(runner->options.engine, run->task->tag, &used));
        run->in_engine = false;
        runner->engine_count--;
        before_us = clock_mono_us() - run->task->intake_us - used.queue_us - used.run_us;
    }
    if (type == REPORT_DONE)
        answer_finish(run->task->answer);
    used.queue_us += before_us > 0 ? before_us : 0;
    run->outcome = run_report(run, type, profile);
    run->outcome->finish_reason = finish_reason;
    run->outcome->usage = run_usage(run, &used);
}

static void end_failed(struct runner *runner, struct run *run, const char *code,
                       const char *message)
{
    struct report *plain;

    end(runner, run, REPORT_FAILED, FINISH_NONE);
    plain = report_failed(run->task, FAILURE_REJECT, code, "", message);
    plain->usage = run->outcome->usage;
    free(run->outcome);
    run->outcome = plain;
}

static bool is_end_mark(const struct runner *runner, int32_t id)
{
    for (size_t i = 0; i < runner->info.eos_count; i++) {
        if (runner->info.eos_ids[i] == id)
            return true;
    }
    return false;
}

/* Say the forced prefix again. It may hold the whole answer: its worker died between the last
 * Progress and Done. */
static void replay(struct runner *runner, struct run *run)
{
    const struct prompt *prompt = run->task->prompt;
    const struct i32_array prefix = task_assignment(run->task)->prefix;
    bool stopped = false;

    for (size_t i = 0; i < prefix.count && !stopped; i++) {
        bool last =
            i + 1 == prefix.count && !prompt->ignore_eos && is_end_mark(runner, prefix.items[i]);

        stopped = answer_push(run->task->answer, prefix.items[i], last) || last;
    }
    run->reported = (uint32_t)answer_view(run->task->answer).count;
    run->unreported_us = prefix.count > 0 ? clock_mono_us() : 0;
    if (stopped)
        end(runner, run, REPORT_DONE, FINISH_STOP);
    else if (prefix.count >= prompt->max_tokens)
        end(runner, run, REPORT_DONE, FINISH_LENGTH);
}

static void submit(struct runner *runner, struct task *task)
{
    struct run *run = &runner->runs[runner->runs_count];

    CHECK(runner->runs_count < runner->options.tasks_max);
    runner->runs_count++;
    CHECK(runner->runs_count < 2 || run[-1].tag < task->tag);
    *run = (struct run){.task = task, .tag = task->tag};
    task->answer = answer_open(runner->options.text, &task->prompt->stops);
    replay(runner, run);
}

/* Give the engine what it has room for: class by class, first come first served. */
static void feed(struct runner *runner)
{
    for (uint32_t i = 0, count = runner->runs_count; i < CLASS_COUNT * count; i++) {
        struct run *run = &runner->runs[i % count];
        const struct prompt *prompt = run->task->prompt;
        const struct assignment *assignment = task_assignment(run->task);
        struct err err;

        if (run->in_engine || run->outcome || assignment->request.service_class != i / count ||
            runner->engine_count >= runner->options.engine_max)
            continue;
        struct engine_request request = {
            .tag = run->task->tag,
            .prompt = prompt->ids,
            .prompt_count = prompt->count,
            .prefix = assignment->prefix.items,
            .prefix_count = (uint32_t)assignment->prefix.count,
            .max_tokens = prompt->max_tokens,
            .ignore_eos = prompt->ignore_eos,
            .urgent = assignment->request.service_class == CLASS_INTERACTIVE,
            .salt = runner->options.prefix_shared ? (struct prefix_salt){{0}} : run_salt(run),
            .sampling = prompt->sampling,
        };
        if (engine_submit(runner->options.engine, &request, &err)) {
            run->in_engine = true;
            runner->engine_count++;
        } else if (err.kind == ERR_RETRY) {
            return;
        } else {
            end_failed(runner, run, "invalid_value", err.message);
        }
    }
}

static void release(struct runner *runner, struct run *run)
{
    if (run->outcome == NULL)
        end(runner, run, REPORT_RELEASED, FINISH_NONE);
}

/* Those that find the ring full stay for the next turn. */
static bool push_outcomes(struct runner *runner)
{
    uint32_t kept = 0;
    bool all = true;

    for (uint32_t i = 0; i < runner->runs_count; i++) {
        struct run *run = &runner->runs[i];

        if (run->outcome != NULL && ring_push(runner->reports, run->outcome))
            continue;
        all = all && run->outcome == NULL;
        runner->runs[kept++] = *run;
    }
    runner->runs_count = kept;
    return all;
}

/* runs are in order of arrival, and tags rise with it. NULL: no such run. */
static struct run *find(struct runner *runner, uint64_t tag)
{
    uint32_t low = 0, high = runner->runs_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (runner->runs[middle].tag < tag)
            low = middle + 1;
        else
            high = middle;
    }
    return low < runner->runs_count && runner->runs[low].tag == tag ? &runner->runs[low] : NULL;
}

static void take_commands(struct runner *runner)
{
    struct command *command;

    while ((command = ring_pop(runner->commands)) != NULL) {
        struct run *run = command->type == COMMAND_RELEASE ? find(runner, command->tag) : NULL;

        if (command->type == COMMAND_SUBMIT)
            submit(runner, command->task);
        if (run != NULL)
            release(runner, run);
        for (uint32_t i = 0; command->type == COMMAND_RELEASE_ALL && i < runner->runs_count; i++)
            release(runner, &runner->runs[i]);
        free(command);
    }
}

static void take_token(struct runner *runner, const struct engine_token *token, int64_t now_us)
{
    struct run *run = find(runner, token->tag);

    CHECK(run != NULL);
    if (token->finish == ENGINE_FAILED) {
        end_failed(runner, run, "server_error",
                   "the model gave no logit that is a number; this request cannot go on");
        return;
    }
    if (run->unreported_us == 0)
        run->unreported_us = now_us;
    if (answer_push(run->task->answer, token->id, token->finish == ENGINE_EOS))
        end(runner, run, REPORT_DONE, FINISH_STOP);
    else if (token->finish != ENGINE_RUNNING)
        end(runner, run, REPORT_DONE, token->finish == ENGINE_EOS ? FINISH_STOP : FINISH_LENGTH);
}

static void publish_stats(struct runner *runner)
{
    struct engine_stats stats;

    engine_stats(runner->options.engine, &stats);
    stats.waiting += runner->runs_count - runner->engine_count;
    board_publish(runner->board, &stats);
}

static bool step(struct runner *runner)
{
    struct engine *engine = runner->options.engine;
    size_t count = 0;
    struct err err;
    int64_t now_us;

    engine_batch_size(engine, atomic_load_explicit(&runner->batch_size, memory_order_relaxed));
    engine_micro_batch_size(engine,
                            atomic_load_explicit(&runner->micro_batch_size, memory_order_relaxed));
    if (!engine_step(engine, runner->tokens, &count, &err)) {
        board_fail(runner->board, &err);
        ring_wake(runner->reports);
        return false;
    }
    now_us = clock_mono_us();
    for (size_t i = 0; i < count; i++)
        take_token(runner, &runner->tokens[i], now_us);
    return true;
}

static void *run_thread(void *argument)
{
    struct runner *runner = argument;
    bool healthy = true;

    while (healthy && !atomic_load_explicit(&runner->stop, memory_order_relaxed)) {
        int64_t until_us = atomic_load_explicit(&runner->lease_until_us, memory_order_relaxed);

        take_commands(runner);
        feed(runner);
        if (engine_has_work(runner->options.engine) && clock_mono_us() < until_us) {
            healthy = step(runner);
        } else {
            publish_stats(runner);
            /* Commands, a new lease and the end wake us; an outcome that found no room does not. */
            ring_wait(runner->commands, push_outcomes(runner) ? 1000 : 5);
        }
        for (uint32_t i = 0; i < runner->runs_count; i++) {
            if (is_due(runner, &runner->runs[i], clock_mono_us()))
                report_progress(runner, &runner->runs[i]);
        }
        push_outcomes(runner);
        publish_stats(runner);
    }
    return NULL;
}

/* ---- Kafka thread ---- */

bool runner_open(struct runner **runner, const struct runner_options *options, struct err *err)
{
    struct runner *made = calloc(1, sizeof *made);
    int code;

    CHECK(made != NULL);
    made->options = *options;
    engine_info(options->engine, &made->info);
    atomic_init(&made->batch_size, made->info.max_seqs);
    atomic_init(&made->micro_batch_size, 0);
    /* A task has one SUBMIT, at most one RELEASE; RELEASE_ALL comes once a session. */
    made->commands = ring_open(2 * (size_t)options->tasks_max + 8);
    made->reports = ring_open(4 * (size_t)options->tasks_max + 64);
    made->runs = calloc(options->tasks_max, sizeof *made->runs);
    made->tokens = calloc(made->info.max_seqs, sizeof *made->tokens);
    made->board = board_open(made->info.expert_layers);
    made->profile = calloc(made->info.profile_count + 1, sizeof *made->profile);
    CHECK(made->runs != NULL);
    CHECK(made->tokens != NULL);
    CHECK(made->profile != NULL);
    code = pthread_create(&made->thread, NULL, run_thread, made);
    if (code != 0) {
        atomic_store_explicit(&made->stop, true, memory_order_relaxed);
        return err_set(err, ERR_FATAL, "the model thread cannot start: %s", strerror(code));
    }
    *runner = made;
    return true;
}

void runner_close(struct runner *runner)
{
    struct report *report;
    struct command *command;

    if (runner == NULL)
        return;
    atomic_store_explicit(&runner->stop, true, memory_order_relaxed);
    ring_wake(runner->commands);
    CHECK(pthread_join(runner->thread, NULL) == 0);
    while ((report = ring_pop(runner->reports)) != NULL)
        free(report);
    while ((command = ring_pop(runner->commands)) != NULL)
        free(command);
    for (uint32_t i = 0; i < runner->runs_count; i++)
        free(runner->runs[i].outcome);
    ring_close(runner->reports);
    ring_close(runner->commands);
    board_close(runner->board);
    free(runner->runs);
    free(runner->tokens);
    free(runner->profile);
    free(runner);
}

static void send(struct runner *runner, struct command command)
{
    struct command *copy = malloc(sizeof *copy);

    CHECK(copy != NULL);
    *copy = command;
    CHECK(ring_push(runner->commands, copy));
}

void runner_submit(struct runner *runner, struct task *task)
{
    send(runner, (struct command){.type = COMMAND_SUBMIT, .task = task});
}

void runner_release(struct runner *runner, uint64_t tag)
{
    send(runner, (struct command){.type = COMMAND_RELEASE, .tag = tag});
}

void runner_release_all(struct runner *runner)
{
    send(runner, (struct command){.type = COMMAND_RELEASE_ALL});
}

void runner_lease(struct runner *runner, int64_t until_us)
{
    atomic_store_explicit(&runner->lease_until_us, until_us, memory_order_relaxed);
    ring_wake(runner->commands);
}

void runner_sizes(struct runner *runner, uint32_t batch_size, uint32_t micro_batch_size)
{
    atomic_store_explicit(&runner->batch_size, batch_size, memory_order_relaxed);
    atomic_store_explicit(&runner->micro_batch_size, micro_batch_size, memory_order_relaxed);
}

struct report *runner_take(struct runner *runner)
{
    return ring_pop(runner->reports);
}

void runner_wait(struct runner *runner, int64_t timeout_ms)
{
    ring_wait(runner->reports, timeout_ms);
}

void runner_wake(struct runner *runner)
{
    ring_wake(runner->reports);
}

void runner_stats(struct runner *runner, struct board_stats *stats)
{
    board_read(runner->board, stats);
}

bool runner_healthy(struct runner *runner, struct err *err)
{
    return board_healthy(runner->board, err);
}
