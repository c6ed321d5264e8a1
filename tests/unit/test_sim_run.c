/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole runs: the real core, a few simulated nodes, one minute of traffic.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/sim/random.h"
#include "scheduler/sim/run.h"
#include "tests/unit/sim_fixture.h"

static struct sim_fixture fixture;

static int open_models(void **state)
{
    (void)state;
    return sim_fixture_open(&fixture) ? 0 : -1;
}

static struct run_config config_of(uint32_t nodes, enum batch_policy_kind kind, uint32_t base)
{
    return sim_fixture_config(&fixture, nodes, kind, base);
}

/* Poisson arrivals, exponential lengths. */
static void make_trace(struct trace *trace, double rate, double seconds, double prompt,
                       double output)
{
    struct random random = {7};
    double at = 0;

    *trace = (struct trace){.capacity = (size_t)(rate * seconds * 2) + 16};
    trace->requests = calloc(trace->capacity, sizeof *trace->requests);
    while ((at += random_exponential(&random, 1 / rate)) < seconds &&
           trace->count < trace->capacity) {
        const struct trace_request request = {
            .arrival_us = (int64_t)(at * 1e6),
            .prompt_tokens = 1 + (uint32_t)random_exponential(&random, prompt),
            .output_tokens = 1 + (uint32_t)random_exponential(&random, output)};
        trace->requests[trace->count++] = request;
        trace->prompt_tokens += request.prompt_tokens;
        trace->output_tokens += request.output_tokens;
        trace->context_tokens +=
            request.output_tokens * (request.prompt_tokens + request.output_tokens / 2.0);
    }
    trace->duration_us = (int64_t)(seconds * 1e6);
}

static void every_request_once(void **state)
{
    struct run_config config = config_of(2, BATCH_STATIC, 64);
    struct run_result result;
    struct trace trace;
    uint64_t made = 0;

    (void)state;
    make_trace(&trace, 30, 60, 500, 100);
    assert_true(run_trace(&config, &trace, &result, &(struct err){0}));
    assert_int_equal(result.requests, trace.count);
    assert_int_equal(result.unfinished, 0);
    assert_int_equal(result.late, trace.count); /* config's bound is 0 */
    assert_false(result.given_up);
    assert_int_equal(result.output_tokens, trace.output_tokens);
    assert_int_equal(result.prompt_tokens, trace.prompt_tokens);
    for (uint32_t h = 0; h < result.hours_count; h++)
        made += result.hours[h].output_tokens;
    assert_int_equal(made, trace.output_tokens); /* by steps and by requests */
    for (uint64_t i = 0; i < result.requests; i++) {
        assert_true(isfinite(result.latency_s[i]));
        assert_true(i == 0 || result.latency_s[i] >= result.latency_s[i - 1]);
    }
    assert_true(result.busy_hours <= result.node_hours);
    assert_true(result.utilisation > 0);
    assert_true(result.utilisation < result.busy_hours / result.node_hours);
    assert_true(result.latency_mean_s > (double)run_quantile(result.first_s, result.requests, 0.1));
    run_result_free(&result);
    trace_free(&trace);
}

/* A job on one node keeps it busy from the first to the last moment. What it does is never more
 * than a node can do, however long its steps, and a batch that waits for its longest answer does
 * less. */
static void no_node_does_more_than_it_can(void **state)
{
    static const enum batch_policy_kind kinds[] = {BATCH_STATIC, BATCH_ADAPTIVE, BATCH_STATIC};
    struct run_result results[3];
    struct trace trace;

    (void)state;
    make_trace(&trace, 1000, 4, 1000, 200);
    for (int i = 0; i < 3; i++) {
        struct run_config config = config_of(1, kinds[i], 1024);
        config.classic = i == 2;
        config.policy.step_us_target = 0;
        assert_true(run_trace(&config, &trace, &results[i], &(struct err){0}));
        double busy = results[i].busy_hours / results[i].node_hours;
        assert_true(busy > 0.98 && busy <= 1);
        assert_true(results[i].utilisation > 0.3 && results[i].utilisation < busy);
    }
    assert_true(results[2].utilisation < 0.8 * results[0].utilisation);
    for (int i = 0; i < 3; i++)
        run_result_free(&results[i]);
    trace_free(&trace);
}

/* One node that decodes one sequence at a time is an M/G/1 queue: requests served in their order,
 * so Pollaczek and Khinchine say how long they wait. */
