/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/exporter.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/check.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/metrics_http.h"

enum worker_metric {
    WORKER_ALIVE,
    WORKER_IN_FLIGHT,
    WORKER_BATCH_SIZE,
    WORKER_LOAD,
    WORKER_LOAD_FORECAST,
    WORKER_STEP,
    WORKER_IMBALANCE,
    WORKER_EXPERTS_USED,
    WORKER_METRIC_COUNT
};

static const char *const class_labels[CLASS_COUNT] = {"class=\"interactive\"", "class=\"bulk\""};
static const char *const status_labels[4] = {"status=\"completed\"", "status=\"failed\"",
                                             "status=\"expired\"", "status=\"cancelled\""};
static const struct {
    const char *name;
    const char *help;
} worker_metrics[WORKER_METRIC_COUNT] = {
    {"pelton_worker_alive", "1 while the worker's lease runs."},
    {"pelton_worker_in_flight", "Requests given to the worker."},
    {"pelton_worker_batch_size", "Sequences the worker may run at once."},
    {"pelton_worker_load", "Load of its busiest expert: 0 idle, 1 full."},
    {"pelton_worker_load_forecast", "The same at its next heartbeat, as predicted."},
    {"pelton_worker_step_seconds", "Mean duration of its steps."},
    {"pelton_worker_expert_imbalance", "Tokens of a step's busiest expert over the mean."},
    {"pelton_worker_experts_used", "Experts of a layer with work in a step."},
};
static const double second_bounds[] = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1,
                                       0.2,   0.5,   1.0,   2.0,  5.0,  10.0};

struct exporter {
    struct metrics *metrics;
    struct metrics_http *server;
    /* enum exporter_role. Relaxed: it guards no other data. */
    atomic_int role;
    struct metric *leader, *epoch;
    struct metric *waiting[CLASS_COUNT], *waiting_tokens[CLASS_COUNT], *oldest_wait[CLASS_COUNT];
    struct metric *lag[CLASS_COUNT];
    struct metric *in_flight, *done_marks, *waiting_size, *workers_alive;
    struct metric *results[4];
    struct metric *duplicates, *dead_letters, *reassigned;
    struct metric *torn_requests, *torn_marks, *torn_usages;
    struct metric *prompt_tokens, *cached_tokens, *cached_expected, *affinity;
    struct metric *tick, *commit, *commit_messages, *reloads, *fenced;
    struct metric *messages, *unreadable;
    struct metric *wanted, *forecast, *arriving, *speed;
    struct metric **workers[WORKER_METRIC_COUNT]; /* [slot], registered when first alive */
    uint32_t slots;
};

static bool exporter_ready(void *context, char *reason, size_t reason_size)
{
    static const char *const names[] = {"connecting", "standby", "recovering", "leading"};
    struct exporter *exporter = context;
    int role = atomic_load_explicit(&exporter->role, memory_order_relaxed);

    snprintf(reason, reason_size, "%s", names[role]);
    return role == EXPORTER_STANDBY || role == EXPORTER_LEADING;
}

static void exporter_register_classes(struct exporter *exporter)
{
    struct metrics *metrics = exporter->metrics;

    for (int i = 0; i < CLASS_COUNT; i++) {
        const char *labels = class_labels[i];
        exporter->waiting[i] = metrics_gauge(metrics, "pelton_waiting_requests", labels,
                                             "Requests read and not given to a worker.");
        exporter->waiting_tokens[i] =
            metrics_gauge(metrics, "pelton_waiting_tokens", labels, "Their tokens, estimated.");
        exporter->oldest_wait[i] = metrics_gauge(metrics, "pelton_oldest_wait_seconds", labels,
                                                 "Age of the oldest waiting request.");
        exporter->lag[i] = metrics_gauge(metrics, "pelton_request_lag", labels,
                                         "Requests in the topic behind the admitted offset.");
    }
    for (int i = 0; i < 4; i++)
        exporter->results[i] = metrics_counter(metrics, "pelton_results_total", status_labels[i],
                                               "Results written in this term.");
}

/* The plan is not a number where there is none: whoever starts and stops workers by it must not
 * take a stand-by's 0 for a wish. */
