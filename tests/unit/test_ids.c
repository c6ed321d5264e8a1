/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "common/clock.h"
#include "common/ids.h"
#include "common/utf8.h"

static void test_sha256_known_value(void **state)
{
    uint8_t digest[SHA256_SIZE], streamed[SHA256_SIZE];
    char text[2 * SHA256_SIZE + 1];
    struct sha256 *sha = sha256_open();

    (void)state;
    sha256("abc", 3, digest);
    hex_format(digest, sizeof digest, text);
    assert_string_equal(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    sha256_update(sha, "a", 1);
    sha256_update(sha, "bc", 2);
    sha256_close(sha, streamed);
    assert_memory_equal(digest, streamed, sizeof digest);
}

/* The example of RFC 9562: www.example.com in the DNS namespace. */
static void test_uuid5_known_value(void **state)
{
    const uint8_t dns[UUID_SIZE] = {0x6b, 0xa7, 0xb8, 0x10, 0x9d, 0xad, 0x11, 0xd1,
                                    0x80, 0xb4, 0x00, 0xc0, 0x4f, 0xd4, 0x30, 0xc8};
    const struct bytes pieces[] = {{"www.", 4}, {"example.com", 11}};
    uint8_t uuid[UUID_SIZE];
    char text[2 * UUID_SIZE + 1];

    (void)state;
    uuid_from_name(dns, pieces, 2, uuid);
    hex_format(uuid, sizeof uuid, text);
    assert_string_equal(text, "2ed6657de927568b95e12665a8aea6a2");
}

static void test_random_uuids_differ(void **state)
{
    uint8_t a[UUID_SIZE], b[UUID_SIZE];

    (void)state;
    uuid_random(a);
    uuid_random(b);
    assert_memory_not_equal(a, b, sizeof a);
    assert_int_equal(a[6] >> 4, 4);
    assert_int_equal(a[8] >> 6, 2);
}

static void test_traceparent(void **state)
{
    uint8_t id[UUID_SIZE];
    char text[TRACEPARENT_SIZE];

    (void)state;
    memset(id, 0xab, sizeof id);
    traceparent_format(id, text);
    assert_int_equal(strlen(text), 55);
    assert_memory_equal(text, "00-abababababababababababababababab-", 36);
    assert_string_equal(text + 52, "-01");
}

static void test_utf8(void **state)
{
    (void)state;
    assert_true(utf8_valid("", 0));
    assert_true(utf8_valid("plain ascii, long enough", 24));
    assert_true(utf8_valid("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x8a", 15));
    assert_true(utf8_valid("\xf4\x8f\xbf\xbf", 4));  /* U+10FFFF */
    assert_false(utf8_valid("\xf4\x90\x80\x80", 4)); /* beyond it */
    assert_false(utf8_valid("\xed\xa0\x80", 3));     /* a surrogate */
    assert_false(utf8_valid("\xc0\xaf", 2));         /* overlong */
    assert_false(utf8_valid("\xe0\x9f\xbf", 3));
    assert_false(utf8_valid("\xf0\x8f\xbf\xbf", 4));
    assert_false(utf8_valid("\x80", 1));
    assert_int_equal(utf8_valid_size("abc\xf0\x9f", 5), 3); /* cut in the middle */
}

/* Milliseconds since 1970, not seconds: a time stamp in seconds is deleted by retention at once. */
static void test_wall_clock_is_in_ms(void **state)
{
    char text[CLOCK_TEXT_SIZE];

    (void)state;
    assert_true(clock_wall_ms() > 1700000000000);
    clock_format_ms(1700000000123, text);
    assert_string_equal(text, "2023-11-14T22:13:20.123Z");
    clock_format_ms(-1, text);
    assert_string_equal(text, "1969-12-31T23:59:59.999Z");
}

static void test_monotonic_clock_advances(void **state)
{
    int64_t before = clock_mono_us();

    (void)state;
    clock_sleep_ms(5);
    assert_true(clock_mono_us() - before >= 5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256_known_value),
        cmocka_unit_test(test_uuid5_known_value),
        cmocka_unit_test(test_random_uuids_differ),
        cmocka_unit_test(test_traceparent),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_wall_clock_is_in_ms),
        cmocka_unit_test(test_monotonic_clock_advances),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
