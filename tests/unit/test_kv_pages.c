/* SPDX-License-Identifier: Apache-2.0
 *
 * The books of the KV cache: nothing is given twice, nothing gets lost.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "worker/kv_pages.h"

static void test_needed(void **state)
{
    (void)state;
    assert_int_equal(kv_pages_needed(0), 0);
    assert_int_equal(kv_pages_needed(1), 1);
    assert_int_equal(kv_pages_needed(16), 1);
    assert_int_equal(kv_pages_needed(17), 2);
}

static void test_takes_all_or_none(void **state)
{
    struct kv_pages pages;
    uint32_t list[4] = {99, 99, 99, 99};
    struct err err;

    (void)state;
    assert_true(kv_pages_open(&pages, 3, &err));
    assert_true(kv_pages_take(&pages, list, 0, 2));
    assert_int_equal(list[0], 0);
    assert_int_equal(list[1], 1);
    assert_false(kv_pages_take(&pages, list, 2, 4));
    assert_int_equal(list[2], 99);
    assert_int_equal(pages.free_count, 1);
    assert_true(kv_pages_take(&pages, list, 2, 2));
    assert_true(kv_pages_take(&pages, list, 2, 1));
    assert_true(kv_pages_take(&pages, list, 2, 3));
    assert_int_equal(list[2], 2);
    assert_int_equal(pages.free_count, 0);
    kv_pages_close(&pages);
}

static void test_gives_back(void **state)
{
    struct kv_pages pages;
    uint32_t a[2];
    uint32_t b[3];
    bool seen[3] = {false};
    struct err err;

    (void)state;
    assert_true(kv_pages_open(&pages, 3, &err));
    assert_true(kv_pages_take(&pages, a, 0, 2));
    kv_pages_give(&pages, a, 2);
    assert_int_equal(pages.free_count, 3);
    assert_true(kv_pages_take(&pages, b, 0, 3));
    for (int i = 0; i < 3; i++) {
        assert_true(b[i] < 3);
        assert_false(seen[b[i]]);
        seen[b[i]] = true;
    }
    kv_pages_close(&pages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_needed),
        cmocka_unit_test(test_takes_all_or_none),
        cmocka_unit_test(test_gives_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
