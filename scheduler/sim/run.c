/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "scheduler/scheduler.h"
#include "scheduler/sim/arrivals.h"
#include "scheduler/sim/random.h"
#include "scheduler/sim/run_state.h"

enum moment_kind {
    MOMENT_TICK,
    MOMENT_STEP_END,
    MOMENT_HEARTBEAT,
    MOMENT_STARTED,
    MOMENT_BALANCE,
    MOMENT_PLAN
};

static void report(struct run *run, uint32_t slot, const struct record *record)
{
    struct position position = {TOPIC_WORKER_EVENTS, (int32_t)slot,
                                run->fleet.members[slot].offset++};

    run_step_core(run, &(struct event){.type = EVENT_WORKER,
                                       .position = position,
                                       .timestamp_ms = run_now_ms(run),
                                       .record = record});
}

static double task_weight(const struct run *run, int64_t at_us, uint32_t task)
{
    double round = (double)at_us / (double)run->config->task_period_us;
    double own = (double)task / run->config->routing->tasks;

    return exp(run->config->task_drift * cos(2 * 3.14159265358979323846 * (round - own)));
}

static uint32_t task_of(const struct run *run, uint64_t index)
{
    struct random random = {run->config->seed ^ (index * 0x9e3779b97f4a7c15u)};
    const uint32_t tasks = run->config->routing->tasks;
    double weights[ROUTING_TASKS_MAX], sum = 0;
    uint32_t task = 0;

    if (run->config->task_drift <= 0)
        return (uint32_t)(random_u64(&random) % tasks);
    for (uint32_t k = 0; k < tasks; k++)
        sum += weights[k] = task_weight(run, run->trace->requests[index].arrival_us, k);
    for (double drawn = random_uniform(&random) * sum; task + 1 < tasks; task++)
        if ((drawn -= weights[task]) < 0)
            break;
    return task;
}

static bool begin_step(struct run *run, uint32_t slot, struct err *err)
{
    struct member *member = &run->fleet.members[slot];

    if (member->stepping || !node_begin(&member->node, &member->step_us))
        return true;
    member->stepping = true;
    run->imbalance_sum += member->node.shape.imbalance;
    return timeline_put(&run->timeline, run->now_us + (int64_t)member->step_us, MOMENT_STEP_END,
                        slot, err);
}

static struct blocks blocks_of(const struct run *run, const struct trace_request *request)
{
    if (run->config->caches == RUN_CACHES_OFF || request->blocks == 0)
        return (struct blocks){0};
    return (struct blocks){run->trace->blocks + request->blocks_at, request->blocks,
                           request->prompt_tokens};
}

static bool act_assignment(struct run *run, const struct assignment *assignment, uint32_t slot,
                           struct err *err)
{
    uint64_t index = arrivals_index(&assignment->request.request_id);
    const struct trace_request *request = &run->trace->requests[index];
    struct member *member = &run->fleet.members[slot];
    const struct node_sequence sequence = {.request = (uint32_t)index,
                                           .prompt = request->prompt_tokens,
                                           .output = request->output_tokens,
                                           .task = task_of(run, index),
                                           .urgent =
                                               arrivals_class(run, index) == CLASS_INTERACTIVE,
                                           .blocks = blocks_of(run, request)};

    run->times[index].attempt = assignment->attempt;
    if (member->state == MEMBER_SERVING)
        return node_assign(&member->node, &sequence, err);
    if (run->yields_count == run->yields_capacity) {
        size_t capacity = run->yields_capacity ? 2 * run->yields_capacity : 64;
        struct given_back *yields = realloc(run->yields, capacity * sizeof *yields);
        if (!yields)
            return err_set(err, ERR_FATAL, "simulator: out of memory");
        run->yields = yields;
        run->yields_capacity = capacity;
    }
    run->yields[run->yields_count++] = (struct given_back){index, slot};
    return true;
}

/* What they bring about belongs to the next transaction. */
static void yield_all(struct run *run)
{
    for (size_t i = 0; i < run->yields_count; i++) {
        const struct given_back *yield = &run->yields[i];
        const struct request_id id = arrivals_id(yield->index);
        struct record record =
            fleet_yield(&run->fleet, yield->slot, &id, run->times[yield->index].attempt);
        report(run, yield->slot, &record);
    }
    run->yields_count = 0;
}

static void finish(struct run *run, uint64_t index)
{
    const struct run_config *config = run->config;
    const struct trace_request *request = &run->trace->requests[index];
    int64_t limit_us = config->late_base_us + config->late_token_us * request->output_tokens;

    CHECK(run->times[index].end_us < 0);
    run->times[index].end_us = run->last_end_us = run->now_us;
    run->ended++;
    run->result->late += run->now_us - request->arrival_us > limit_us;
}