static void exporter_no_plan(struct exporter *exporter)
{
    metric_set(exporter->wanted, NAN);
    metric_set(exporter->forecast, NAN);
    metric_set(exporter->arriving, NAN);
    metric_set(exporter->speed, NAN);
}

static void exporter_register_plan(struct exporter *exporter)
{
    struct metrics *m = exporter->metrics;
    const char *role = "role=\"both\"";

    exporter->wanted = metrics_gauge(m, "pelton_planner_wanted_workers", role,
                                     "Workers wanted now; NaN while this process plans nothing.");
    exporter->forecast =
        metrics_gauge(m, "pelton_planner_forecast_tokens_per_second", role,
                      "Output tokens that are expected to be asked for at the window's end.");
    exporter->arriving = metrics_gauge(m, "pelton_planner_arriving_tokens_per_second", role,
                                       "Output tokens asked for in the last minute.");
    exporter->speed =
        metrics_gauge(m, "pelton_planner_speed_tokens_per_second", role,
                      "Output tokens of one full worker, judged by its steps; 0 unknown.");
    exporter_no_plan(exporter);
}

static void exporter_register_prefixes(struct exporter *exporter)
{
    struct metrics *m = exporter->metrics;

    exporter->prompt_tokens = metrics_counter(m, "pelton_prompt_tokens_total", "",
                                              "Prompt tokens of completed requests.");
    exporter->cached_tokens = metrics_counter(m, "pelton_prompt_cached_tokens_total", "",
                                              "Of them, those that workers had in their caches.");
    exporter->cached_expected =
        metrics_counter(m, "pelton_prompt_cached_expected_tokens_total", "",
                        "Cached prompt tokens that assignments counted on, estimated.");
    exporter->affinity = metrics_counter(m, "pelton_affinity_assignments_total", "",
                                         "Assignments to another than the least filled worker, for "
                                         "what it has cached.");
}

static void exporter_register_torn(struct exporter *exporter)
{
    static const char name[] = "pelton_torn_repairs_total";
    static const char help[] = "What torn transactions had left out, put right by this term.";
    struct metrics *m = exporter->metrics;

    exporter->torn_requests = metrics_counter(m, name, "what=\"request\"", help);
    exporter->torn_marks = metrics_counter(m, name, "what=\"mark\"", help);
    exporter->torn_usages = metrics_counter(m, name, "what=\"usage\"", help);
}

static void exporter_register(struct exporter *exporter)
{
    struct metrics *m = exporter->metrics;
    size_t bounds = sizeof second_bounds / sizeof second_bounds[0];

    exporter_register_classes(exporter);
    exporter_register_plan(exporter);
    exporter_register_prefixes(exporter);
    exporter_register_torn(exporter);
    exporter->leader = metrics_gauge(m, "pelton_scheduler_leader", "", "1 while this one leads.");
    exporter->epoch = metrics_gauge(m, "pelton_scheduler_epoch", "", "Epoch of this leader.");
    exporter->in_flight =
        metrics_gauge(m, "pelton_in_flight_requests", "", "Requests that workers hold.");
    exporter->done_marks =
        metrics_gauge(m, "pelton_done_marks", "", "Finished request ids that are remembered.");
    exporter->waiting_size =
        metrics_gauge(m, "pelton_waiting_bytes", "", "Payload of waiting requests.");
    exporter->workers_alive =
        metrics_gauge(m, "pelton_workers_alive", "", "Workers with a running lease.");
    exporter->duplicates = metrics_counter(m, "pelton_duplicate_requests_total", "",
                                           "Requests ignored because their id is known.");
    exporter->dead_letters =
        metrics_counter(m, "pelton_dead_letters_total", "", "Messages sent to dead-letters.");
    exporter->reassigned = metrics_counter(m, "pelton_reassigned_total", "",
                                           "Requests given to another worker after the first.");
    exporter->tick = metrics_histogram(m, "pelton_tick_seconds", "",
                                       "Time the core takes to decide.", second_bounds, bounds);
    exporter->commit =
        metrics_histogram(m, "pelton_commit_seconds", "",
                          "Time from begin to commit of a transaction.", second_bounds, bounds);
    exporter->commit_messages = metrics_counter(m, "pelton_committed_messages_total", "",
                                                "Messages in committed transactions.");
    exporter->reloads =
        metrics_counter(m, "pelton_scheduler_reloads_total", "", "Terms that a failure has ended.");
    exporter->fenced = metrics_counter(m, "pelton_scheduler_fenced_total", "",
                                       "Terms that another leader has ended.");
    exporter->messages =
        metrics_counter(m, "pelton_read_messages_total", "", "Messages read in this term.");
    exporter->unreadable = metrics_counter(m, "pelton_unreadable_messages_total", "",
                                           "Worker events and control messages skipped.");
}