static void a_queue_by_the_book(void **state)
{
    struct run_config config = config_of(1, BATCH_STATIC, 1);
    struct step_model simple = {.fixed_us = 1000,
                                .kv_tokens = 1000000,
                                .max_seqs = 1,
                                .chunk_tokens = 1000000,
                                .usd_per_hour = 1};
    struct run_result result;
    struct trace trace;
    double rate = 5, service, square, wait;

    (void)state;
    config.model = &simple;
    config.tick_us = 1000;
    config.balance_us = 0;
    config.assign_ahead_percent = 100;
    config.horizon_us = (int64_t)36000 * 1000000;
    make_trace(&trace, rate, 3000, 10, 100);
    assert_true(run_trace(&config, &trace, &result, &(struct err){0}));
    service = square = 0;
    for (size_t i = 0; i < trace.count; i++) {
        double s = trace.requests[i].output_tokens * 1e-3;
        service += s / (double)trace.count;
        square += s * s / (double)trace.count;
    }
    rate = (double)trace.count / 3000;
    wait = rate * square / (2 * (1 - rate * service));
    assert_true(fabs(result.latency_mean_s / (service + wait) - 1) < 0.05);
    run_result_free(&result);
    trace_free(&trace);
}

static void the_same_seed_gives_the_same_run(void **state)
{
    struct run_config config = config_of(3, BATCH_ADAPTIVE, 32);
    struct run_result a, b;
    struct trace trace;

    (void)state;
    make_trace(&trace, 60, 40, 800, 150);
    assert_true(run_trace(&config, &trace, &a, &(struct err){0}));
    assert_true(run_trace(&config, &trace, &b, &(struct err){0}));
    assert_memory_equal(a.latency_s, b.latency_s, a.requests * sizeof *a.latency_s);
    assert_memory_equal(a.hours, b.hours, sizeof a.hours);
    assert_int_equal(a.steps, b.steps);
    assert_true(a.imbalance == b.imbalance);
    run_result_free(&a);
    run_result_free(&b);
    trace_free(&trace);
}

/* A burst on two nodes with a base of 8: the adaptive batch must not need a tuned base. */
static void adaptive_beats_a_base_that_is_too_small(void **state)
{
    struct run_config config = config_of(2, BATCH_STATIC, 8);
    struct run_result fixed, adaptive;
    struct trace trace;

    (void)state;
    make_trace(&trace, 40, 30, 300, 200);
    assert_true(run_trace(&config, &trace, &fixed, &(struct err){0}));
    config.policy.kind = BATCH_ADAPTIVE;
    assert_true(run_trace(&config, &trace, &adaptive, &(struct err){0}));
    assert_true(adaptive.duration_s * 1.5 < fixed.duration_s);
    assert_true(run_quantile(adaptive.latency_s, trace.count, 0.99) <
                0.5 * run_quantile(fixed.latency_s, trace.count, 0.99));
    run_result_free(&fixed);
    run_result_free(&adaptive);
    trace_free(&trace);
}

/* Prompts of four blocks, of which three are one of 40 templates'. */
static void give_blocks(struct trace *trace)
{
    enum { COUNT = 4, TEMPLATES = 40 };
    struct random random = {3};

    trace->blocks = calloc(trace->count, COUNT * sizeof *trace->blocks);
    trace->blocks_limit = TEMPLATES * COUNT + (uint32_t)trace->count;
    trace->prompt_tokens = trace->count * COUNT * TRACE_BLOCK_TOKENS;
    for (size_t i = 0; i < trace->count; i++) {
        struct trace_request *request = &trace->requests[i];
        uint32_t template = (uint32_t)(random_u64(&random) % TEMPLATES);
        request->prompt_tokens = COUNT * TRACE_BLOCK_TOKENS;
        request->blocks = COUNT;
        request->blocks_at = i * COUNT;
        for (uint32_t block = 0; block < COUNT - 1; block++)
            trace->blocks[i * COUNT + block] = template * COUNT + block;
        trace->blocks[i * COUNT + COUNT - 1] = TEMPLATES * COUNT + (uint32_t)i;
    }
}

/* Of 600 prompts all but the first of each template could be three quarters cached: 70 %. Without
 * affinity each of four nodes has to compute each template once: 55 %. */
