/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/shell/session.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/log.h"
#include "common/stop.h"
#include "worker/shell/intake.h"

#include <stdlib.h>

enum {
    COMMANDS_PER_TURN = 256,
    REPORTS_PER_TURN = 1024,
    WAIT_MS = 50,           /* a stop request is seen at least this often */
    RETRY_MS = 500,         /* between two tries to say Hello */
    GOODBYE_MS = 5000,      /* for the last messages */
    GOODBYE_MS_ALONE = 500, /* without a lease, mostly because nobody is there */
    YIELD_MS = 2000,        /* for delivery reports that the last yields wait for */
    HEARTBEATS_A_LEASE = 6, /* five may be lost or late */
};

void session_delivered(void *session, struct task *task, bool chunk, const char *error)
{
    publisher_delivered(&((struct session *)session)->publisher, task, chunk, error);
}

/* ---- what the worker says about itself ---- */

static bool say_hello(struct session *session, struct err *err)
{
    const struct session_options *options = &session->options;
    struct hello hello = {
        .slot = options->slot,
        .incarnation = session->incarnation,
        .model = str_from(options->model_name),
        .revision = str_from(options->info.revision),
        .numerics_id = str_from(options->info.numerics_id),
        .hardware = str_from(options->hardware),
        .precision = str_from(options->info.precision),
        .role = ROLE_BOTH,
        .max_seqs = options->info.max_seqs,
        .max_context = options->info.max_context,
        .kv_tokens = options->info.kv_tokens,
        .experts = options->info.profile_count > 0 ? options->info.experts : 0,
        .sent_ms = clock_wall_ms(),
    };

    return link_hello(options->link, &hello, err);
}

static bool say_heartbeat(struct session *session, int64_t now_us, struct err *err)
{
    struct board_stats stats;
    size_t running_count;
    const struct running *running = tasks_running(&session->tasks, &running_count);
    struct record record = {.type = RECORD_HEARTBEAT};

    runner_stats(session->options.runner, &stats);
    record.u.heartbeat = (struct heartbeat){
        .slot = session->options.slot,
        .incarnation = session->incarnation,
        .seq = lease_heartbeat(&session->lease, now_us),
        .sent_ms = clock_wall_ms(),
        .up_since_ms = session->up_since_ms,
        .running = running,
        .running_count = running_count,
        .kv_tokens_used = stats.engine.kv_tokens_used,
        .load = stats.engine.load,
        .layer_load = stats.layer_load,
        .layer_load_count = stats.layers,
        .step_us = (int64_t)stats.engine.step_us,
        .imbalance = stats.engine.imbalance,
        .experts_used = stats.engine.experts_used,
        .prefill_tokens = stats.engine.prefill_tokens,
        .decode_tokens = stats.engine.decode_tokens,
        .steps = stats.engine.steps,
        .busy_us = stats.engine.busy_us,
        .draining = session->drain_until_us > 0,
    };
    session->heartbeat_us = now_us + session->options.lease_us / HEARTBEATS_A_LEASE;
    exporter_update(session->options.exporter,
                    &(struct exporter_values){.stats = &stats,
                                              .held = running_count,
                                              .lease = lease_valid(&session->lease, now_us),
                                              .done = session->publisher.done,
                                              .failed = session->publisher.failed,
                                              .yielded = session->publisher.yielded,
                                              .chunks = session->publisher.chunks});
    return link_event(session->options.link, &record, NULL, err);
}

static bool say_goodbye(struct session *session, struct err *err)
{
    struct record record = {
        .type = RECORD_GOODBYE,
        .u.goodbye = {.slot = session->options.slot,
                      .incarnation = session->incarnation,
                      .sent_ms = clock_wall_ms()},
    };

    return link_event(session->options.link, &record, NULL, err) &&
           link_flush(session->options.link,
                      lease_valid(&session->lease, clock_mono_us()) ? GOODBYE_MS : GOODBYE_MS_ALONE,
                      err);
}

/* ---- one turn of the loop ---- */

