/* SPDX-License-Identifier: Apache-2.0
 *
 * What a retry is called and which lines it leaves out; with jobs and results:
 * tests/e2e/test_retry.py.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "producer/retry.h"

static void assert_name(const char *batch_id, const char *expected)
{
    char id[BATCH_ID_SIZE_MAX + 1] = "";
    struct err err;

    assert_true(retry_name(batch_id, id, &err));
    assert_string_equal(id, expected);
}

static void test_name(void **state)
{
    (void)state;
    assert_name("night", "night.retry");
    assert_name("night.retry", "night.retry2");
    assert_name("night.retry2", "night.retry3");
    assert_name("night.retry9", "night.retry10");
    assert_name("night.retry99", "night.retry100");
    assert_name("night2", "night2.retry");
    assert_name("7", "7.retry");
    assert_name("retry2", "retry2.retry");
    assert_name("night.retry02", "night.retry02.retry"); /* not how we count */
    assert_name("night.retry1234567890", "night.retry1234567890.retry");
    assert_name("night.retry-a", "night.retry-a.retry");
}

static void test_name_given(void **state)
{
    char id[BATCH_ID_SIZE_MAX + 1] = "again";
    struct err err;

    (void)state;
    assert_true(retry_name("night", id, &err));
    assert_string_equal(id, "again");
    assert_false(retry_name("again", id, &err));
    assert_int_equal(err.kind, ERR_REJECT);
}

static void test_name_too_long(void **state)
{
    char batch_id[BATCH_ID_SIZE_MAX + 1] = "", id[BATCH_ID_SIZE_MAX + 1] = "";
    struct err err;

    (void)state;
    memset(batch_id, 'x', BATCH_ID_SIZE_MAX - 6);
    assert_true(retry_name(batch_id, id, &err));
    assert_int_equal(strlen(id), BATCH_ID_SIZE_MAX);
    id[0] = '\0';
    memset(batch_id, 'x', BATCH_ID_SIZE_MAX - 5);
    assert_false(retry_name(batch_id, id, &err));
    assert_int_equal(err.kind, ERR_REJECT);
    assert_non_null(strstr(err.message, "--batch"));
    /* One more digit. */
    memset(batch_id, 'x', BATCH_ID_SIZE_MAX);
    memcpy(batch_id + BATCH_ID_SIZE_MAX - 7, ".retry9", 7);
    id[0] = '\0';
    assert_false(retry_name(batch_id, id, &err));
    memcpy(batch_id + BATCH_ID_SIZE_MAX - 7, ".retry8", 7);
    id[0] = '\0';
    assert_true(retry_name(batch_id, id, &err));
}

static bool answered(struct retry *retry, const char *custom_id)
{
    return retry_answered(retry, str_from(custom_id));
}

static void test_answered(void **state)
{
    struct retry *retry = retry_new(str_from("acme"));

    (void)state;
    retry_add(retry, str_from("good"), true);
    retry_add(retry, str_from("bad"), false);
    retry_add(retry, str_from("lost"), false);
    assert_int_equal(retry_not_found(retry), 2);
    assert_true(answered(retry, "good"));
    assert_false(answered(retry, "bad"));
    assert_false(answered(retry, "new"));
    assert_int_equal(retry_left_out(retry), 1);
    assert_int_equal(retry_not_found(retry), 1); /* lost */
    assert_false(answered(retry, "bad"));
    assert_int_equal(retry_not_found(retry), 1);
    retry_close(retry);
    retry_close(NULL);
}

/* Failed in one job, answered by the retry of it, in either order; failed in both counts once. */
static void test_chain(void **state)
{
    struct retry *retry = retry_new(str_from("acme"));

    (void)state;
    retry_add(retry, str_from("a"), false);
    retry_add(retry, str_from("a"), true);
    retry_add(retry, str_from("b"), true);
    retry_add(retry, str_from("b"), false);
    retry_add(retry, str_from("c"), false);
    retry_add(retry, str_from("c"), false);
    assert_int_equal(retry_not_found(retry), 1);
    assert_true(answered(retry, "a"));
    assert_true(answered(retry, "b"));
    assert_false(answered(retry, "c"));
    assert_int_equal(retry_not_found(retry), 0);
    assert_int_equal(retry_left_out(retry), 2);
    retry_close(retry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_name),          cmocka_unit_test(test_name_given),
        cmocka_unit_test(test_name_too_long), cmocka_unit_test(test_answered),
        cmocka_unit_test(test_chain),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