static bool act(struct run *run, const struct action *action, struct err *err)
{
    if (action->type == ACTION_PAUSE || action->type == ACTION_RESUME)
        run->paused = action->type == ACTION_PAUSE;
    if (action->type != ACTION_SEND)
        return true;
    uint32_t slot = (uint32_t)action->partition;
    if (action->record->type == RECORD_ASSIGNMENT)
        return act_assignment(run, &action->record->u.assignment, slot, err);
    if (action->record->type == RECORD_LEASE_RENEWAL)
        run->fleet.members[slot].node.batch_size = action->record->u.lease_renewal.batch_size;
    if (action->record->type == RECORD_RESULT)
        finish(run, arrivals_index(&action->record->u.result.request_id));
    return true;
}

/* One transaction: decide, act, committed. Yields that answer it wait for the next. */
static bool tick(struct run *run, struct err *err)
{
    size_t count;

    arrivals_due(run);
    run_step_core(run, &(struct event){.type = EVENT_TICK});
    count = run->actions.count;
    for (size_t i = 0; i < count; i++)
        if (!act(run, &run->actions.items[i], err))
            return false;
    CHECK(run->actions.count == count);
    run_step_core(run, &(struct event){.type = EVENT_COMMITTED});
    run->actions.count = 0;
    yield_all(run);
    arrivals_due(run);
    run_hour_at(run, run->now_us)->node_hours +=
        fleet_count(&run->fleet, ~(1u << MEMBER_OFF)) * (double)run->config->tick_us / RUN_HOUR_US;
    for (uint32_t slot = 0; slot < run->fleet.count; slot++)
        if (!begin_step(run, slot, err))
            return false;
    return true;
}

static void report_outcome(struct run *run, uint32_t slot)
{
    const struct node_outcome *outcome = &run->outcome;

    for (uint32_t i = 0; i < outcome->first_count; i++) {
        const struct request_id id = arrivals_id(outcome->first[i]);
        struct request_times *times = &run->times[outcome->first[i]];
        struct record record = fleet_progress(&run->fleet, slot, &id, times->attempt);
        times->first_us = run->now_us;
        report(run, slot, &record);
    }
    for (uint32_t i = 0; i < outcome->ended_count; i++) {
        uint32_t index = outcome->ended[i];
        const struct trace_request *request = &run->trace->requests[index];
        const struct request_id id = arrivals_id(index);
        const struct token_usage usage = {.prompt_tokens_uncached =
                                              request->prompt_tokens - outcome->ended_cached[i],
                                          .prompt_tokens_cached = outcome->ended_cached[i],
                                          .output_tokens = request->output_tokens};
        struct record record =
            fleet_done(&run->fleet, slot, &id, run->times[index].attempt, &usage);
        report(run, slot, &record);
    }
}

static bool end_step(struct run *run, uint32_t slot, struct err *err)
{
    struct member *member = &run->fleet.members[slot];

    uint64_t made = member->node.decode_tokens;

    member->stepping = false;
    if (!node_end(&member->node, member->step_us, &run->outcome, err))
        return false;
    run_hour_at(run, run->now_us)->output_tokens += member->node.decode_tokens - made;
    run_hour_at(run, run->now_us)->busy_hours += member->step_us / (double)RUN_HOUR_US;
    report_outcome(run, slot);
    if (member->state == MEMBER_DRAINING && node_held(&member->node) == 0) {
        struct record record = fleet_goodbye(&run->fleet, slot, run_now_ms(run));
        run->result->node_hours += (double)(run->now_us - member->on_us) / (double)RUN_HOUR_US;
        report(run, slot, &record);
        return true;
    }
    return begin_step(run, slot, err);
}

static bool serve(struct run *run, uint32_t slot, struct err *err)
{
    struct record record = fleet_hello(&run->fleet, slot, run_now_ms(run));

    report(run, slot, &record);
    return timeline_put(&run->timeline, run->now_us, MOMENT_HEARTBEAT, slot, err);
}

static bool beat(struct run *run, uint32_t slot, struct err *err)
{
    struct record record;

    if (run->fleet.members[slot].state == MEMBER_OFF)
        return true;
    record = fleet_heartbeat(&run->fleet, slot, run_now_ms(run));
    report(run, slot, &record);
    return timeline_put(&run->timeline, run->now_us + run->config->heartbeat_us, MOMENT_HEARTBEAT,
                        slot, err);
}

