/* SPDX-License-Identifier: Apache-2.0
 *
 * The clock without jumps: hand-worked steps of the wall clock, both ways.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "scheduler/steady.h"

#define SECOND_US INT64_C(1000000)

static void test_follows_the_monotonic_clock(void **state)
{
    struct steady steady;

    (void)state;
    steady_init(&steady, 1000000, 50 * SECOND_US);
    assert_int_equal(steady_now_ms(&steady, 1000000, 50 * SECOND_US), 1000000);
    assert_int_equal(steady_now_ms(&steady, 1003000, 53 * SECOND_US), 1003000);
}

/* The wall clock is set 5 s forward: 3 s later 3.3 s have passed, and after 50 s it is level. */
static void test_works_off_a_step_forward(void **state)
{
    struct steady steady;

    (void)state;
    steady_init(&steady, 1000000, 0);
    assert_int_equal(steady_now_ms(&steady, 1008000, 3 * SECOND_US), 1003300);
    assert_int_equal(steady_now_ms(&steady, 1055000, 50 * SECOND_US), 1055000);
}

/* Set 5 s back: time goes on at nine tenths, never backward. */
static void test_works_off_a_step_back(void **state)
{
    struct steady steady;

    (void)state;
    steady_init(&steady, 1000000, 0);
    assert_int_equal(steady_now_ms(&steady, 996000, SECOND_US), 1000900);
    assert_int_equal(steady_now_ms(&steady, 1055000, 60 * SECOND_US), 1055000);
}

/* A thousand readings, 1 us apart, work off as much as one reading after 1 ms. */
static void test_counts_short_intervals(void **state)
{
    struct steady steady;

    (void)state;
    steady_init(&steady, 1000000, 0);
    for (int64_t us = 1; us <= 1000; us++)
        steady_now_ms(&steady, 1005001, us);
    assert_int_equal(steady.wall_ns, INT64_C(1000001100000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_follows_the_monotonic_clock),
        cmocka_unit_test(test_works_off_a_step_forward),
        cmocka_unit_test(test_works_off_a_step_back),
        cmocka_unit_test(test_counts_short_intervals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
