/* SPDX-License-Identifier: Apache-2.0
 *
 * The planner: the formula by hand, each bound, then hysteresis over time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/planner.h"

static const struct planner_config config = {.workers_min = 1,
                                             .workers_max = 10,
                                             .base_batch = 32,
                                             .utilisation = 0.8,
                                             .drain_ms = 60000,
                                             .scale_down_ms = 300000};

static uint32_t wish(struct planner_load load)
{
    struct planner planner;
    struct planner_decision decision;

    planner_init(&planner, &config);
    planner_decide(&planner, &load, 0, &decision);
    return decision.wish;
}

static void test_rate_over_speed(void **state)
{
    (void)state;
    /* 2000 arriving + 60,000 waiting over 60 s = 3000 tok/s; 0.8 * 1000 each: 3.75 workers. */
    assert_int_equal(wish((struct planner_load){.outstanding_requests = 1000,
                                                .waiting_tokens = 60000,
                                                .forecast_tokens_per_s = 2000,
                                                .speed_tokens_per_s = 1000}),
                     4);
}

static void test_bounds(void **state)
{
    struct planner_load load = {.outstanding_requests = 1000000,
                                .waiting_tokens = 1e9,
                                .forecast_tokens_per_s = 1e6,
                                .speed_tokens_per_s = 100};

    (void)state;
    assert_int_equal(wish(load), 10); /* workers_max */
    load.outstanding_requests = 65;   /* 65 / 32 */
    assert_int_equal(wish(load), 3);
    load.outstanding_requests = 1;
    assert_int_equal(wish(load), 1);
    load.outstanding_requests = 0; /* nothing to do: workers_min, whatever the forecast */
    assert_int_equal(wish(load), 1);
    /* Speed not known: by the backlog alone. */
    assert_int_equal(wish((struct planner_load){.outstanding_requests = 64}), 2);
}

static void test_up_at_once_down_after_the_window(void **state)
{
    struct planner planner;
    struct planner_decision decision;
    struct planner_load high = {.outstanding_requests = 1000,
                                .forecast_tokens_per_s = 4000,
                                .speed_tokens_per_s = 1000,
                                .workers = 5};
    struct planner_load low = high;

    (void)state;
    low.forecast_tokens_per_s = 1000;
    planner_init(&planner, &config);
    planner_decide(&planner, &low, 0, &decision);
    assert_int_equal(decision.wanted, 2);
    planner_decide(&planner, &high, 1000, &decision);
    assert_int_equal(decision.wanted, 5);
    for (int64_t now = 2000; now < 301000; now += 1000) {
        planner_decide(&planner, &low, now, &decision);
        assert_int_equal(decision.wish, 2);
        assert_int_equal(decision.wanted, 5);
        assert_non_null(strstr(decision.reason, "kept for the scale-down window"));
    }
    planner_decide(&planner, &low, 301000, &decision);
    assert_int_equal(decision.wanted, 2);
}

/* None is started without a base batch, none that was asked for is given up for the lack of one. */
static void test_base_batches_bound_starts_only(void **state)
{
    struct planner_load load = {.outstanding_requests = 100,
                                .forecast_tokens_per_s = 4000,
                                .speed_tokens_per_s = 1000,
                                .workers = 5};

    (void)state;
    assert_int_equal(wish(load), 5); /* 100 / 32 would be 4 */
    load.forecast_tokens_per_s = 7000;
    assert_int_equal(wish(load), 5); /* the rate asks for 9, and there is no batch for a sixth */
    load.outstanding_requests = 161;
    assert_int_equal(wish(load), 6);
    load.outstanding_requests = 3; /* a request for each */
    assert_int_equal(wish(load), 3);
    load.outstanding_requests = 0;
    assert_int_equal(wish(load), 1);
}

/* Workers that run eight sequences at most would leave 24 waiting before a second one came. */
static void test_the_most_that_workers_run_is_a_base_batch(void **state)
{
    struct planner_load load = {.outstanding_requests = 17,
                                .forecast_tokens_per_s = 1e6,
                                .speed_tokens_per_s = 1000,
                                .workers = 1,
                                .batch_most = 8};

    (void)state;
    assert_int_equal(wish(load), 3);
    load.batch_most = 64; /* the base is less */
    assert_int_equal(wish(load), 1);
}

/* A worker takes minutes to start; it is not called off because a wish falters meanwhile. */
static void test_what_is_being_started_is_not_called_off(void **state)
{
    struct planner planner;
    struct planner_decision decision;
    struct planner_load load = {.outstanding_requests = 1000,
                                .forecast_tokens_per_s = 4000,
                                .speed_tokens_per_s = 1000,
                                .workers = 2};

    (void)state;
    planner_init(&planner, &config);
    planner_decide(&planner, &load, 0, &decision);
    assert_int_equal(decision.wanted, 5);
    load.forecast_tokens_per_s = 800;
    planner_decide(&planner, &load, 1000, &decision);
    assert_int_equal(decision.wish, 1);
    assert_int_equal(decision.wanted, 5);
    load.forecast_tokens_per_s = 4000; /* back, with requests for the five alone */
    load.outstanding_requests = 50;
    planner_decide(&planner, &load, 2000, &decision);
    assert_int_equal(decision.wish, 5);
    planner_decide(&planner, &load, 400000, &decision);
    assert_int_equal(decision.wanted, 5);
}

/* Sequences in each of so many workers at 40,000 tokens/s in all, with steps of 12 ms and 65 us a
 * sequence: those that answer as many tokens as arrive. */
static double sequences(uint32_t workers)
{
    double tokens_per_us = 40000.0 / workers / 1e6;

    return tokens_per_us * 12000 / (1 - tokens_per_us * 65);
}

/* A fleet with room to spare holds few requests, and a large base batch must not take that for a
 * lack of work: four workers hold 1,371 of them, which is two batches of 800, and two workers could
 * not bear the traffic. */
static void test_a_large_base_does_not_swing(void **state)
{
    const struct planner_config large = {.workers_min = 1,
                                         .workers_max = 10,
                                         .base_batch = 800,
                                         .utilisation = 0.8,
                                         .drain_ms = 60000,
                                         .scale_down_ms = 1000};
    struct planner planner;
    struct planner_decision decision;

    (void)state;
    planner_init(&planner, &large);
    planner_keep(&planner, 4, 0);
    for (int minute = 1; minute <= 60; minute++) {
        const struct planner_load load = {.outstanding_requests = (uint64_t)(4 * sequences(4)),
                                          .forecast_tokens_per_s = 40000,
                                          .speed_tokens_per_s = 13000,
                                          .workers = 4};
        planner_decide(&planner, &load, minute * 60000, &decision);
        assert_int_equal(decision.wanted, 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rate_over_speed),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_up_at_once_down_after_the_window),
        cmocka_unit_test(test_base_batches_bound_starts_only),
        cmocka_unit_test(test_the_most_that_workers_run_is_a_base_batch),
        cmocka_unit_test(test_what_is_being_started_is_not_called_off),
        cmocka_unit_test(test_a_large_base_does_not_swing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
