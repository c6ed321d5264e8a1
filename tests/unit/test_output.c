/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "producer/output.h"

static mode_t kind_of(const char *path)
{
    struct stat status;

    return lstat(path, &status) == 0 ? status.st_mode & S_IFMT : 0;
}

static bool write_output(const char *path, bool keep)
{
    struct output output;
    struct err err;

    assert_true(output_open(&output, path, &err));
    assert_true(output_write_line(&output, strdup("text"), &err));
    return output_close(&output, keep, &err);
}

/* A regular file gets its name at the end; a link and a full device stay what they are. */
static void test_output(void **state)
{
    char folder[] = "/tmp/test_output_XXXXXX", file[60], link[60], full[60], same[80];

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/file", folder);
    snprintf(link, sizeof link, "%s/link", folder);
    snprintf(full, sizeof full, "%s/full", folder);
    snprintf(same, sizeof same, "%s/../%s/file", folder, strrchr(folder, '/') + 1);
    assert_true(output_same(file, same)); /* not there yet */
    assert_true(write_output(file, false));
    assert_int_equal(kind_of(file), 0);
    assert_true(write_output(file, true));
    assert_int_equal(kind_of(file), S_IFREG);
    assert_int_equal(symlink("file", link), 0);
    assert_int_equal(symlink("/dev/full", full), 0);
    assert_true(output_same(file, link));
    assert_false(output_same(file, full));
    assert_false(output_same("-", "-"));
    assert_true(write_output(link, true));
    assert_int_equal(kind_of(link), S_IFLNK);
    assert_false(write_output(full, true));
    assert_int_equal(kind_of(full), S_IFLNK);
    assert_int_equal(remove(full) + remove(link) + remove(file) + remove(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_output)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
