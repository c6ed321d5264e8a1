/* SPDX-License-Identifier: Apache-2.0
 *
 * Micro-batches: counts, cuts by length and by experts, by hand; then that every sequence is in
 * exactly one, whatever the sizes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/micro_batch.h"

enum { COUNT_MAX = 40, CELLS = 4, SCRATCH = 16 * CELLS + 4 * COUNT_MAX };

static float scratch[SCRATCH];
static uint32_t order[COUNT_MAX], first[COUNT_MAX + 1];

static void test_count(void **state)
{
    (void)state;
    assert_int_equal(micro_batch_count(0, 16), 0);
    assert_int_equal(micro_batch_count(1, 16), 1);
    assert_int_equal(micro_batch_count(2, 16), 2);
    assert_int_equal(micro_batch_count(32, 16), 2);
    assert_int_equal(micro_batch_count(33, 16), 4);
    assert_int_equal(micro_batch_count(64, 16), 4);
    assert_int_equal(micro_batch_count(3, 1), 3);
    assert_true(micro_batch_scratch(COUNT_MAX, CELLS) <= SCRATCH);
}

static void assert_order(const uint32_t *expected, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(order[i], expected[i]);
}

/* 50 rows; 20 and 20 and 5 beside it are 45 in three: sizes are four, four. */
static void test_by_length(void **state)
{
    static const uint32_t rows[] = {1, 20, 50, 1, 20, 5, 1, 1};
    static const uint32_t expected[] = {2, 3, 6, 7, 0, 1, 4, 5};
    const struct micro_batch_input input = {.rows = rows, .count = 8, .size = 4};

    (void)state;
    micro_batch_cut(&input, scratch, order, first);
    assert_int_equal(first[1], 4);
    assert_int_equal(first[2], 8);
    assert_order(expected, 8);
}

/* Decode rows, two of each of two kinds: one of each kind in each micro-batch. By length alone they
 * would alternate, and both of a kind be together. */
static void test_by_experts(void **state)
{
    static const uint32_t rows[] = {1, 1, 1, 1};
    static const uint32_t left[] = {9, 3, 0, 0}, right[] = {0, 0, 100, 50};
    static const uint32_t *const counts[] = {left, right, left, right};
    static const uint32_t expected[] = {0, 3, 1, 2}, by_length[] = {0, 2, 1, 3};
    struct micro_batch_input input = {
        .rows = rows, .expert_counts = counts, .count = 4, .cells = CELLS, .size = 2};

    (void)state;
    micro_batch_cut(&input, scratch, order, first);
    assert_order(expected, 4);
    input.cells = 0;
    micro_batch_cut(&input, scratch, order, first);
    assert_order(by_length, 4);
}

/* What has chosen nothing yet (a new prompt) divides by nothing. */
static void test_no_counts_yet(void **state)
{
    static const uint32_t rows[] = {7, 7};
    static const uint32_t none[CELLS] = {0};
    static const uint32_t *const counts[] = {none, none};
    static const uint32_t expected[] = {0, 1};
    const struct micro_batch_input input = {
        .rows = rows, .expert_counts = counts, .count = 2, .cells = CELLS, .size = 8};

    (void)state;
    micro_batch_cut(&input, scratch, order, first);
    assert_order(expected, 2);
}

static void test_every_sequence_once(void **state)
{
    uint32_t rows[COUNT_MAX], counts[COUNT_MAX][CELLS];
    const uint32_t *pointers[COUNT_MAX];

    (void)state;
    for (uint32_t i = 0; i < COUNT_MAX; i++) {
        rows[i] = 1 + i * i % 11;
        pointers[i] = counts[i];
        for (uint32_t c = 0; c < CELLS; c++)
            counts[i][c] = i * (c + 3) % 7;
    }
    for (uint32_t count = 1; count <= COUNT_MAX; count++)
        for (uint32_t size = 1; size <= COUNT_MAX; size++) {
            const struct micro_batch_input input = {rows, pointers, count, CELLS, size};
            const uint32_t groups = micro_batch_count(count, size);
            uint64_t seen = 0;

            micro_batch_cut(&input, scratch, order, first);
            assert_int_equal(first[0], 0);
            assert_int_equal(first[groups], count);
            for (uint32_t g = 0; g < groups; g++)
                assert_in_range(first[g + 1] - first[g], 1, size);
            for (uint32_t i = 0; i < count; i++)
                seen |= UINT64_C(1) << order[i];
            assert_true(seen == (UINT64_C(1) << count) - 1);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_count),
        cmocka_unit_test(test_by_length),
        cmocka_unit_test(test_by_experts),
        cmocka_unit_test(test_no_counts_yet),
        cmocka_unit_test(test_every_sequence_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