static bool take_commands(struct session *session, int timeout_ms, struct err *err)
{
    struct record *record;

    for (int i = 0; i < COMMANDS_PER_TURN; i++) {
        if (!link_poll(session->options.link, i == 0 ? timeout_ms : 0, &record,
                       &session->superseded, err))
            return false;
        if (record == NULL)
            return true;
        if (!intake_command(session, record, err))
            return false;
    }
    runner_wake(session->options.runner); /* there may be more: do not wait */
    return true;
}

static struct report *take_report(struct session *session)
{
    struct report *report = runner_take(session->options.runner);

    if (report != NULL && report->type != REPORT_PROGRESS) {
        report->task->in_model = false;
        session->in_model--;
    }
    return report;
}

static bool publish(struct session *session, struct err *err)
{
    struct report *report;

    for (int i = 0; i < REPORTS_PER_TURN; i++) {
        report = take_report(session);
        if (report == NULL)
            break;
        if (!publisher_report(&session->publisher, report, err))
            return false;
    }
    return publisher_pump(&session->publisher, err);
}

/* Commands, heartbeat, reports: in this order, so that the heartbeat's list is of now. */
static bool turn(struct session *session, struct err *err)
{
    int64_t now_us = clock_mono_us();
    bool lease = lease_valid(&session->lease, now_us);
    int64_t wait_ms;

    if (!take_commands(session, lease ? 0 : WAIT_MS, err))
        return false;
    now_us = clock_mono_us();
    if (now_us >= session->heartbeat_us && !say_heartbeat(session, now_us, err))
        return false;
    if (!lease_valid(&session->lease, now_us))
        return true;
    if (!publish(session, err))
        return false;
    wait_ms = (session->heartbeat_us - now_us) / 1000 + 1;
    runner_wait(session->options.runner, wait_ms < WAIT_MS ? wait_ms : WAIT_MS);
    return true;
}

/* ---- the end of an incarnation ---- */

/* Forget all work, unpublished. */
static bool drop_all(struct session *session, struct err *err)
{
    tasks_drop_all(&session->tasks);
    publisher_reset(&session->publisher);
    session->parked = 0;
    if (session->in_model > 0)
        runner_release_all(session->options.runner);
    while (session->in_model > 0) {
        struct report *report = take_report(session);

        if (!runner_healthy(session->options.runner, err))
            return false;
        if (report == NULL)
            runner_wait(session->options.runner, WAIT_MS);
        else if (!publisher_report(&session->publisher, report, err))
            return false;
    }
    publisher_reset(&session->publisher);
    return true;
}

/* Tasks that came while draining: they never ran. */
static bool release_parked(struct session *session, struct err *err)
{
    union idmap_value *value;
    size_t cursor = 0;

    while (idmap_next(session->tasks.held, &cursor, NULL, &value)) {
        struct task *task = value->pointer;

        if (!task->in_model && task->outcome == NULL &&
            !publisher_report(&session->publisher, report_new(REPORT_RELEASED, task_ref(task)),
                              err))
            return false;
    }
    session->parked = 0;
    return true;
}

/* Give back what is not finished, as far as the lease allows; Goodbye says the rest. */
static bool give_back(struct session *session, struct err *err)
{
    int64_t until_us = clock_mono_us() + YIELD_MS * (int64_t)1000;

    if (session->in_model > 0)
        runner_release_all(session->options.runner);
    if (!release_parked(session, err))
        return false;
    while (tasks_count(&session->tasks) > 0 && clock_mono_us() < until_us &&
           runner_healthy(session->options.runner, err)) {
        if (!turn(session, err))
            return false;
    }
    if (!drop_all(session, err))
        return false;
    if (say_goodbye(session, err))
        return true;
    if (err->kind != ERR_RETRY)
        return false;
    log_err(LOG_LEVEL_WARN, "goodbye", err); /* the lease will say it */
    return true;
}

static bool is_lost(const struct session *session, int64_t now_us)
{
    int64_t since_us = session->lease.until_us;

    if (since_us < session->hello_us)
        since_us = session->hello_us;
    return tasks_count(&session->tasks) > 0 && now_us > since_us + session->options.keep_us;
}

