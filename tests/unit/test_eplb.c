/* SPDX-License-Identifier: Apache-2.0
 *
 * EPLB against its published example (two layers of 12 experts on two nodes of
 * four ranks), then the shapes that example does not have.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/eplb.h"

enum { PLACES_MAX = 64 };

static uint32_t replica_expert[PLACES_MAX], replica_gpu[PLACES_MAX], expert_count[PLACES_MAX];
static struct eplb_plan plan = {replica_expert, replica_gpu, expert_count};

static const double published[2][12] = {
    {90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86},
    {20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27},
};

static uint64_t rank_set(uint32_t gpu, uint32_t n_replicas)
{
    uint64_t set = 0;

    for (uint32_t p = 0; p < n_replicas; p++)
        if (replica_gpu[p] == gpu)
            set |= (uint64_t)1 << replica_expert[p];
    return set;
}

static void test_published_example(void **state)
{
    /* As published: places in order, two to a rank; within a rank they may be permuted. */
    static const uint32_t phy2log[2][16] = {
        {5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1},
        {7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1},
    };
    static const uint32_t logcnt[2][12] = {
        {1, 2, 1, 1, 2, 2, 1, 1, 1, 1, 2, 1},
        {1, 2, 1, 1, 1, 2, 2, 1, 2, 1, 1, 1},
    };
    static const double ratio[2] = {1.2081, 1.2422};
    const struct eplb_shape shape = {12, 16, 4, 2, 8};
    struct err err;

    (void)state;
    for (int layer = 0; layer < 2; layer++) {
        assert_true(eplb_plan(&shape, published[layer], &plan, &err));
        assert_memory_equal(expert_count, logcnt[layer], sizeof logcnt[layer]);
        for (uint32_t gpu = 0; gpu < 8; gpu++) {
            uint64_t expected =
                (uint64_t)1 << phy2log[layer][2 * gpu] | (uint64_t)1 << phy2log[layer][2 * gpu + 1];
            assert_int_equal(rank_set(gpu, 16), expected);
        }
        assert_true(fabs(eplb_imbalance(&shape, published[layer], &plan) - ratio[layer]) < 5e-5);
    }
}

static void test_global_balances_better(void **state)
{
    static const double ratio[2] = {1.0726, 1.1903};
    const struct eplb_shape shape = {12, 16, 4, 1, 8};
    struct err err;

    (void)state;
    for (int layer = 0; layer < 2; layer++) {
        assert_true(eplb_plan(&shape, published[layer], &plan, &err));
        assert_true(fabs(eplb_imbalance(&shape, published[layer], &plan) - ratio[layer]) < 5e-5);
    }
}

static void test_every_expert_has_a_place(void **state)
{
    static const struct eplb_shape shapes[] = {
        {1, 1, 1, 1, 1},                     /* one expert, one rank */
        {1, 4, 1, 1, 4},                     /* one expert on every rank */
        {16, 16, 4, 1, 1}, {7, 10, 1, 1, 3}, /* places that do not divide by ranks */
        {16, 18, 4, 2, 6},
    };
    const double load[16] = {0, 9, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 2};
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        uint32_t seen[PLACES_MAX] = {0}, held[PLACES_MAX] = {0};
        assert_true(eplb_plan(&shapes[i], load, &plan, &err));
        for (uint32_t p = 0; p < shapes[i].n_replicas; p++) {
            seen[replica_expert[p]]++;
            held[replica_gpu[p]]++;
        }
        assert_memory_equal(seen, expert_count, shapes[i].n_experts * sizeof *seen);
        for (uint32_t e = 0; e < shapes[i].n_experts; e++)
            assert_true(seen[e] >= 1);
        for (uint32_t g = 0; g < shapes[i].n_gpus; g++) {
            assert_true(held[g] >= shapes[i].n_replicas / shapes[i].n_gpus);
            assert_true(held[g] <= shapes[i].n_replicas / shapes[i].n_gpus + 1);
        }
    }
}

static void test_no_load_spreads_evenly(void **state)
{
    const struct eplb_shape shape = {4, 8, 1, 1, 4};
    const double load[4] = {0};
    struct err err;

    (void)state;
    assert_true(eplb_plan(&shape, load, &plan, &err));
    for (uint32_t e = 0; e < 4; e++)
        assert_int_equal(expert_count[e], 2);
    assert_true(eplb_imbalance(&shape, load, &plan) == 1);
}

static void test_impossible_shapes_are_named(void **state)
{
    static const struct {
        struct eplb_shape shape;
        const char *part;
    } bad[] = {
        {{8, 7, 1, 1, 1}, "7 places cannot hold 8 experts"},
        {{8, 8, 3, 1, 1}, "8 experts do not divide into 3 groups"},
        {{8, 9, 4, 2, 4}, "must divide by 2 nodes"},
        {{2, 2, 1, 1, 4}, "leave some of 4 ranks empty"},
        {{0, 0, 1, 1, 1}, "at least 1"},
    };
    const double load[8] = {0};
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(eplb_plan(&bad[i].shape, load, &plan, &err));
        assert_int_equal(err.kind, ERR_REJECT);
        assert_non_null(strstr(err.message, bad[i].part));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_example),
        cmocka_unit_test(test_global_balances_better),
        cmocka_unit_test(test_every_expert_has_a_place),
        cmocka_unit_test(test_no_load_spreads_evenly),
        cmocka_unit_test(test_impossible_shapes_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