static bool balance(struct run *run, struct err *err)
{
    for (uint32_t slot = 0; slot < run->fleet.count; slot++) {
        struct node *node = &run->fleet.members[slot].node;
        double gain;

        routing_batch_observe(&node->batch, 1);
        if (!routing_batch_replan(&node->batch, run->config->balance_gain_min, &gain, err))
            return false;
        run->result->replans += gain >= run->config->balance_gain_min;
    }
    return timeline_put(&run->timeline, run->now_us + run->config->balance_us, MOMENT_BALANCE, 0,
                        err);
}

/* Start what is missing, lowest slot first; drain what is too much, highest slot first. */
static bool rescale(struct run *run, uint32_t wanted, struct err *err)
{
    const unsigned kept = 1u << MEMBER_STARTING | 1u << MEMBER_SERVING;
    uint32_t count = fleet_count(&run->fleet, kept);

    for (uint32_t slot = 0; slot < run->fleet.count && count < wanted; slot++) {
        struct member *member = &run->fleet.members[slot];
        if (member->state != MEMBER_OFF)
            continue;
        member->state = MEMBER_STARTING;
        member->on_us = run->now_us;
        count++;
        if (!timeline_put(&run->timeline, run->now_us + run->config->node_start_us, MOMENT_STARTED,
                          slot, err))
            return false;
    }
    for (uint32_t slot = run->fleet.count; slot-- > 0 && count > wanted;)
        if (run->fleet.members[slot].state == MEMBER_SERVING) {
            run->fleet.members[slot].state = MEMBER_DRAINING;
            count--;
        }
    count = fleet_count(&run->fleet, kept | 1u << MEMBER_DRAINING);
    run->result->nodes_min = count < run->result->nodes_min ? count : run->result->nodes_min;
    run->result->nodes_max = count > run->result->nodes_max ? count : run->result->nodes_max;
    return true;
}

/* The planner's turn. Nodes that are starting are not known to the core, as in real life, but the
 * planner knows what it has asked for. */
static bool plan(struct run *run, struct err *err)
{
    struct scheduler_gauges gauges;
    uint64_t waiting = 0;

    scheduler_gauges(run->core, &gauges);
    for (int i = 0; i < CLASS_COUNT; i++)
        waiting += gauges.classes[i].waiting_requests;
    const struct capacity_counts counts = capacity_count(&gauges, waiting + arrivals_unread(run));
    if (capacity_update(&run->capacity, &counts, run_now_ms(run)) &&
        !rescale(run, run->capacity.decision.wanted, err))
        return false;
    return timeline_put(&run->timeline, run->now_us + run->config->capacity.interval_ms * 1000,
                        MOMENT_PLAN, 0, err);
}

static bool happen(struct run *run, const struct moment *moment, struct err *err)
{
    switch ((enum moment_kind)moment->kind) {
    case MOMENT_TICK:
        return tick(run, err) && timeline_put(&run->timeline, run->now_us + run->config->tick_us,
                                              MOMENT_TICK, 0, err);
    case MOMENT_STEP_END:
        return end_step(run, moment->slot, err);
    case MOMENT_HEARTBEAT:
        return beat(run, moment->slot, err);
    case MOMENT_STARTED:
        return serve(run, moment->slot, err);
    case MOMENT_BALANCE:
        return balance(run, err);
    case MOMENT_PLAN:
        return plan(run, err);
    }
    return true;
}

static bool start(struct run *run, struct err *err)
{
    const struct run_config *config = run->config;
    uint32_t count = config->scale ? config->capacity.planner.workers_min : config->nodes;

    run_step_core(run, &(struct event){.type = EVENT_RESTORED});
    run->result->nodes_min = run->result->nodes_max = count;
    for (uint32_t slot = 0; slot < count; slot++)
        if (!serve(run, slot, err))
            return false;
    if (config->balance_us > 0 &&
        !timeline_put(&run->timeline, config->balance_us, MOMENT_BALANCE, 0, err))
        return false;
    if (config->scale &&
        !timeline_put(&run->timeline, config->capacity.interval_ms * 1000, MOMENT_PLAN, 0, err))
        return false;
    return timeline_put(&run->timeline, 0, MOMENT_TICK, 0, err);
}

static bool hopeless(const struct run *run)
{
    return run->config->late_share > 0 &&
           (double)run->result->late > run->config->late_share * (double)run->trace->count;
}