static void affinity_finds_more_in_caches(void **state)
{
    struct run_config config = config_of(4, BATCH_STATIC, 64);
    struct run_result off, on, shared;
    struct trace trace;

    (void)state;
    make_trace(&trace, 15, 40, 500, 100);
    give_blocks(&trace);
    config.caches = RUN_CACHES_NODE;
    assert_true(run_trace(&config, &trace, &off, &(struct err){0}));
    config.prefix_affinity_weight = 1;
    assert_true(run_trace(&config, &trace, &on, &(struct err){0}));
    config.caches = RUN_CACHES_SHARED;
    assert_true(run_trace(&config, &trace, &shared, &(struct err){0}));
    assert_int_equal(on.unfinished + off.unfinished + shared.unfinished, 0);
    assert_int_equal(off.affinity_assignments, 0);
    assert_true(off.cached_share < 0.6);
    assert_true(on.cached_share > off.cached_share + 0.05);
    assert_true(on.affinity_assignments > 0);
    assert_true(fabs(on.cached_share_expected - on.cached_share) < 0.15);
    assert_true(shared.cached_share >= on.cached_share && shared.cached_share < 0.75);
    assert_true(on.latency_mean_s < off.latency_mean_s);
    run_result_free(&off);
    run_result_free(&on);
    run_result_free(&shared);
    trace_free(&trace);
}

static void late_runs_are_given_up(void **state)
{
    struct run_config config = config_of(1, BATCH_STATIC, 1);
    struct run_result result;
    struct trace trace;

    (void)state;
    make_trace(&trace, 10, 60, 100, 100);
    config.late_base_us = 10000000;
    config.late_share = 0.01;
    assert_true(run_trace(&config, &trace, &result, &(struct err){0}));
    assert_true(result.given_up);
    assert_true(result.unfinished > 0);
    assert_true(result.late > trace.count / 100);
    assert_true(isinf(run_quantile(result.latency_s, result.requests, 0.99)));
    assert_true(result.duration_s < 60);
    run_result_free(&result);
    trace_free(&trace);
}

static void nodes_come_and_go_and_nothing_is_lost(void **state)
{
    struct run_config config = config_of(6, BATCH_ADAPTIVE, 64);
    struct run_result result;
    struct trace trace;

    (void)state;
    /* A minute of rush, then five of calm. */
    make_trace(&trace, 60, 60, 500, 300);
    for (int i = 0; i < 300 && trace.count < trace.capacity; i++) {
        trace.requests[trace.count++] = (struct trace_request){
            .arrival_us = (60 + i) * 1000000LL, .prompt_tokens = 100, .output_tokens = 50};
        trace.prompt_tokens += 100;
        trace.output_tokens += 50;
    }
    config.scale = true;
    assert_true(run_trace(&config, &trace, &result, &(struct err){0}));
    assert_int_equal(result.unfinished, 0);
    assert_int_equal(result.output_tokens, trace.output_tokens);
    assert_int_equal(result.nodes_min, 1);
    assert_true(result.nodes_max >= 2);
    assert_true(result.node_hours < 6 * result.duration_s / 3600);
    assert_true(result.node_hours > result.duration_s / 3600);
    run_result_free(&result);
    trace_free(&trace);
}

/* The core learns from a heartbeat that a node drains, and gives it requests until then. They come
 * back, and what their return brings about belongs to the next transaction. */
static void a_draining_node_gives_back(void **state)
{
    struct run_config config = config_of(6, BATCH_ADAPTIVE, 64);
    struct run_result result;
    struct trace trace;

    (void)state;
    make_trace(&trace, 60, 120, 500, 300);
    for (size_t i = 0; i < trace.count; i++) /* a rush, and a third of it */
        if (trace.requests[i].arrival_us > 60000000)
            trace.requests[i].arrival_us += 2 * (trace.requests[i].arrival_us - 60000000);
    config.scale = true;
    config.node_start_us = 20300000; /* heartbeats 300 ms after the planner's decisions */
    config.capacity.planner.scale_down_ms = 1000;
    config.capacity.planner.base_batch = 8;
    assert_true(run_trace(&config, &trace, &result, &(struct err){0}));
    assert_int_equal(result.unfinished, 0);
    assert_int_equal(result.output_tokens, trace.output_tokens);
    assert_true(result.nodes_max >= 3);
    run_result_free(&result);
    trace_free(&trace);
}

/* Seven tasks load the ranks more evenly than the one that is left where the mix has drifted far; a
 * quick drift is what forecasts of the experts' loads are wrong about. */
