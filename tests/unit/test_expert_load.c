/* SPDX-License-Identifier: Apache-2.0
 *
 * Expert loads: counts by hand, and devices of known speed whose capacity must
 * be found.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "worker/expert_load.h"

static void test_counts(void **state)
{
    const uint32_t experts[] = {0, 1, 1, 2, 3, 1}; /* 3 tokens, top 2 */
    struct expert_load load;
    struct err err;

    (void)state;
    assert_true(expert_load_open(&load, 2, 4, 2, 1000, &err));
    expert_load_count(&load, 1, experts, 3);
    expert_load_count(&load, 1, experts, 1);
    assert_int_equal(load.tokens[4 + 0], 2);
    assert_int_equal(load.tokens[4 + 1], 4);
    assert_int_equal(load.tokens[4 + 2], 1);
    assert_int_equal(load.tokens[4 + 3], 1);
    assert_int_equal(load.tokens[0], 0);
    assert_int_equal(load.busiest[1], 1); /* of the last count */
    assert_int_equal(load.distinct[1], 2);
    expert_load_close(&load);
}

/* Busiest over mean, by hand: 3 tokens choose 6 times among 4 experts, the mean is 1.5 and the
 * busiest has 3; then 1 token, mean 0.5, busiest 1. The smoothed ones move by a sixteenth a step.
 */
static void test_sums(void **state)
{
    const uint32_t three[] = {0, 1, 1, 2, 3, 1};
    const uint32_t one[] = {2, 3};
    struct expert_load load;
    struct err err;

    (void)state;
    assert_true(expert_load_open(&load, 2, 4, 2, 1000, &err));
    expert_load_count(&load, 0, three, 3);
    expert_load_count(&load, 1, three, 3);
    expert_load_step(&load, 3, 100);
    assert_true(fabs(load.imbalance - 2.0 / 16) < 1e-12);
    assert_true(fabs(load.experts_used - 4.0 / 16) < 1e-12);
    expert_load_count(&load, 0, one, 1);
    expert_load_count(&load, 1, one, 1);
    expert_load_step(&load, 1, 100);
    assert_int_equal(load.sums[1].busiest_tokens, 4);
    assert_int_equal(load.sums[1].distinct, 6);
    assert_true(fabs(load.sums[1].imbalance - 4) < 1e-12);
    expert_load_close(&load);
}

/* A step takes 100 us and 10 us for each token: 90 tokens in 1000 us. */
static void test_finds_capacity(void **state)
{
    struct expert_load load;
    struct err err;

    (void)state;
    assert_true(expert_load_open(&load, 1, 4, 2, 1000, &err));
    assert_true(expert_load_tokens_target(&load) == 1);
    for (uint32_t i = 0; i < 50; i++)
        expert_load_step(&load, 1 + i % 7, 100 + 10 * (1 + i % 7));
    assert_true(fabs(expert_load_tokens_target(&load) - 90) < 0.5);
    expert_load_close(&load);
}

/* Steps of one size: all there is to know is the time of a token. */
static void test_one_size(void **state)
{
    struct expert_load load;
    struct err err;

    (void)state;
    assert_true(expert_load_open(&load, 1, 4, 2, 1000, &err));
    for (uint32_t i = 0; i < 50; i++)
        expert_load_step(&load, 4, 80);
    assert_true(fabs(expert_load_tokens_target(&load) - 50) < 0.5);
    /* A step that is slower than the target even when it is empty still holds one token. */
    for (uint32_t i = 0; i < 3000; i++)
        expert_load_step(&load, 1, 5000);
    assert_true(expert_load_tokens_target(&load) == 1);
    expert_load_close(&load);
}

/* 40 of 50 possible tokens, spread evenly over the experts: load 0.8. All on one of the 4 experts
 * of which a token takes 2: twice that. */
static void test_load(void **state)
{
    uint32_t even[80];
    uint32_t skewed[80];
    struct expert_load load;
    struct err err;

    (void)state;
    for (uint32_t i = 0; i < 80; i++) {
        even[i] = i % 4;
        skewed[i] = i % 2;
    }
    assert_true(expert_load_open(&load, 2, 4, 2, 1000, &err));
    for (int i = 0; i < 200; i++) {
        expert_load_count(&load, 0, even, 40);
        expert_load_count(&load, 1, skewed, 40);
        expert_load_step(&load, 40, 800);
    }
    assert_true(fabs((double)load.layer_load[0] - 0.8) < 0.01);
    assert_true(fabs((double)load.layer_load[1] - 1.6) < 0.02);
    assert_true(expert_load_largest(&load) == (double)load.layer_load[1]);
    expert_load_close(&load);
}

static void test_without_experts(void **state)
{
    struct expert_load load;
    struct err err;

    (void)state;
    assert_true(expert_load_open(&load, 0, 0, 0, 1000, &err));
    expert_load_step(&load, 4, 80);
    assert_true(expert_load_largest(&load) == 0);
    expert_load_close(&load);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),         cmocka_unit_test(test_sums),
        cmocka_unit_test(test_finds_capacity), cmocka_unit_test(test_one_size),
        cmocka_unit_test(test_load),           cmocka_unit_test(test_without_experts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
