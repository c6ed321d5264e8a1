/* SPDX-License-Identifier: Apache-2.0
 *
 * From the core's counters to wanted workers: rates, windows, speed and the first decision.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/capacity.h"

/* Ten workers at most, base batch 4; a forecast two windows of 100 s ahead; a decision every
 * second, the first after three. */
static struct capacity_config config_of(void)
{
    return (struct capacity_config){
        .planner = {.workers_min = 1,
                    .workers_max = 10,
                    .base_batch = 4,
                    .utilisation = 0.5,
                    .drain_ms = 100000,
                    .scale_down_ms = 60000},
        .predictor = predict_defaults(PREDICT_CONSTANT),
        .forecasts = true,
        .windows_ahead = 2,
        .window_ms = 100000,
        .interval_ms = 1000,
        .settle_ms = 3000,
    };
}

static void open_at(struct capacity *capacity, struct capacity_config config)
{
    capacity_init(capacity, &config, 0);
}

static void assert_near(double value, double expected)
{
    if (fabs(value - expected) > 1e-6 * fabs(expected))
        fail_msg("%f is not %f", value, expected);
}

static void decides_once_an_interval(void **state)
{
    struct capacity capacity;
    struct capacity_counts counts = {.workers = 1};

    (void)state;
    open_at(&capacity, config_of());
    assert_false(capacity_update(&capacity, &counts, 1000)); /* not settled */
    assert_false(capacity_update(&capacity, &counts, 2999));
    assert_true(capacity_update(&capacity, &counts, 4000));
    assert_false(capacity_update(&capacity, &counts, 4999));
    assert_true(capacity_update(&capacity, &counts, 5000));
    assert_int_equal(capacity.decision.wanted, 1);
}

/* A successor finds four workers and nothing to do: they stay until the scale-down time is over. */
static void what_runs_is_kept_at_first(void **state)
{
    struct capacity capacity;
    struct capacity_counts counts = {.workers = 4};

    (void)state;
    open_at(&capacity, config_of());
    assert_true(capacity_update(&capacity, &counts, 3000));
    assert_int_equal(capacity.decision.wanted, 4);
    assert_int_equal(capacity.decision.wish, 1);
    assert_true(capacity_update(&capacity, &counts, 62999));
    assert_int_equal(capacity.decision.wanted, 4);
    assert_true(capacity_update(&capacity, &counts, 64000));
    assert_int_equal(capacity.decision.wanted, 1);
}

static void speed_is_of_busy_time(void **state)
{
    struct capacity capacity;
    struct capacity_counts counts = {.decode_tokens = 600, .busy_us = 2000000};

    (void)state;
    open_at(&capacity, config_of());
    capacity_update(&capacity, &counts, 4000);
    assert_near(capacity.speed, 300);  /* the first is taken as it is */
    for (int64_t s = 5; s < 1000; s++) /* idle */
        capacity_update(&capacity, &counts, s * 1000);
    assert_near(capacity.speed, 300);
    /* A minute of steps at 100: 1 - 1/e of the way there. */
    counts.decode_tokens += 6000;
    counts.busy_us += 60000000;
    capacity_update(&capacity, &counts, 1000000);
    assert_near(capacity.speed, 300 - 200 * (1 - exp(-1)));
    /* 40 ms of steps say nothing. */
    counts.decode_tokens += 4000;
    counts.busy_us += 40000;
    capacity_update(&capacity, &counts, 1001000);
    assert_near(capacity.speed, 300 - 200 * (1 - exp(-1)));
}