static void tasks_drift(void **state)
{
    struct run_config config = config_of(1, BATCH_STATIC, 64);
    struct run_result mixed, alone, quick;
    struct trace trace;

    (void)state;
    make_trace(&trace, 20, 120, 500, 100);
    config.balance_us = 0;
    assert_true(run_trace(&config, &trace, &mixed, &(struct err){0}));
    config.task_drift = 10;
    config.task_period_us = (int64_t)86400 * 1000000;
    assert_true(run_trace(&config, &trace, &alone, &(struct err){0}));
    assert_true(alone.imbalance > 1.1 * mixed.imbalance);
    assert_true(mixed.expert_forecast_error == 0); /* none was made */
    run_result_free(&mixed);
    run_result_free(&alone);

    config.balance_us = 10000000;
    assert_true(run_trace(&config, &trace, &alone, &(struct err){0}));
    config.task_period_us = 120000000;
    assert_true(run_trace(&config, &trace, &quick, &(struct err){0}));
    assert_true(alone.expert_forecast_error < 0.1);
    assert_true(quick.expert_forecast_error > 2 * alone.expert_forecast_error);
    assert_true(quick.expert_forecast_error < 2); /* shares that have nothing in common */
    run_result_free(&alone);
    run_result_free(&quick);
    trace_free(&trace);
}

/* A node with twice the requests that it can do: bulk waits, interactive ones begin as if it were
 * empty. */
static void interactive_begins_at_once(void **state)
{
    struct run_config config = config_of(1, BATCH_ADAPTIVE, 64);
    struct run_result result;
    struct trace trace;

    (void)state;
    make_trace(&trace, 120, 60, 500, 300);
    config.interactive = 0.1;
    assert_true(run_trace(&config, &trace, &result, &(struct err){0}));
    const struct run_part *now = &result.classes[CLASS_INTERACTIVE];
    const struct run_part *bulk = &result.classes[CLASS_BULK];
    assert_int_equal(now->requests + bulk->requests, trace.count);
    assert_true(now->requests > trace.count / 12 && now->requests < trace.count / 8);
    assert_true(run_quantile(bulk->first_s, bulk->requests, 0.5) > 10);
    assert_true(run_quantile(now->first_s, now->requests, 0.99) < 1);
    assert_true(run_quantile(now->latency_s, now->requests, 0.5) <
                run_quantile(bulk->latency_s, bulk->requests, 0.5));
    run_result_free(&result);
    trace_free(&trace);
}

/* Requests of all lengths wait for places, the median for a minute and a half. Kept apart, short
 * ones begin at once; where all are long, nothing is kept. */
static void short_ones_begin_at_once(void **state)
{
    struct run_config config = config_of(1, BATCH_STATIC, 32);
    struct run_result together, apart;
    struct trace trace;

    (void)state;
    make_trace(&trace, 4, 200, 500, 1000);
    config.split_tokens = 1024;
    config.long_share_percent = 50;
    assert_true(run_trace(&config, &trace, &together, &(struct err){0}));
    config.long_request_tokens = 1024;
    assert_true(run_trace(&config, &trace, &apart, &(struct err){0}));
    const struct run_part *before = together.lengths, *after = apart.lengths;
    assert_int_equal(before[LENGTH_SHORT].requests + before[LENGTH_LONG].requests, trace.count);
    assert_int_equal(before[LENGTH_SHORT].requests, after[LENGTH_SHORT].requests);
    assert_true(before[LENGTH_SHORT].requests > trace.count / 8);
    assert_true(run_quantile(before[LENGTH_SHORT].first_s, before[LENGTH_SHORT].requests, 0.5) >
                20);
    assert_true(run_quantile(after[LENGTH_SHORT].first_s, after[LENGTH_SHORT].requests, 0.99) < 5);
    assert_true(after[LENGTH_SHORT].in_time > before[LENGTH_SHORT].in_time);
    assert_true(apart.duration_s < 1.1 * together.duration_s);
    run_result_free(&apart);
    config.long_request_tokens = 1;
    assert_true(run_trace(&config, &trace, &apart, &(struct err){0}));
    assert_true(apart.duration_s < 1.02 * together.duration_s);
    run_result_free(&apart);
    run_result_free(&together);
    trace_free(&trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_request_once),
        cmocka_unit_test(no_node_does_more_than_it_can),
        cmocka_unit_test(a_queue_by_the_book),
        cmocka_unit_test(the_same_seed_gives_the_same_run),
        cmocka_unit_test(adaptive_beats_a_base_that_is_too_small),
        cmocka_unit_test(affinity_finds_more_in_caches),
        cmocka_unit_test(late_runs_are_given_up),
        cmocka_unit_test(nodes_come_and_go_and_nothing_is_lost),
        cmocka_unit_test(a_draining_node_gives_back),
        cmocka_unit_test(tasks_drift),
        cmocka_unit_test(interactive_begins_at_once),
        cmocka_unit_test(short_ones_begin_at_once),
    };

    return cmocka_run_group_tests(tests, open_models, NULL);
}
