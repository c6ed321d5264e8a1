/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "common/log.h"

static char line[LOG_LINE_SIZE_MAX];

static void test_plain_pairs(void **state)
{
    (void)state;
    log_format(line, sizeof line, "admitted", "request=%s offset=%lld share=%.2f count=%zu", "a-b",
               (long long)-12, 0.25, (size_t)7);
    assert_string_equal(line, "event=admitted request=a-b offset=-12 share=0.25 count=7");
}

static void test_values_are_quoted(void **state)
{
    (void)state;
    log_format(line, sizeof line, "e", "a=%s b=%s c=%s d=%s", "two words", "say \"hi\"", "", "x=y");
    assert_string_equal(line, "event=e a=\"two words\" b=\"say \\\"hi\\\"\" c=\"\" d=\"x=y\"");
}

/* Text from outside can neither end the line nor start a pair of its own. */
static void test_no_forged_line(void **state)
{
    (void)state;
    log_format(line, sizeof line, "e", "text=%s", "x\nlevel=error event=forged\x01");
    assert_string_equal(line, "event=e text=\"x\\nlevel=error event=forged\\x01\"");
    assert_null(strchr(line, '\n'));
}

static void test_value_of_several_conversions(void **state)
{
    (void)state;
    log_format(line, sizeof line, "e", "at=%s:%u part=%.*s width=%04d percent=%d%%", "host", 9092u,
               3, "abcdef", 7, 80);
    assert_string_equal(line, "event=e at=host:9092 part=abc width=0007 percent=80%");
}

static void test_integers_of_all_sizes(void **state)
{
    (void)state;
    log_format(line, sizeof line, "e", "a=%llu b=%ld c=%hhu d=%x e=%jd f=%c",
               18446744073709551615ull, -5L, 255, 0xbeefu, (intmax_t)1, 'z');
    assert_string_equal(line, "event=e a=18446744073709551615 b=-5 c=255 d=beef e=1 f=z");
}

static void test_cut_at_capacity(void **state)
{
    char small[24];
    char longest[LOG_LINE_SIZE_MAX + 100];

    (void)state;
    assert_int_equal(log_format(small, sizeof small, "event", "key=%s", "0123456789abcdef"), 23);
    assert_string_equal(small, "event=event key=0123456");
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(log_format(line, sizeof line, "e", "key=%s", longest), sizeof line - 1);
}

static void test_level_names(void **state)
{
    enum log_level level = LOG_LEVEL_DEBUG;

    (void)state;
    assert_true(log_level_parse("warn", &level));
    assert_int_equal(level, LOG_LEVEL_WARN);
    assert_false(log_level_parse("loud", &level));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_pairs),
        cmocka_unit_test(test_values_are_quoted),
        cmocka_unit_test(test_no_forged_line),
        cmocka_unit_test(test_value_of_several_conversions),
        cmocka_unit_test(test_integers_of_all_sizes),
        cmocka_unit_test(test_cut_at_capacity),
        cmocka_unit_test(test_level_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
