/* SPDX-License-Identifier: Apache-2.0
 *
 * What foreign text becomes where people read it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/escape.h"

static void test_texts(void **state)
{
    static const struct {
        const char *text, *kept, *printed;
    } cases[] = {
        {"", "", ""},
        {"a b|\\n", "", "a b|\\n"},
        {"gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80", "", "gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80"},
        {"\x1b[31m\a\x7f", "", "\\x1b[31m\\x07\\x7f"},
        {"a\nb\tc\r", "", "a\\nb\\tc\\r"},
        {"a\nb\tc\r", "\n\t", "a\nb\tc\\r"},
        {"\xc2\x9b"
         "31m",
         "", "\\xc2\\x9b31m"}, /* C1: the one-character ESC [ */
        {"\xe2\x80\xae"
         "abc",
         "",
         "\\xe2\\x80\\xae"
         "abc"}, /* right to left from here */
        {"a\xff\xc3", "", "a\\xff\\xc3"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char printed[100] = "";
        FILE *file = tmpfile();
        assert_non_null(file);
        escape_print(file, cases[i].text, strlen(cases[i].text), cases[i].kept);
        rewind(file);
        printed[fread(printed, 1, sizeof printed - 1, file)] = '\0';
        fclose(file);
        assert_string_equal(printed, cases[i].printed);
        assert_int_equal(escape_needed(cases[i].text, strlen(cases[i].text)),
                         *cases[i].kept || strcmp(cases[i].text, printed) != 0);
    }
}

static void test_nul(void **state)
{
    (void)state;
    assert_true(escape_needed("a\0b", 3));
    assert_false(escape_needed(NULL, 0));
}

/* A socket that keeps each write apart from the next. */
static void test_line_is_one_write(void **state)
{
    static const char wanted[] = "pelton: bad name \"a\\n\\x1b\" (12)\n";
    char line[100] = "";
    int ends[2];
    FILE *out;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    out = fdopen(ends[1], "w");
    assert_non_null(out);
    setvbuf(out, NULL, _IONBF, 0);
    escape_line(out, "%s: bad name \"%s\" (%d)", "pelton", "a\n\x1b", 12);
    assert_int_equal(read(ends[0], line, sizeof line - 1), sizeof wanted - 1);
    assert_string_equal(line, wanted);
    fclose(out);
    close(ends[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts), cmocka_unit_test(test_nul),
                                       cmocka_unit_test(test_line_is_one_write)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