bool exporter_open(struct exporter **exporter, const struct config_common *common, struct err *err)
{
    struct exporter *opened = calloc(1, sizeof *opened);

    CHECK(opened);
    opened->metrics = metrics_open();
    exporter_register(opened);
    struct metrics_http_options options = {
        .address = common->metrics_address,
        .port = common->metrics_port > 0 ? (uint16_t)common->metrics_port : 0,
        .metrics = opened->metrics,
        .ready = exporter_ready,
        .context = opened,
    };
    if (common->metrics_port >= 0) {
        if (!metrics_http_open(&opened->server, &options, err)) {
            exporter_close(opened);
            return false;
        }
        LOG_INFO("serving", "address=%s port=%u", common->metrics_address,
                 metrics_http_port(opened->server));
    }
    *exporter = opened;
    return true;
}

void exporter_close(struct exporter *exporter)
{
    if (!exporter)
        return;
    metrics_http_close(exporter->server);
    metrics_close(exporter->metrics);
    for (int i = 0; i < WORKER_METRIC_COUNT; i++)
        free(exporter->workers[i]);
    free(exporter);
}

void exporter_role(struct exporter *exporter, enum exporter_role role)
{
    atomic_store_explicit(&exporter->role, (int)role, memory_order_relaxed);
    metric_set(exporter->leader, role == EXPORTER_LEADING ? 1 : 0);
}

void exporter_commit(struct exporter *exporter, int64_t commit_us, size_t messages)
{
    metric_observe(exporter->commit, (double)commit_us / 1e6);
    metric_add(exporter->commit_messages, (double)messages);
}

void exporter_tick(struct exporter *exporter, int64_t tick_us)
{
    metric_observe(exporter->tick, (double)tick_us / 1e6);
}

void exporter_reload(struct exporter *exporter)
{
    metric_add(exporter->reloads, 1);
}

void exporter_fenced(struct exporter *exporter)
{
    metric_add(exporter->fenced, 1);
}

static void exporter_grow(struct exporter *exporter, uint32_t slots)
{
    if (slots <= exporter->slots)
        return;
    for (int i = 0; i < WORKER_METRIC_COUNT; i++) {
        exporter->workers[i] = realloc(exporter->workers[i], slots * sizeof *exporter->workers[i]);
        CHECK(exporter->workers[i]);
        for (uint32_t slot = exporter->slots; slot < slots; slot++)
            exporter->workers[i][slot] = NULL;
    }
    exporter->slots = slots;
}

static void exporter_worker(struct exporter *exporter, uint32_t slot,
                            const struct scheduler_worker_gauges *gauges)
{
    const double values[WORKER_METRIC_COUNT] = {
        [WORKER_ALIVE] = gauges->alive ? 1 : 0,
        [WORKER_IN_FLIGHT] = gauges->in_flight,
        [WORKER_BATCH_SIZE] = gauges->batch_size,
        [WORKER_LOAD] = gauges->load,
        [WORKER_LOAD_FORECAST] = gauges->load_forecast,
        [WORKER_STEP] = (double)gauges->step_us / 1e6,
        [WORKER_IMBALANCE] = gauges->imbalance,
        [WORKER_EXPERTS_USED] = gauges->experts_used,
    };
    char labels[32];

    /* A slot that never had a worker is no series: most are of that kind. */
    if (!exporter->workers[0][slot] && !gauges->alive)
        return;
    snprintf(labels, sizeof labels, "slot=\"%u\"", slot);
    for (int i = 0; i < WORKER_METRIC_COUNT; i++) {
        if (!exporter->workers[i][slot])
            exporter->workers[i][slot] = metrics_gauge(exporter->metrics, worker_metrics[i].name,
                                                       labels, worker_metrics[i].help);
        metric_set(exporter->workers[i][slot], values[i]);
    }
}

