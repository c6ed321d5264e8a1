/* SPDX-License-Identifier: Apache-2.0
 *
 * Places of a batch for long requests, by what short ones need.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "scheduler/long_share.h"

static const int64_t start_ms = 1700000000000;

static void all_of_the_batch_where_none_are_short(void **state)
{
    struct long_share share = {0};

    (void)state;
    assert_int_equal(long_share_room(&share, 8, 50), 8);
    long_share_note(&share, 0, start_ms);
    assert_int_equal(long_share_room(&share, 8, 50), 8);
    assert_int_equal(long_share_room(&share, 8, 0), 8);
    assert_int_equal(long_share_room(&share, 0, 50), 1); /* a batch that is not known yet */
}

/* Three of eight are short: five places are left, whatever the share below that. */
static void what_short_ones_leave(void **state)
{
    struct long_share share = {0};

    (void)state;
    long_share_note(&share, 3, start_ms);
    assert_int_equal(long_share_room(&share, 8, 50), 5);
    assert_int_equal(long_share_room(&share, 8, 0), 5);
    assert_int_equal(long_share_room(&share, 8, 75), 6); /* its share, which is more */
}

static void never_less_than_the_share(void **state)
{
    struct long_share share = {0};

    (void)state;
    long_share_note(&share, 1e6, start_ms);
    assert_int_equal(long_share_room(&share, 8, 50), 4);
    assert_int_equal(long_share_room(&share, 8, 100), 8);
    assert_int_equal(long_share_room(&share, 8, 0), 1);
    assert_int_equal(long_share_room(&share, 2, 25), 1);
    assert_int_equal(long_share_room(&share, UINT32_MAX, 50), UINT32_MAX - 1000000);
}

/* Four at once are two after 30 s and one after 60; half a place is one, less is none. */
static void needs_are_forgotten_by_half(void **state)
{
    struct long_share share = {0};

    (void)state;
    long_share_note(&share, 4, start_ms);
    long_share_note(&share, 0, start_ms + 30000);
    assert_int_equal(long_share_room(&share, 8, 0), 6);
    long_share_note(&share, 0, start_ms + 60000);
    assert_int_equal(long_share_room(&share, 8, 0), 7);
    long_share_note(&share, 0, start_ms + 89000);
    assert_int_equal(long_share_room(&share, 8, 0), 7);
    long_share_note(&share, 0, start_ms + 91000);
    assert_int_equal(long_share_room(&share, 8, 0), 8);
}

/* One that runs 10 s in every 39: its place is kept for the 29 between them. */
static void a_steady_stream_keeps_its_place(void **state)
{
    struct long_share share = {0};
    int64_t now_ms = start_ms;

    (void)state;
    for (int i = 0; i < 10; i++) {
        for (int64_t at = 0; at < 39000; at += 20) {
            long_share_note(&share, at < 10000 ? 1 : 0, now_ms + at);
            assert_int_equal(long_share_room(&share, 4, 25), 3);
        }
        now_ms += 39000;
    }
    long_share_note(&share, 0, now_ms + 1100);
    assert_int_equal(long_share_room(&share, 4, 25), 4);
}

/* More than was known counts at once, less does not. */
static void the_most_at_once_counts(void **state)
{
    struct long_share share = {0};

    (void)state;
    long_share_note(&share, 2, start_ms);
    long_share_note(&share, 6, start_ms + 20);
    assert_int_equal(long_share_room(&share, 10, 0), 4);
    long_share_note(&share, 1, start_ms + 40);
    assert_int_equal(long_share_room(&share, 10, 0), 4);
}

/* 1,000 tokens of work read, 368 of them after a second: what waits may be as much. */
static void a_second_of_reading_may_wait(void **state)
{
    struct long_prompts waiting = {.count = LONG_PROMPTS_MIN, .work = 300};
    struct long_pace pace = {0};

    (void)state;
    assert_false(long_pace_allows(&pace, &waiting, 1, 0, start_ms));
    long_pace_note(&pace, 1000, start_ms);
    assert_true(long_pace_allows(&pace, &waiting, 700, 0, start_ms));
    assert_false(long_pace_allows(&pace, &waiting, 701, 0, start_ms));
    assert_true(long_pace_allows(&pace, &waiting, 67, 0, start_ms + 1000));
    assert_false(long_pace_allows(&pace, &waiting, 69, 0, start_ms + 1000));
    long_pace_note(&pace, 632, start_ms + 1000);
    assert_true(long_pace_allows(&pace, &waiting, 699, 0, start_ms + 1000));
    assert_false(long_pace_allows(&pace, &waiting, 701, 0, start_ms + 1000));
}

static void two_prompts_always_may(void **state)
{
    const struct long_pace pace = {0};

    (void)state;
    for (uint32_t count = 0; count < 4; count++) {
        const struct long_prompts waiting = {count, 1000 * count};
        assert_int_equal(long_pace_allows(&pace, &waiting, 1 << 20, 0, start_ms), count < 2);
    }
}

/* Steps of two seconds that read 1,000 each: three of them may wait. */
static void slow_steps_are_kept_full(void **state)
{
    const struct long_prompts waiting = {.count = 8, .work = 5000};
    struct long_pace pace = {0};

    (void)state;
    long_pace_note(&pace, 1000, start_ms);
    assert_true(long_pace_allows(&pace, &waiting, 1000, 2000000, start_ms));
    assert_false(long_pace_allows(&pace, &waiting, 1001, 2000000, start_ms));
    assert_false(long_pace_allows(&pace, &waiting, 1, 300000, start_ms));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_of_the_batch_where_none_are_short),
        cmocka_unit_test(what_short_ones_leave),
        cmocka_unit_test(never_less_than_the_share),
        cmocka_unit_test(needs_are_forgotten_by_half),
        cmocka_unit_test(a_steady_stream_keeps_its_place),
        cmocka_unit_test(the_most_at_once_counts),
        cmocka_unit_test(a_second_of_reading_may_wait),
        cmocka_unit_test(two_prompts_always_may),
        cmocka_unit_test(slow_steps_are_kept_full),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
