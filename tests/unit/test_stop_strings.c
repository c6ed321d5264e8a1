/* SPDX-License-Identifier: Apache-2.0
 *
 * Stop strings, also those that arrive in parts.
 */
#include "worker/stop_strings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

static struct stop_strings strings(const char *a, const char *b)
{
    struct stop_strings stops = {.items = {{a, strlen(a)}}, .count = 1};

    if (b != NULL)
        stops.items[stops.count++] = (struct str){b, strlen(b)};
    return stops;
}

/* Scan text as it grows by the parts; gives the safe size after the last part that was needed. */
static size_t scan_parts(const struct stop_strings *stops, const char *const *parts, size_t count,
                         bool *stopped)
{
    char text[128];
    size_t size = 0, safe = 0;

    *stopped = false;
    for (size_t i = 0; i < count && !*stopped; i++) {
        size_t scanned = size;

        memcpy(text + size, parts[i], strlen(parts[i]));
        size += strlen(parts[i]);
        *stopped = stop_strings_scan(stops, text, size, scanned, &safe);
    }
    return safe;
}

static void a_stop_string_over_tokens_never_leaks(void **state)
{
    static const char *const parts[] = {"ABC", "DEF", "G", "HI", "J"};
    struct stop_strings stops = strings("DEFGHIJ", NULL);
    bool stopped;

    (void)state;
    for (size_t count = 1; count <= 5; count++) {
        assert_int_equal(scan_parts(&stops, parts, count, &stopped), 3);
        assert_int_equal(stopped, count == 5);
    }
}

static void a_false_start_is_released(void **state)
{
    static const char *const parts[] = {"ABC", "DEF", "G", "HX"};
    struct stop_strings stops = strings("DEFGHIJ", NULL);
    bool stopped;

    (void)state;
    assert_int_equal(scan_parts(&stops, parts, 3, &stopped), 3);
    assert_int_equal(scan_parts(&stops, parts, 4, &stopped), 9);
    assert_false(stopped);
}

static void repeated_starts_are_kept(void **state)
{
    struct stop_strings stops = strings("aab", NULL);
    size_t safe;

    (void)state;
    assert_false(stop_strings_scan(&stops, "xaaa", 4, 0, &safe));
    assert_int_equal(safe, 2); /* "aa" may become "aab" */
    assert_true(stop_strings_scan(&stops, "xaaab", 5, 4, &safe));
    assert_int_equal(safe, 2);
}

static void the_earliest_of_several_ends_the_answer(void **state)
{
    struct stop_strings stops = strings("abcd", "bc");
    size_t safe;

    (void)state;
    assert_true(stop_strings_scan(&stops, "xabcd", 5, 0, &safe));
    assert_int_equal(safe, 1);
    assert_true(stop_strings_scan(&stops, "xabc", 4, 0, &safe));
    assert_int_equal(safe, 2);
}

static void without_stop_strings_all_is_safe(void **state)
{
    struct stop_strings stops = {.count = 0};
    size_t safe;

    (void)state;
    assert_false(stop_strings_scan(&stops, "abc", 3, 1, &safe));
    assert_int_equal(safe, 3);
    assert_false(stop_strings_scan(&stops, NULL, 0, 0, &safe));
    assert_int_equal(safe, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stop_string_over_tokens_never_leaks),
        cmocka_unit_test(a_false_start_is_released),
        cmocka_unit_test(repeated_starts_are_kept),
        cmocka_unit_test(the_earliest_of_several_ends_the_answer),
        cmocka_unit_test(without_stop_strings_all_is_safe),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