static void exporter_gauges(struct exporter *exporter, const struct scheduler_gauges *gauges)
{
    for (int i = 0; i < CLASS_COUNT; i++) {
        const struct scheduler_class_gauges *class = &gauges->classes[i];
        metric_set(exporter->waiting[i], (double)class->waiting_requests);
        metric_set(exporter->waiting_tokens[i], (double)class->waiting_tokens);
        metric_set(exporter->oldest_wait[i], (double)class->oldest_wait_ms / 1e3);
    }
    for (int i = 0; i < 4; i++)
        metric_set(exporter->results[i], (double)gauges->results_total[i]);
    metric_set(exporter->in_flight, (double)gauges->in_flight);
    metric_set(exporter->done_marks, (double)gauges->done_marks);
    metric_set(exporter->waiting_size, (double)gauges->waiting_size);
    metric_set(exporter->workers_alive, gauges->workers_alive);
    metric_set(exporter->duplicates, (double)gauges->duplicates_total);
    metric_set(exporter->dead_letters, (double)gauges->dead_letters_total);
    metric_set(exporter->reassigned, (double)gauges->reassigned_total);
    metric_set(exporter->prompt_tokens, (double)gauges->prefixes.prompt_tokens);
    metric_set(exporter->cached_tokens, (double)gauges->prefixes.cached_tokens);
    metric_set(exporter->cached_expected, (double)gauges->prefixes.cached_tokens_expected);
    metric_set(exporter->affinity, (double)gauges->prefixes.affinity_assignments);
    metric_set(exporter->torn_requests, (double)gauges->torn.requests);
    metric_set(exporter->torn_marks, (double)gauges->torn.marks);
    metric_set(exporter->torn_usages, (double)gauges->torn.usages);
    metric_set(exporter->epoch, (double)gauges->epoch);
}

void exporter_core(struct exporter *exporter, const struct scheduler *scheduler, uint32_t slots)
{
    struct scheduler_gauges gauges;
    struct scheduler_worker_gauges worker;

    scheduler_gauges(scheduler, &gauges);
    exporter_gauges(exporter, &gauges);
    exporter_grow(exporter, slots);
    for (uint32_t slot = 0; slot < slots; slot++) {
        /* One that has said Goodbye is shown as gone, not as it was at last. */
        if (!scheduler_worker_gauges(scheduler, slot, &worker))
            worker = (struct scheduler_worker_gauges){0};
        exporter_worker(exporter, slot, &worker);
    }
}

void exporter_plan(struct exporter *exporter, const struct capacity *capacity)
{
    metric_set(exporter->wanted, capacity->decision.wanted);
    metric_set(exporter->forecast, capacity->load.forecast_tokens_per_s);
    metric_set(exporter->arriving, capacity->arriving_per_s * capacity->output_share);
    metric_set(exporter->speed, capacity->load.speed_tokens_per_s);
}

void exporter_no_core(struct exporter *exporter)
{
    static const struct scheduler_gauges none;
    static const struct scheduler_worker_gauges nobody;

    exporter_gauges(exporter, &none);
    for (uint32_t slot = 0; slot < exporter->slots; slot++)
        exporter_worker(exporter, slot, &nobody);
    for (int i = 0; i < CLASS_COUNT; i++)
        metric_set(exporter->lag[i], 0);
    exporter_no_plan(exporter);
}

void exporter_lag(struct exporter *exporter, enum service_class service_class, int64_t messages)
{
    metric_set(exporter->lag[service_class], (double)messages);
}

void exporter_messages(struct exporter *exporter, uint64_t read_total, uint64_t unreadable_total)
{
    metric_set(exporter->messages, (double)read_total);
    metric_set(exporter->unreadable, (double)unreadable_total);
}
