/* SPDX-License-Identifier: Apache-2.0
 *
 * Expert profiles of requests: shares and smoothing by hand, the table's order of forgetting, and
 * which requests begin alike.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/prefix.h"
#include "scheduler/profile.h"
#include "schemas/codec.h"

static struct profile *profile_of(const int32_t *counts, size_t count, uint32_t experts)
{
    return profile_new((struct i32_array){counts, count}, experts);
}

/* Two layers of four: 63, 21, 0, 0 are three quarters and a quarter; the second has no counts. */
static void test_shares(void **state)
{
    const int32_t counts[] = {63, 21, 0, 0, 0, 0, 0, 0};
    struct profile *profile = profile_of(counts, 8, 4);

    (void)state;
    assert_int_equal(profile->shares[0], PROFILE_ONE * 3 / 4);
    assert_int_equal(profile->shares[1], PROFILE_ONE / 4);
    assert_int_equal(profile->shares[2], 0);
    for (int i = 4; i < 8; i++)
        assert_int_equal(profile->shares[i], PROFILE_ONE / 4);
    free(profile);
}

/* What a worker of another version, or a broken one, may say. */
static void test_refused(void **state)
{
    const int32_t counts[] = {1, 2, 3, -1, INT32_MAX, INT32_MAX};
    struct profile *profile;

    (void)state;
    assert_null(profile_of(counts, 3, 0));
    assert_null(profile_of(counts, 3, 2));
    assert_null(profile_of(counts, 0, 2));
    assert_null(profile_of(counts, 4, 2));
    profile = profile_of(counts + 4, 2, 2);
    assert_int_equal(profile->shares[0], PROFILE_ONE / 2);
    free(profile);
}

/* First 1, 0; then 0, 1 three times: a quarter of what is left each time. */
static void test_learns(void **state)
{
    const int32_t left[] = {1, 0}, right[] = {0, 1};
    struct profile_table *table = profile_table_open(2);
    struct profile *a = profile_of(left, 2, 2), *b = profile_of(right, 2, 2);

    (void)state;
    assert_null(profile_table_find(table, 7));
    profile_table_learn(table, 7, a);
    assert_int_equal(profile_table_find(table, 7)->shares[0], PROFILE_ONE);
    profile_table_learn(table, 7, b);
    assert_int_equal(profile_table_find(table, 7)->shares[0], 12288);
    assert_int_equal(profile_table_find(table, 7)->shares[1], 4096);
    profile_table_learn(table, 7, b);
    assert_int_equal(profile_table_find(table, 7)->shares[0], 9216);
    profile_table_learn(table, 7, b);
    assert_int_equal(profile_table_find(table, 7)->shares[0], 6912);
    free(a);
    free(b);
    profile_table_close(table);
}

/* Another shape replaces what was known. */
static void test_other_shape(void **state)
{
    const int32_t counts[] = {1, 0, 1, 0};
    struct profile_table *table = profile_table_open(2);
    struct profile *one = profile_of(counts, 2, 2), *two = profile_of(counts, 4, 2);

    (void)state;
    profile_table_learn(table, 7, one);
    profile_table_learn(table, 7, two);
    assert_int_equal(profile_table_count(table), 1);
    assert_int_equal(profile_table_find(table, 7)->cells, 4);
    free(one);
    free(two);
    profile_table_close(table);
}

/* Room for three: the one that was neither learned nor asked for longest goes. */
static void test_forgets_the_oldest(void **state)
{
    const int32_t counts[] = {1};
    struct profile_table *table = profile_table_open(3);
    struct profile *profile = profile_of(counts, 1, 1);

    (void)state;
    for (uint64_t key = 1; key <= 3; key++)
        profile_table_learn(table, key, profile);
    assert_non_null(profile_table_find(table, 1));
    profile_table_learn(table, 4, profile);
    assert_null(profile_table_find(table, 2));
    profile_table_learn(table, 3, profile);
    profile_table_learn(table, 5, profile);
    assert_null(profile_table_find(table, 1));
    assert_non_null(profile_table_find(table, 3));
    assert_non_null(profile_table_find(table, 4));
    assert_int_equal(profile_table_count(table), 3);
    free(profile);
    profile_table_close(table);
}