/* Every so many events, about a second of work. Runs side by side overwrite each other's line. */
static void tell(const struct run *run, uint64_t events)
{
    enum { EVENTS = 1 << 17 };
    const struct batch_policy *policy = &run->config->policy;

    if (run->config->progress && events % EVENTS == 0)
        fprintf(stderr, "\r\033[K%s, base %u: %.1f h simulated, %.0f %% of the requests answered",
                run->config->classic            ? "classic"
                : policy->kind == BATCH_STATIC  ? "static"
                : policy->kind == BATCH_FORMULA ? "formula"
                                                : "adaptive",
                policy->base, (double)run->now_us / 3.6e9,
                100 * (double)run->ended / (double)run->trace->count);
}

static bool run_all(struct run *run, struct err *err)
{
    struct moment moment;
    uint64_t events = 0;

    if (!start(run, err))
        return false;
    while (run->ended < run->trace->count && timeline_take(&run->timeline, &moment)) {
        run->now_us = moment.at_us;
        tell(run, ++events);
        if (run->config->horizon_us > 0 && run->now_us > run->config->horizon_us)
            return true;
        if (hopeless(run)) {
            run->result->given_up = true;
            return true;
        }
        if (!happen(run, &moment, err))
            return false;
    }
    return true;
}

static bool open_run(struct run *run, struct err *err)
{
    const struct run_config *config = run->config;
    bool shared = config->caches == RUN_CACHES_SHARED;

    run->everywhere = shared ? calloc(run->trace->blocks_limit + 1, 1) : NULL;
    if (shared && !run->everywhere)
        return err_set(err, ERR_FATAL, "simulator: out of memory");
    const struct node_config node = {.model = config->model,
                                     .routing = config->routing,
                                     .classic = config->classic,
                                     .cached_share = config->cached_share,
                                     .blocks_limit = run->trace->blocks_limit,
                                     .block_tokens = TRACE_BLOCK_TOKENS,
                                     .everywhere = run->everywhere,
                                     .step_us_target = config->step_us_target,
                                     .load_smoothing = 0.05};
    /* Nothing dies here: leases never run out, and heartbeats need no running list. */
    const struct scheduler_config core = {.slots = config->nodes,
                                          .request_partitions = {1, 1},
                                          .lease_ms = INT64_MAX / 16,
                                          .dedupe_window_ms = INT64_MAX / 16,
                                          .waiting_size_max = (size_t)1 << 30,
                                          .crashes_max = 3,
                                          .model_wait_ms = INT64_MAX / 16,
                                          .assign_ahead_percent = config->assign_ahead_percent,
                                          .long_request_tokens = config->long_request_tokens,
                                          .long_share_percent = config->long_share_percent,
                                          .kv_share = config->kv_share,
                                          .prefix_affinity_weight = config->prefix_affinity_weight,
                                          .overtakes_max = {16, 1024},
                                          .batch = config->policy};

    run->times = malloc(run->trace->count * sizeof *run->times);
    run->body = malloc(RUN_BODY_SIZE_MAX);
    run->core = scheduler_new(&core);
    if (!run->times || !run->body || !run->core)
        return err_set(err, ERR_FATAL, "simulator: out of memory");
    memset(run->body, ' ', RUN_BODY_SIZE_MAX);
    for (size_t i = 0; i < run->trace->count; i++)
        run->times[i] = (struct request_times){-1, -1, 0};
    capacity_init(&run->capacity, &config->capacity, run_epoch_ms);
    return fleet_init(&run->fleet, config->nodes, &node, config->policy.base, err);
}

static double forecast_error(const struct fleet *fleet)
{
    double off = 0, forecasts = 0;

    for (uint32_t slot = 0; slot < fleet->count; slot++) {
        off += fleet->members[slot].node.batch.forecast_off;
        forecasts += (double)fleet->members[slot].node.batch.forecasts;
    }
    return forecasts > 0 ? off / forecasts : 0; /* the shares that came add up to 1 */
}

bool run_trace(const struct run_config *config, const struct trace *trace,
               struct run_result *result, struct err *err)
{
    struct run run = {.config = config, .trace = trace, .result = result};
    bool ok;

    *result = (struct run_result){0};
    ok = open_run(&run, err) && run_all(&run, err) && run_sum_up(&run, err);
    result->expert_forecast_error = ok ? forecast_error(&run.fleet) : 0;
    scheduler_free(run.core);
    actions_free(&run.actions);
    timeline_free(&run.timeline);
    fleet_free(&run.fleet);
    node_outcome_free(&run.outcome);
    free(run.yields);
    free(run.times);
    free(run.body);
    free(run.everywhere);
    if (!ok)
        run_result_free(result);
    return ok;
}
