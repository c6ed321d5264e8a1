/* SPDX-License-Identifier: Apache-2.0
 *
 * The speed of a full worker from steps that were not full.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "scheduler/speed.h"

static void near(double value, double expected)
{
    if (fabs(value - expected) > 0.01 * fabs(expected))
        fail_msg("%f is not about %f", value, expected);
}

static void nothing_is_known_at_first(void **state)
{
    struct speed speed = {0};

    (void)state;
    speed_observe(&speed, 0, 0, 0, 5);
    speed_observe(&speed, 5, 0, 1000, 5); /* prompts alone */
    assert_true(speed_at(&speed, 32) == 0);
    assert_true(speed_rows(&speed, 1e5) == 0);
}

/* 12 ms and 50 us a row, seen at 10 and at 200 rows: 12.5 and 22 ms. */
static void a_line_through_two_batches(void **state)
{
    struct speed speed = {0};

    (void)state;
    speed_observe(&speed, 100, 1000, 1250000, 5);
    speed_observe(&speed, 100, 20000, 2200000, 5);
    near(speed_at(&speed, 400), 400 / 0.032);
    near(speed_at(&speed, 1), 1 / 0.01205);
    near(speed_rows(&speed, 100000), 88000.0 / 50);
    assert_true(speed_rows(&speed, 1000) == 0);
}

/* A hundred workers tell no more of it than one. */
static void reports_of_many_workers(void **state)
{
    struct speed speed = {0};

    (void)state;
    for (int i = 0; i < 600; i++) {
        uint64_t rows = i % 60 < 30 ? 10 : 200;
        speed_observe(&speed, 10000, 10000 * rows, 10000 * (12000 + 50 * rows), 1);
    }
    near(speed_at(&speed, 400), 400 / 0.032);
}

/* All steps alike: the same speed is promised for any batch, which errs on the safe side. */
static void one_batch_is_no_line(void **state)
{
    struct speed speed = {0};

    (void)state;
    for (int i = 0; i < 100; i++)
        speed_observe(&speed, 100, 1000, 1250000, 5);
    near(speed_at(&speed, 10), 800);
    near(speed_at(&speed, 100), 800);
}

/* Steps that get shorter with more rows are noise, not a promise of endless speed. */
static void rows_never_cost_less_than_nothing(void **state)
{
    struct speed speed = {0};

    (void)state;
    speed_observe(&speed, 100, 1000, 2000000, 5);
    speed_observe(&speed, 100, 10000, 1000000, 5);
    near(speed_at(&speed, 100), 100 / 0.015);
    assert_true(isinf(speed_rows(&speed, 100000)));
}

/* After three hours of twice the time a step the old line weighs next to nothing. */
static void what_is_old_is_forgotten(void **state)
{
    struct speed speed = {0};

    (void)state;
    for (int i = 0; i < 4000; i++) {
        uint64_t rows = i % 2 ? 10 : 200, slow = i < 1840 ? 1 : 2;
        speed_observe(&speed, 100, 100 * rows, slow * 100 * (12000 + 50 * rows), 5);
    }
    near(speed_at(&speed, 400), 400 / 0.064);
}

/* The batch of now is that of the last half minute. */
static void rows_now(void **state)
{
    struct speed speed = {0};

    (void)state;
    speed_observe(&speed, 100, 1000, 1250000, 5);
    near(speed.rows_now, 10);
    speed_observe(&speed, 100, 20000, 2200000, 30);
    near(speed.rows_now, 10 + 190 * (1 - exp(-1)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_known_at_first),
        cmocka_unit_test(a_line_through_two_batches),
        cmocka_unit_test(reports_of_many_workers),
        cmocka_unit_test(one_batch_is_no_line),
        cmocka_unit_test(rows_never_cost_less_than_nothing),
        cmocka_unit_test(what_is_old_is_forgotten),
        cmocka_unit_test(rows_now),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
