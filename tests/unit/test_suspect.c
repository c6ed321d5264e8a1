/* SPDX-License-Identifier: Apache-2.0
 *
 * When a batch is booked record by record, and when one of them is found broken.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ledger/suspect.h"

static const struct row row = {.partition = 1, .offset = 7};

/* Two aborts say nothing; after the third the records are booked one by one. */
static void test_alone_after_three(void **state)
{
    struct suspect suspect = {0};

    (void)state;
    assert_false(suspect_alone(&suspect));
    suspect_batch_aborted(&suspect);
    suspect_batch_aborted(&suspect);
    assert_false(suspect_alone(&suspect));
    suspect_batch_aborted(&suspect);
    assert_true(suspect_alone(&suspect));
    suspect_batch_aborted(&suspect);
    assert_true(suspect_alone(&suspect));
    suspect_batch_booked(&suspect);
    assert_false(suspect_alone(&suspect));
}

static void test_guilty_after_three(void **state)
{
    struct suspect suspect = {0};

    (void)state;
    assert_false(suspect_guilty(&suspect, &row));
    suspect_row_aborted(&suspect, &row);
    suspect_row_aborted(&suspect, &row);
    assert_false(suspect_guilty(&suspect, &row));
    suspect_row_aborted(&suspect, &row);
    assert_true(suspect_guilty(&suspect, &row));
}

/* A record is known by its partition and offset: neither alone makes another one guilty. */
static void test_others_are_not(void **state)
{
    const struct row there = {.partition = 2, .offset = 7}, next = {.partition = 1, .offset = 8};
    struct suspect suspect = {0};

    (void)state;
    for (int i = 0; i < 3; i++)
        suspect_row_aborted(&suspect, &row);
    assert_false(suspect_guilty(&suspect, &there));
    assert_false(suspect_guilty(&suspect, &next));
    assert_true(suspect_guilty(&suspect, &row));
}

/* The aborts have to be the record's own and in a row: one of another between begins anew. */
static void test_another_between(void **state)
{
    const struct row next = {.partition = 1, .offset = 8};
    struct suspect suspect = {0};

    (void)state;
    suspect_row_aborted(&suspect, &row);
    suspect_row_aborted(&suspect, &row);
    suspect_row_aborted(&suspect, &next);
    assert_false(suspect_guilty(&suspect, &next));
    suspect_row_aborted(&suspect, &row);
    assert_false(suspect_guilty(&suspect, &row));
    suspect_row_aborted(&suspect, &row);
    suspect_row_aborted(&suspect, &row);
    assert_true(suspect_guilty(&suspect, &row));
}

/* What was booked clears all, also the record of partition 0, offset 0, that a zero could mean. */
static void test_booked_clears(void **state)
{
    const struct row first = {.partition = 0, .offset = 0};
    struct suspect suspect = {0};

    (void)state;
    assert_false(suspect_guilty(&suspect, &first));
    for (int i = 0; i < 3; i++)
        suspect_row_aborted(&suspect, &first);
    assert_true(suspect_guilty(&suspect, &first));
    suspect_batch_booked(&suspect);
    assert_false(suspect_guilty(&suspect, &first));
    suspect_row_aborted(&suspect, &first);
    assert_false(suspect_guilty(&suspect, &first));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone_after_three), cmocka_unit_test(test_guilty_after_three),
        cmocka_unit_test(test_others_are_not),    cmocka_unit_test(test_another_between),
        cmocka_unit_test(test_booked_clears),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
