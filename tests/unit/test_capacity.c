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

static void near_by(double value, double expected, double share)
{
    if (fabs(value - expected) > share * fabs(expected))
        fail_msg("%f is not about %f", value, expected);
}

/* Steps of 10 ms and 1 ms a row; a batch may have 20. */
static void speed_is_that_of_a_full_worker(void **state)
{
    struct capacity capacity;
    struct capacity_counts counts = {.workers = 2, .batch_most = 40};

    (void)state;
    open_at(&capacity, config_of());
    counts.steps = 1000; /* of one row: 91 tok/s. No line yet, and no promise. */
    counts.decode_tokens = 1000;
    counts.busy_us = 11000000;
    capacity_update(&capacity, &counts, 100000);
    near_by(capacity.load.speed_tokens_per_s, 91, 0.01);
    counts.steps += 1000; /* of ten rows: 500 tok/s */
    counts.decode_tokens += 10000;
    counts.busy_us += 20000000;
    capacity_update(&capacity, &counts, 200000);
    near_by(capacity.load.speed_tokens_per_s, 20 / 0.030, 0.01);
    assert_int_equal(capacity.load.batch_most, 20);
    for (int64_t s = 201; s < 1000; s++) /* idle */
        capacity_update(&capacity, &counts, s * 1000);
    near_by(capacity.load.speed_tokens_per_s, 20 / 0.030, 0.01);
    counts.steps += 1; /* 40 ms of steps say nothing */
    counts.decode_tokens += 4000;
    counts.busy_us += 40000;
    capacity_update(&capacity, &counts, 1000000);
    near_by(capacity.load.speed_tokens_per_s, 20 / 0.030, 0.01);
    /* No further than eight times the 9.7 rows of now. */
    counts.batch_most = 2000;
    capacity_update(&capacity, &counts, 1001000);
    near_by(capacity.load.speed_tokens_per_s, 77.4 / 0.0874, 0.01);
    /* A step of 25 ms has 15 rows. */
    capacity.config.step_us_target = 25000;
    capacity_update(&capacity, &counts, 1002000);
    near_by(capacity.load.speed_tokens_per_s, 15 / 0.025, 0.01);
}

/* A worker that is never idle does not ask for another: with tokens per busy second for a speed,
 * any number of workers that keep up would be too few by the share that is left free. */
static void a_busy_worker_with_room_is_enough(void **state)
{
    struct capacity capacity;
    struct capacity_counts counts = {
        .workers = 1, .batch_most = 64, .finished_tokens = 1, .output_tokens = 1, .in_flight = 20};

    (void)state;
    open_at(&capacity, config_of());
    for (int64_t s = 1; s <= 300; s++) { /* 2 to 8 rows, without pause */
        uint64_t rows = 2 + (uint64_t)(s / 10 % 7);
        counts.steps += 1000000 / (10000 + 1000 * rows);
        counts.decode_tokens += rows * (1000000 / (10000 + 1000 * rows));
        counts.arrived_tokens += rows * (1000000 / (10000 + 1000 * rows));
        counts.busy_us += 1000000;
        capacity_update(&capacity, &counts, s * 1000);
    }
    assert_true(capacity.load.forecast_tokens_per_s > 300);
    assert_int_equal(capacity.decision.wish, 1);
}

static void counts_come_from_gauges(void **state)
{
    const struct scheduler_gauges gauges = {
        .classes = {{.waiting_requests = 1, .waiting_tokens = 10},
                    {.waiting_requests = 2, .waiting_tokens = 30}},
        .in_flight = 4,
        .paused = true,
        .workers_alive = 9,
        .workers_serving = 6,
        .batch_most = 96,
        .work = {.arrived_tokens = 11,
                 .finished_tokens = 12,
                 .output_tokens = 13,
                 .steps = 14,
                 .decode_tokens = 15,
                 .busy_us = 16},
    };
    struct capacity_counts counts = capacity_count(&gauges, 8);

    (void)state;
    assert_int_equal(counts.waiting_requests, 3);
    assert_int_equal(counts.waiting_tokens, 40);
    assert_int_equal(counts.unread_requests, 5);
    assert_int_equal(counts.in_flight, 4);
    assert_int_equal(counts.workers, 6);
    assert_int_equal(counts.batch_most, 96);
    assert_int_equal(counts.arrived_tokens, 11);
    assert_int_equal(counts.finished_tokens, 12);
    assert_int_equal(counts.output_tokens, 13);
    assert_int_equal(counts.steps, 14);
    assert_int_equal(counts.decode_tokens, 15);
    assert_int_equal(counts.busy_us, 16);
}

/* Requests of 300 estimated tokens that end after 60: everything is in output tokens. */
static void estimates_become_output_tokens(void **state)
{
    struct capacity capacity;
    struct capacity_counts counts = {.finished_tokens = 3000,
                                     .output_tokens = 600,
                                     .steps = 1200, /* of half a row */
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
    struct capacity_counts counts = {.steps = 1000,
                                     .decode_tokens = 1000,
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
    assert_int_equal(capacity.predict.series.count, 3);
    assert_near(capacity.load.forecast_tokens_per_s, 200);
    counts.arrived_tokens += 100;
    capacity_update(&capacity, &counts, 400000); /* the fourth began at 300 s */
    assert_int_equal(capacity.predict.series.count, 4);
    assert_near(capacity.load.forecast_tokens_per_s, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decides_once_an_interval),
        cmocka_unit_test(what_runs_is_kept_at_first),
        cmocka_unit_test(speed_is_that_of_a_full_worker),
        cmocka_unit_test(a_busy_worker_with_room_is_enough),
        cmocka_unit_test(counts_come_from_gauges),
        cmocka_unit_test(estimates_become_output_tokens),
        cmocka_unit_test(traffic_is_forecast_by_windows),
        cmocka_unit_test(without_prediction_the_last_minute_counts),
        cmocka_unit_test(a_gap_is_spread),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
