/* SPDX-License-Identifier: Apache-2.0
 *
 * Flows against requests: one hour of the published day and one of the public
 * day trace, at a few nodes' share, must agree within 3 % in what was made and
 * in the mean latency.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "scheduler/sim/fluid.h"
#include "tests/unit/sim_fixture.h"

enum { NODES = 4, WINDOWS = 6, WINDOW_US = 600000000 };

static struct sim_fixture fixture;
static char path[] = "/tmp/test_fluid_XXXXXX";

static int open_models(void **state)
{
    int fd = mkstemp(path);

    (void)state;
    return fd >= 0 && close(fd) == 0 && sim_fixture_open(&fixture) ? 0 : -1;
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

static struct run_config config_of(enum batch_policy_kind kind, double cached)
{
    struct run_config config = sim_fixture_config(&fixture, NODES, kind, 800);

    config.policy.kv_share = config.kv_share = 0.95;
    config.cached_share = cached;
    config.capacity.planner.workers_min = NODES;
    config.capacity.window_ms = config.capacity.interval_ms = 60000;
    config.horizon_us = 0;
    return config;
}

/* The windows as they were drawn: what Poisson made of the rates is not what is compared. */
static void windows_of(const struct trace *trace, const struct trace_window hour[WINDOWS],
                       struct trace_window drawn[WINDOWS])
{
    memcpy(drawn, hour, WINDOWS * sizeof *drawn);
    for (int i = 0; i < WINDOWS; i++)
        drawn[i].rate = drawn[i].prompt = drawn[i].output = 0;
    for (size_t i = 0; i < trace->count; i++) {
        struct trace_window *window = &drawn[trace->requests[i].arrival_us / WINDOW_US];
        window->rate++;
        window->prompt += trace->requests[i].prompt_tokens;
        window->output += trace->requests[i].output_tokens;
    }
    for (int i = 0; i < WINDOWS; i++) {
        drawn[i].prompt /= drawn[i].rate;
        drawn[i].output /= drawn[i].rate;
        drawn[i].rate /= WINDOW_US / 1e6;
    }
}

static void read_hour(struct trace *trace, const struct trace_window hour[WINDOWS])
{
    const struct trace_options options = {.path = path, .scale = 1, .seed = 3};
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fprintf(file, "window_start_s,rate_rps,clients,mean_input_tokens,mean_output_tokens,"
                  "input_sigma,output_sigma\n");
    for (int i = 0; i < WINDOWS; i++)
        fprintf(file, "%d,%g,1,%g,%g,%g,%g\n", 600 * i, hour[i].rate, hour[i].prompt,
                hour[i].output, hour[i].prompt_sigma, hour[i].output_sigma);
    fclose(file);
    assert_true(trace_read(trace, &options, &(struct err){0}));
}

static void agree(const char *what, double steps, double flows)
{
    if (fabs(flows / steps - 1) > 0.03)
        fail_msg("%s: %.6g by steps, %.6g as flows", what, steps, flows);
}

static void run_both(const struct run_config *config, const struct trace_window hour[WINDOWS])
{
    struct trace_window drawn[WINDOWS];
    struct fluid_input input = {.windows = drawn, .count = WINDOWS, .window_s = WINDOW_US / 1e6};
    struct run_result steps;
    struct fluid_result flows;
    struct trace trace;
    struct err err;

    read_hour(&trace, hour);
    windows_of(&trace, hour, drawn);
    assert_true(fluid_imbalance(&fixture.routing, 500, true, &input.imbalance, &err));
    assert_true(run_trace(config, &trace, &steps, &err));
    assert_true(fluid_run(config, &input, 10, &flows, &err));
    agree("output tokens of the hour", (double)steps.hours[0].output_tokens,
          (double)flows.hours[0].output_tokens);
    agree("prompt tokens of the hour", (double)steps.hours[0].prompt_tokens,
          (double)flows.hours[0].prompt_tokens);
    agree("mean latency", steps.latency_mean_s, flows.latency_mean_s);
    /* Not over the whole time, whose end a few long answers decide. */
    agree("hours of work", steps.utilisation * steps.node_hours,
          flows.utilisation * flows.node_hours);
    agree("busy hours of the hour", steps.hours[0].busy_hours, flows.hours[0].busy_hours);
    assert_true(fabs(flows.requests / (double)trace.count - 1) < 0.001);
    run_result_free(&steps);
    trace_free(&trace);
}

/* 10:00 to 11:00 of ops/bench/published-day, a 70th: 4 of 278 nodes. */
static void an_hour_of_the_published_day(void **state)
{
    const struct run_config fixed = config_of(BATCH_STATIC, 0.5625);
    const struct run_config adaptive = config_of(BATCH_ADAPTIVE, 0.5625);
    struct trace_window hour[WINDOWS];

    (void)state;
    for (int i = 0; i < WINDOWS; i++)
        hour[i] = (struct trace_window){
            .rate = (1943.55 + 3.4 * i) / 72, .prompt = 4383.4, .output = 1211.2};
    run_both(&fixed, hour);
    run_both(&adaptive, hour);
}

