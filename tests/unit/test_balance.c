/* SPDX-License-Identifier: Apache-2.0
 *
 * The balancers' costs, by hand.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "scheduler/balance.h"

#define assert_close(a, b) assert_true(fabs((a) - (b)) < 1e-12)

/* 8 of 32 requests, half of the KV cache, prefill of 4 of the mean: (1/4 + 1/2 + 1/8) / 3. */
static void test_fill(void **state)
{
    struct balance_worker worker = {.requests = 8,
                                    .room = 32,
                                    .kv_tokens = 500,
                                    .kv_capacity = 1000,
                                    .prefill_work = 400,
                                    .prefill_mean = 100};

    (void)state;
    assert_close(balance_fill(&worker), 0.875 / 3);
    worker.kv_capacity = 0; /* unknown: requests stand for it */
    assert_close(balance_fill(&worker), 0.625 / 3);
    worker.prefill_mean = 0;
    assert_close(balance_fill(&worker), 0.25);
    worker = (struct balance_worker){.room = 1};
    assert_close(balance_fill(&worker), 0);
}

/* Equal requests: KV tells two workers apart, and prefill does. */
static void test_fill_orders(void **state)
{
    const struct balance_worker even = {4, 8, 400, 1000, 400, 100};
    struct balance_worker other = even;

    (void)state;
    other.kv_tokens = 401;
    assert_true(balance_fill(&other) > balance_fill(&even));
    other = even;
    other.prefill_work = 399;
    assert_true(balance_fill(&other) < balance_fill(&even));
}

/* At 8,192 tokens attention adds one half; at twice that, all of it once more. */
static void test_prefill_work(void **state)
{
    (void)state;
    assert_int_equal(balance_prefill_work(0), 0);
    assert_int_equal(balance_prefill_work(100), 100);
    assert_int_equal(balance_prefill_work(8192), 12288);
    assert_int_equal(balance_prefill_work(16384), 32768);
    assert_int_equal(balance_prefill_work(UINT64_MAX), balance_prefill_work(1 << 24));
}

/* A mean prompt of 900, weight 1. An empty worker computes it all: 900. One that has it whole costs
 * as much at a ninth of its room: 3 * 900 / 3. What is half there loses at a sixteenth already. */
static void test_cost(void **state)
{
    const double empty = balance_cost(900, 900, 0, 1);

    (void)state;
    assert_close(empty, 900);
    assert_close(balance_cost(0, 900, 1.0 / 9, 1), 900);
    assert_true(balance_cost(450, 900, 1.0 / 16, 1) > empty);
    assert_true(balance_cost(450, 900, 1.0 / 49, 1) < empty);
    /* Half full against three quarters full: the cache decides; against an empty one it does not.
     */
    assert_true(balance_cost(0, 900, 0.75, 1) < balance_cost(900, 900, 0.5, 1));
    assert_true(balance_cost(0, 900, 0.75, 1) > empty);
    /* A prompt of ten times the mean is worth more imbalance, a short one less. */
    assert_true(balance_cost(0, 900, 1, 1) < balance_cost(9000, 900, 0, 1));
    assert_true(balance_cost(0, 900, 0.02, 1) > balance_cost(90, 900, 0, 1));
    /* Without a weight only the fill counts. */
    assert_true(balance_cost(0, 900, 0.02, 0) > balance_cost(9000, 900, 0.01, 0));
}

/* What waits: three like the first profile, one like the second: 3/4, 1/4. The worker has 1/2, 1/2
 * of 8; with 4 more on the left it is 2/3, 1/3, twelfths away from the mix: 2 / 144; with 4 on the
 * right 1/3, 2/3, five twelfths: 50 / 144. The second layer is equal whatever comes. */
static void test_distance(void **state)
{
    const uint32_t totals[] = {4, 4, 10, 10};
    const uint16_t left[] = {4, 0, 7, 7}, right[] = {0, 4, 5, 5};
    double mix[4] = {0};

    (void)state;
    balance_mix(mix, left, 3, 4);
    balance_mix(mix, right, 1, 4);
    assert_close(mix[0], 12);
    assert_close(mix[1], 4);
    assert_close(balance_distance(totals, left, mix, 4, 2), 2.0 / 144);
    assert_close(balance_distance(totals, right, mix, 4, 2), 50.0 / 144);
}