static struct prefix_keys keys_of(const char *body)
{
    return prefix_keys(str_from(body));
}

static uint64_t near_of(const char *body)
{
    const struct prefix_keys keys = keys_of(body);

    return prefix_near(&keys);
}

static void assert_alike(const char *a, const char *b, bool alike)
{
    const bool equal = near_of(a) == near_of(b);

    if (equal != alike)
        fail_msg("%s %s like %s", a, alike ? "does not begin" : "begins", b);
}

static void test_begins_alike(void **state)
{
    (void)state;
    assert_alike("{\"prompt\":\"What is 64 + 2\"}", "{\"prompt\":\"What is 7 - 1\"}", true);
    assert_alike("{\"prompt\":\"What is\\n64\"}", "{\"prompt\":\"What is 7 - 1\"}", true);
    assert_alike("{\"prompt\":\"Translate to French\"}", "{\"prompt\":\"Translate to Greek\"}",
                 true);
    assert_alike("{\"prompt\":\"What is 64\"}", "{\"prompt\":\"Compute: 64\"}", false);
    assert_alike("{\"prompt\" : \"Sum: 1\", \"model\":\"a\"}",
                 "{\"model\":\"b\",\"messages\":[{\"role\":\"user\",\"content\": \"Sum: 2\"}]}",
                 true);
    /* The system prompt counts, and so does what the last message says after it. */
    assert_alike("[{\"content\":\"Be brief.\"},{\"content\":\"Sum: 1\"}]",
                 "[{\"content\":\"Be kind.\"},{\"content\":\"Sum: 1\"}]", false);
    assert_alike("[{\"content\":\"Be brief.\"},{\"content\":\"Sum: 1\"}]",
                 "[{\"content\":\"Be brief.\"},{\"content\":\"Difference: 1\"}]", false);
    assert_alike("[{\"content\":\"Be \\\"brief\\\".\"},{\"content\":\"Sum: 1\"}]",
                 "[{\"content\":\"Be \\\"brief\\\".\"},{\"content\":\"Sum: 22\"}]", true);
}

static void test_single_keys(void **state)
{
    struct prefix_keys a = keys_of("[{\"content\":\"Be brief.\"},{\"content\":\"Sum: 1\"}]");
    struct prefix_keys b = keys_of("[{\"content\":\"Be brief.\"},{\"content\":\"Why?\"}]");
    struct prefix_keys c = keys_of("{\"prompt\":\"Sum: 1\"}");

    (void)state;
    assert_true(a.system != 0 && a.system == b.system && c.system == 0);
    assert_true(a.words == c.words && a.words != b.words);
    assert_true(prefix_near(&a) != prefix_near(&b) && prefix_near(&a) != prefix_near(&c));
    assert_int_equal(near_of("{\"content\":[1,2],\"max_tokens\":3}"), 0);
}

/* Cut anywhere, a body is read to its end and no further (ASan would tell). */
static void test_any_bytes(void **state)
{
    static const char body[] = "[{\"content\":\"Be \\\"brief\\\".\"},{\"content\" : \"Sum\\\\\"}]";

    (void)state;
    for (size_t size = 0; size < sizeof body; size++) {
        char *copy = malloc(size + 1);
        memcpy(copy, body, size);
        prefix_keys((struct str){copy, size});
        free(copy);
    }
    assert_int_equal(prefix_keys((struct str){NULL, 0}).words, 0);
}

static void test_realms(void **state)
{
    (void)state;
    assert_true(prefix_mix(5, 1) != prefix_mix(5, 2));
    assert_true(prefix_mix(5, 1) != prefix_mix(6, 1));
    assert_true(prefix_mix(5, 1) == prefix_mix(5, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_learns),
        cmocka_unit_test(test_other_shape),
        cmocka_unit_test(test_forgets_the_oldest),
        cmocka_unit_test(test_begins_alike),
        cmocka_unit_test(test_single_keys),
        cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_realms),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