/* 03:00 to 04:00 of the public day trace. */
static void an_hour_of_the_public_day(void **state)
{
    const struct run_config fixed = config_of(BATCH_STATIC, 0);
    const struct run_config adaptive = config_of(BATCH_ADAPTIVE, 0);
    const struct trace_window hour[WINDOWS] = {
        {31.62, 761.2, 1238.0, 0.9, 1},   {29.5967, 797.0, 1293.3, 0.9, 1},
        {28.6033, 812.1, 1332.1, 0.9, 1}, {29.4267, 919.2, 1327.3, 0.9, 1},
        {29.7083, 928.0, 1310.1, 0.9, 1}, {22.8967, 925.9, 1410.9, 0.9, 1}};

    (void)state;
    run_both(&fixed, hour);
    run_both(&adaptive, hour);
}

/* 1 request/s of 100 + 100 tokens on one node, no weights of experts: with b sequences a step takes
 * 10 ms + b * (10 + 1 * 100 / 100 us), and Little says b = 100 steps of it. */
static void a_flow_by_hand(void **state)
{
    struct run_config config = config_of(BATCH_STATIC, 0);
    struct step_model simple = {.fixed_us = 10000,
                                .decode_us = 10,
                                .prefill_us = 1,
                                .kv_tokens = 1000000,
                                .max_seqs = 64,
                                .chunk_tokens = 1000,
                                .usd_per_hour = 1};
    const struct trace_window window = {.rate = 1, .prompt = 100, .output = 100};
    const struct fluid_input input = {
        .windows = &window, .count = 1, .window_s = 36000, .imbalance = 1};
    struct fluid_result flows;

    (void)state;
    config.model = &simple;
    config.nodes = 1;
    assert_true(fluid_run(&config, &input, 10, &flows, &(struct err){0}));
    /* b = 1 * 100 * (0.01 + b * 11e-6) -> b = 1.0011, the latency the same in seconds. */
    assert_true(fabs(flows.latency_mean_s - 1.0011) < 0.01);
    assert_true(fabs(flows.output_tokens - 3600000) < 200);
    assert_true(fabs(flows.node_hours - 10) < 0.01);
}

/* A node of 64 rows makes 5,000 tokens/s in steps of 12.8 ms; each minute brings as much more as
 * one of them makes, 20 minutes long. A start takes two minutes: when nodes come, more are wanted.
 */
static void nodes_arrive_while_more_are_wanted(void **state)
{
    enum { MINUTES = 20 };
    struct run_config config = config_of(BATCH_STATIC, 0);
    const struct step_model simple = {
        .decode_us = 200, .kv_tokens = 1000000, .max_seqs = 64, .chunk_tokens = 1000};
    struct trace_window rise[MINUTES];
    const struct fluid_input input = {
        .windows = rise, .count = MINUTES, .window_s = 60, .imbalance = 1};
    struct fluid_result flows;

    (void)state;
    for (int i = 0; i < MINUTES; i++)
        rise[i] = (struct trace_window){.rate = 50 * (i + 1), .prompt = 1, .output = 100};
    config.model = &simple;
    config.scale = true;
    config.capacity.planner.workers_min = 1;
    config.capacity.planner.workers_max = 1000;
    config.capacity.planner.utilisation = 1;
    config.node_start_us = 120000000;
    assert_true(fluid_run(&config, &input, 10, &flows, &(struct err){0}));
    /* 20 nodes are needed in the end, and a few more while the backlog of two minutes is worked
     * off. When nobody arrived while the wish rose, requests took 8 minutes and 210 were started.
     */
    assert_true(flows.latency_mean_s < 60);
    assert_true(flows.nodes_max < 40);
    assert_true(flows.duration_s < (MINUTES + 2) * 60);
}

static void classic_is_refused(void **state)
{
    struct run_config config = config_of(BATCH_STATIC, 0);
    struct fluid_input input = {.count = 0};
    struct fluid_result flows;
    struct err err;

    (void)state;
    assert_false(fluid_run(&config, &input, 10, &flows, &err));
    assert_non_null(strstr(err.message, "no windows"));
    config.classic = true;
    assert_false(fluid_run(&config, &input, 10, &flows, &err));
    assert_non_null(strstr(err.message, "classic"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flow_by_hand),
        cmocka_unit_test(an_hour_of_the_published_day),
        cmocka_unit_test(an_hour_of_the_public_day),
        cmocka_unit_test(nodes_arrive_while_more_are_wanted),
        cmocka_unit_test(classic_is_refused),
    };

    return cmocka_run_group_tests(tests, open_models, remove_file);
}