/* An idle worker without a scheduler has nothing else to say. */
static void watch_lease(struct session *session, int64_t now_us)
{
    int64_t seconds;

    switch (
        lease_look(&session->lease_watch, lease_valid(&session->lease, now_us), now_us, &seconds)) {
    case LEASE_NOTHING_NEW:
        break;
    case LEASE_MISSING:
        LOG_WARN("lease_missing", "slot=%u seconds=%lld tasks=%zu reason=%s", session->options.slot,
                 (long long)seconds, tasks_count(&session->tasks), "no lease from a scheduler");
        break;
    case LEASE_BACK:
        LOG_INFO("lease_back", "slot=%u seconds=%lld", session->options.slot, (long long)seconds);
        break;
    }
}

enum ending { ENDING_STOP, ENDING_LOST, ENDING_ERROR };

static enum ending serve(struct session *session, struct err *err)
{
    for (;;) {
        int64_t now_us = clock_mono_us();

        if (!turn(session, err) || !runner_healthy(session->options.runner, err))
            return ENDING_ERROR;
        watch_lease(session, clock_mono_us());
        if (session->superseded) {
            err_set(err, ERR_REJECT, "slot %u was taken by another worker", session->options.slot);
            return ENDING_ERROR;
        }
        if (session->publisher.broken || is_lost(session, now_us))
            return ENDING_LOST;
        if (stop_requested() && session->drain_until_us == 0) {
            session->drain_until_us = now_us + session->options.drain_timeout_us;
            session->heartbeat_us = now_us; /* the scheduler is to know before it sends more */
            LOG_INFO("draining", "slot=%u tasks=%zu", session->options.slot,
                     tasks_count(&session->tasks));
        }
        if (session->drain_until_us > 0 &&
            (tasks_count(&session->tasks) == session->parked || now_us >= session->drain_until_us))
            return ENDING_STOP;
    }
}

/* A new name, known to the scheduler. *stopped: the end came first. */
static bool begin(struct session *session, bool *stopped, struct err *err)
{
    char id[REQUEST_ID_TEXT_SIZE + 1];

    uuid_random(session->incarnation.bytes);
    session->publisher.incarnation = session->incarnation;
    lease_init(&session->lease, session->options.lease_us);
    runner_lease(session->options.runner, 0);
    session->up_since_ms = clock_wall_ms();
    session->heartbeat_us = 0;
    *stopped = false;
    while (!say_hello(session, err)) {
        if (err->kind != ERR_RETRY)
            return false;
        log_err(LOG_LEVEL_WARN, "hello", err);
        *stopped = stop_requested();
        if (*stopped)
            return true;
        clock_sleep_ms(RETRY_MS);
    }
    session->hello_us = clock_mono_us();
    request_id_format(&session->incarnation, id);
    LOG_INFO("hello", "slot=%u incarnation=%s model=%s numerics=%s", session->options.slot, id,
             session->options.model_name, session->options.info.numerics_id);
    return true;
}

static bool run(struct session *session, struct err *err)
{
    for (;;) {
        bool stopped;

        if (!begin(session, &stopped, err))
            return false;
        if (stopped)
            return true;
        switch (serve(session, err)) {
        case ENDING_STOP:
            return give_back(session, err);
        case ENDING_ERROR: {
            struct err ignored;

            drop_all(session, &ignored); /* the first error is the one to report */
            return false;
        }
        case ENDING_LOST:
            LOG_WARN("lease_lost", "slot=%u tasks=%zu", session->options.slot,
                     tasks_count(&session->tasks));
            if (!drop_all(session, err) || !say_goodbye(session, err)) {
                if (err->kind != ERR_RETRY)
                    return false;
            }
            break;
        }
    }
}

bool session_run(struct session *session, const struct session_options *options, struct err *err)
{
    bool ok;

    *session = (struct session){.options = *options};
    session->publisher =
        (struct publisher){.link = options->link, .tasks = &session->tasks, .slot = options->slot};
    tasks_open(&session->tasks, options->tasks_max);
    ok = run(session, err);
    tasks_close(&session->tasks);
    publisher_reset(&session->publisher);
    return ok;
}
