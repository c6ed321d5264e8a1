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

static void test_an_old_wish_starts_nobody(void **state)
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
    load.forecast_tokens_per_s = 800; /* the peak went before workers came up */
    planner_decide(&planner, &load, 1000, &decision);
    assert_int_equal(decision.wish, 1);
    assert_int_equal(decision.wanted, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rate_over_speed),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_up_at_once_down_after_the_window),
        cmocka_unit_test(test_an_old_wish_starts_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