/* Without load, or with nothing known of what waits, all are alike. */
static void test_distance_of_nothing(void **state)
{
    const uint32_t totals[] = {0, 0};
    const uint16_t none[] = {0, 0}, some[] = {1, 2};
    const double nothing[] = {0, 0}, mix[] = {1, 1};

    (void)state;
    assert_close(balance_distance(totals, none, mix, 2, 2), 0);
    assert_close(balance_distance(totals, some, nothing, 2, 2), 0);
    assert_close(balance_distance(totals, some, mix, 0, 2), 0);
}

static uint32_t choose(const struct balance_candidate *candidates, uint32_t count, double weight)
{
    return balance_choose(candidates, count, &(struct balance_weights){weight, 1}, 100);
}

/* The oldest is worst, the next best. At w = 0.4 the best pays for up to two thirds of what may be
 * overtaken: 0.4 * 1 against 0.6 * overtakes / 100. */
static void test_choose(void **state)
{
    struct balance_candidate candidates[] = {{2.0, 0, 0}, {1.2, 66, 0}, {1.6, 90, 0}};

    (void)state;
    assert_int_equal(choose(candidates, 3, 0.4), 1);
    candidates[1].overtakes = 67;
    assert_int_equal(choose(candidates, 3, 0.4), 0);
    assert_int_equal(choose(candidates, 3, 0.5), 1);
    assert_int_equal(choose(candidates, 3, 0), 0);
    assert_int_equal(choose(candidates, 1, 0.4), 0);
}

/* An unknown one is taken before the worst and after the best; equals in order of arrival. */
static void test_choose_unknown(void **state)
{
    const struct balance_candidate two[] = {{2.0, 0, 0}, {-1, 10, 0}};
    const struct balance_candidate three[] = {{2.0, 0, 0}, {-1, 10, 0}, {1.0, 10, 0}};
    const struct balance_candidate worst[] = {{2.0, 0, 0}, {1.9, 70, 0}, {-1, 10, 0}, {1.0, 99, 0}};
    const struct balance_candidate none[] = {{-1, 0, 0}, {-1, 1, 0}};
    const struct balance_candidate equal[] = {{1.5, 0, 0}, {1.5, 0, 0}};

    (void)state;
    assert_int_equal(choose(two, 2, 0.4), 0); /* one known value has no scale */
    assert_int_equal(choose(three, 3, 0.4), 2);
    assert_int_equal(choose(worst, 4, 0.4), 2);
    assert_int_equal(choose(none, 2, 1), 0);
    assert_int_equal(choose(equal, 2, 1), 0);
    assert_int_equal(balance_choose(equal, 2, &(struct balance_weights){0.4, 1}, 0), 0);
}

/* What others have cached is left to them: 0.9 of the prompt outweighs order and experts (1 in all
 * at most) here, 0.1 does not outweigh half of the order. */
static void test_choose_cached(void **state)
{
    const struct balance_weights weights = {0.4, 1}, none = {0.4, 0};
    struct balance_candidate candidates[] = {{2.0, 0, 0.9}, {2.0, 60, 0}, {1.0, 80, 0.9}};

    (void)state;
    assert_int_equal(balance_choose(candidates, 3, &weights, 100), 1); /* 1.3, 0.76, 1.38 */
    assert_int_equal(balance_choose(candidates, 3, &none, 100), 0);    /* 0.4, 0.76, 0.48 */
    candidates[0].missing = 0.3;
    assert_int_equal(balance_choose(candidates, 3, &weights, 100), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fill),          cmocka_unit_test(test_fill_orders),
        cmocka_unit_test(test_prefill_work),  cmocka_unit_test(test_cost),
        cmocka_unit_test(test_distance),      cmocka_unit_test(test_distance_of_nothing),
        cmocka_unit_test(test_choose),        cmocka_unit_test(test_choose_unknown),
        cmocka_unit_test(test_choose_cached),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
