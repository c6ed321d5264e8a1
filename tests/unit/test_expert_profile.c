/* SPDX-License-Identifier: Apache-2.0
 *
 * Expert profiles: shapes of real models, counts and scaling by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/expert_profile.h"

static void assert_shape(uint32_t layers, uint32_t experts, uint32_t counted, uint32_t stride)
{
    const struct expert_profile_shape shape = expert_profile_shape(layers, experts, 4);

    assert_int_equal(shape.layers, counted);
    if (counted > 0) {
        assert_int_equal(shape.stride, stride);
        assert_true((counted - 1) * stride < layers);
        assert_true(expert_profile_cells(&shape) <= EXPERT_PROFILE_CELLS_MAX);
    }
}

static void test_shapes(void **state)
{
    (void)state;
    assert_shape(3, 16, 3, 1);    /* pelton-demo */
    assert_shape(32, 8, 32, 1);   /* Mixtral 8x7B */
    assert_shape(58, 256, 4, 15); /* DeepSeek-V3: layers 0, 15, 30, 45 */
    assert_shape(16, 64, 16, 1);  /* OLMoE: just 1,024 */
    assert_shape(17, 64, 9, 2);   /* one too many: every second */
    assert_shape(2, 1024, 1, 2);  /* one layer is all there is room for */
    assert_shape(2, 1025, 0, 1);  /* not even that */
    assert_shape(0, 0, 0, 1);     /* a dense model */
}

/* Counts 3, 0, 1, 2 of 3 tokens: 63, 0, 21, 42. The second layer has none. */
static void test_counts_and_scale(void **state)
{
    const struct expert_profile_shape shape = expert_profile_shape(2, 4, 2);
    const uint32_t two[] = {0, 2, 0, 3};
    const uint32_t one[] = {3, 0};
    uint32_t counts[8] = {0};
    int32_t scaled[8];

    (void)state;
    expert_profile_count(&shape, counts, 0, two, 2);
    expert_profile_count(&shape, counts, 0, one, 1);
    expert_profile_scale(&shape, counts, scaled);
    assert_int_equal(scaled[0], 63);
    assert_int_equal(scaled[1], 0);
    assert_int_equal(scaled[2], 21);
    assert_int_equal(scaled[3], 42);
    for (int i = 4; i < 8; i++)
        assert_int_equal(scaled[i], 0);
}

/* Four thousand million choices do not overflow, a small count is not lost below one half. */
static void test_scale_large(void **state)
{
    const struct expert_profile_shape shape = expert_profile_shape(1, 3, 1);
    const uint32_t counts[] = {UINT32_MAX, UINT32_MAX / 126 + 1, UINT32_MAX / 127};
    int32_t scaled[3];

    (void)state;
    expert_profile_scale(&shape, counts, scaled);
    assert_int_equal(scaled[0], 63);
    assert_int_equal(scaled[1], 1);
    assert_int_equal(scaled[2], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_counts_and_scale),
        cmocka_unit_test(test_scale_large),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