/* Requests of 300 estimated tokens that end after 60: everything is in output tokens. */
static void estimates_become_output_tokens(void **state)
{
    struct capacity capacity;
    struct capacity_counts counts = {.finished_tokens = 3000,
                                     .output_tokens = 600,
                                     .decode_tokens = 600,
                                     .busy_us = 6000000,
                                     .waiting_requests = 50,
                                     .waiting_tokens = 15000,
                                     .in_flight = 6,
                                     .workers = 1};

    (void)state;
    open_at(&capacity, config_of());
    assert_true(capacity_update(&capacity, &counts, 3000));
    assert_near(capacity.output_share, 0.2);
    assert_near(capacity.load.waiting_tokens, 3000);
    assert_int_equal(capacity.load.outstanding_requests, 56);
    /* 3000 over 100 s with half of 100 tok/s: 0.6. */
    assert_int_equal(capacity.decision.wanted, 1);
    /* Ten times as much has no room and is still in the topics: 33000 / 100 / 50 = 6.6. */
    counts.unread_requests = 500;
    assert_true(capacity_update(&capacity, &counts, 4000));
    assert_near(capacity.load.waiting_tokens, 33000);
    assert_int_equal(capacity.decision.wanted, 7);
    /* The ratio follows, with 20,000 tokens to the constant. */
    counts.finished_tokens += 20000;
    counts.output_tokens += 20000;
    capacity_update(&capacity, &counts, 5000);
    assert_near(capacity.output_share, 0.2 + 0.8 * (20000.0 / 23000));
}

static void traffic_is_forecast_by_windows(void **state)
{
    struct capacity_config config = config_of();
    struct capacity_counts counts = {.decode_tokens = 1000,
                                     .busy_us = 10000000,
                                     .finished_tokens = 1,
                                     .output_tokens = 1,
                                     .in_flight = 1000,
                                     .workers = 1};
    struct capacity capacity;

    (void)state;
    open_at(&capacity, config);
    for (int64_t s = 1; s < 100; s++) { /* 200 tokens a second */
        counts.arrived_tokens += 200;
        capacity_update(&capacity, &counts, s * 1000);
    }
    /* No window is over: the rate of about the last minute. */
    assert_near(capacity.load.forecast_tokens_per_s, 200 * (1 - exp(-99.0 / 60)));
    counts.arrived_tokens += 200;
    capacity_update(&capacity, &counts, 100000);
    assert_near(capacity.load.forecast_tokens_per_s, 200);
    assert_int_equal(capacity.decision.wanted, 4); /* with half of 100 each */
    for (int64_t s = 101; s < 200; s++)            /* nothing comes; the window is still open */
        capacity_update(&capacity, &counts, s * 1000);
    assert_near(capacity.load.forecast_tokens_per_s, 200);
    capacity_update(&capacity, &counts, 200000);
    assert_true(capacity.load.forecast_tokens_per_s == 0);
    assert_int_equal(capacity.decision.wish, 1);
}

static void without_prediction_the_last_minute_counts(void **state)
{
    struct capacity_config config = config_of();
    struct capacity_counts counts = {0};
    struct capacity capacity;

    (void)state;
    config.forecasts = false;
    open_at(&capacity, config);
    for (int64_t s = 1; s <= 300; s++) {
        counts.arrived_tokens += s <= 240 ? 200 : 0;
        capacity_update(&capacity, &counts, s * 1000);
    }
    assert_near(capacity.load.forecast_tokens_per_s, 200 * (1 - exp(-4)) * exp(-1));
}

/* Nobody called for three windows: what came is spread over them. */
static void a_gap_is_spread(void **state)
{
    struct capacity_counts counts = {.arrived_tokens = 60000};
    struct capacity capacity;

    (void)state;
    open_at(&capacity, config_of());
    capacity_update(&capacity, &counts, 350000);
    assert_int_equal(capacity.predict.count, 3);
    assert_near(capacity.load.forecast_tokens_per_s, 200);
    counts.arrived_tokens += 100;
    capacity_update(&capacity, &counts, 400000); /* the fourth began at 300 s */
    assert_int_equal(capacity.predict.count, 4);
    assert_near(capacity.load.forecast_tokens_per_s, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decides_once_an_interval),
        cmocka_unit_test(what_runs_is_kept_at_first),
        cmocka_unit_test(speed_is_of_busy_time),
        cmocka_unit_test(estimates_become_output_tokens),
        cmocka_unit_test(traffic_is_forecast_by_windows),
        cmocka_unit_test(without_prediction_the_last_minute_counts),
        cmocka_unit_test(a_gap_is_spread),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
