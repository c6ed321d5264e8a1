/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers as they grow: what may be streamed, and that the streamed parts make
 * the whole text.
 */
#include "worker/answer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

enum { BYTE = 5, SPACE = 261, HI = 266 }; /* ids: tests/golden/sentencepiece/README.md */

static int open_text(void **state)
{
    struct err err = {0};
    struct text *text;

    if (!text_open("tests/golden/sentencepiece", &text, &err))
        return -1;
    *state = text;
    return 0;
}

static int close_text(void **state)
{
    text_close(*state);
    return 0;
}

static void assert_text(const struct answer *answer, const char *wanted)
{
    struct answer_view view = answer_view(answer);

    assert_int_equal(view.size, strlen(wanted));
    assert_memory_equal(view.text, wanted, view.size);
}

static void ids_are_ready_when_their_text_is_final(void **state)
{
    static const int32_t ends[] = {2, 2, 2, 2, 6, 6};
    struct stop_strings none = {.count = 0};
    struct answer *answer = answer_open(*state, &none);
    struct answer_view view;

    assert_false(answer_push(answer, HI, false));
    assert_int_equal(answer_view(answer).ready, 1);
    for (int i = 0; i < 3; i++) {
        assert_false(answer_push(answer, BYTE + (unsigned char)"\xF0\x9F\x98"[i], false));
        assert_int_equal(answer_view(answer).ready, 1);
    }
    assert_false(answer_push(answer, BYTE + 0x8A, false));
    assert_int_equal(answer_view(answer).ready, 5);
    assert_false(answer_push(answer, 2, true));
    answer_finish(answer);
    view = answer_view(answer);
    assert_int_equal(view.ready, 6);
    assert_int_equal(view.count, 6);
    assert_memory_equal(view.ends, ends, sizeof ends);
    assert_text(answer, "hi\xF0\x9F\x98\x8A");
    answer_close(answer);
}

static void an_incomplete_tail_belongs_to_the_last_id(void **state)
{
    struct stop_strings none = {.count = 0};
    struct answer *answer = answer_open(*state, &none);

    answer_push(answer, BYTE + 'x', false);
    answer_push(answer, BYTE + 0xF0, false);
    answer_push(answer, 2, true);
    assert_int_equal(answer_view(answer).ready, 1);
    answer_finish(answer);
    assert_int_equal(answer_view(answer).ready, 3);
    assert_int_equal(answer_view(answer).ends[1], 1);
    assert_int_equal(answer_view(answer).ends[2], 4);
    assert_text(answer, "x\xEF\xBF\xBD");
    answer_close(answer);
}

static void a_stop_string_is_held_back_and_cut(void **state)
{
    static const int32_t ends[] = {1, 2, 2, 2};
    struct stop_strings stops = {.items = {{"bcd", 3}}, .count = 1};
    struct answer *answer = answer_open(*state, &stops);

    assert_false(answer_push(answer, BYTE + 'a', false));
    assert_false(answer_push(answer, BYTE + 'b', false));
    assert_int_equal(answer_view(answer).ready, 1);
    assert_false(answer_push(answer, BYTE + 'b', false)); /* the first b is no start any more */
    assert_int_equal(answer_view(answer).ready, 2);
    assert_false(answer_push(answer, BYTE + 'c', false));
    assert_int_equal(answer_view(answer).ready, 2);
    assert_true(answer_push(answer, BYTE + 'd', false));
    answer_finish(answer);
    assert_text(answer, "ab");
    assert_int_equal(answer_view(answer).count, 5); /* usage counts what was generated */
    assert_int_equal(answer_view(answer).ready, 5);
    assert_memory_equal(answer_view(answer).ends, ends, sizeof ends);
    assert_int_equal(answer_view(answer).ends[4], 2);
    answer_close(answer);
}

static void what_is_no_stop_string_after_all_is_released(void **state)
{
    struct stop_strings stops = {.items = {{"bcd", 3}}, .count = 1};
    struct answer *answer = answer_open(*state, &stops);

    answer_push(answer, BYTE + 'b', false);
    answer_push(answer, BYTE + 'c', false);
    assert_int_equal(answer_view(answer).ready, 0);
    answer_finish(answer);
    assert_int_equal(answer_view(answer).ready, 2);
    assert_text(answer, "bc");
    answer_close(answer);
}

/* Every byte sequence of three ids from a set that has all kinds of trouble in it. */
static void streamed_parts_are_the_whole_text(void **state)
{
    static const int32_t set[] = {HI, SPACE, 3, BYTE + 'h', BYTE + 0xC3, BYTE + 0xBC, BYTE + 0xFF};
    struct stop_strings stops = {.items = {{"h\xC3\xBC", 3}, {"i h", 3}}, .count = 2};

    for (size_t n = 0; n < 7 * 7 * 7 * 7; n++) {
        struct answer *answer = answer_open(*state, &stops);
        char streamed[64];
        size_t size = 0, sent = 0, rest = n;
        bool stopped = false;

        for (int i = 0; i < 5; i++) {
            struct answer_view view;

            if (i == 4 || stopped)
                answer_finish(answer);
            else
                stopped = answer_push(answer, set[rest % 7], false);
            rest /= 7;
            view = answer_view(answer);
            if (view.ready > sent) {
                size_t from = sent == 0 ? 0 : (size_t)view.ends[sent - 1];
                size_t end = (size_t)view.ends[view.ready - 1];

                assert_int_equal(from, size);
                memcpy(streamed + size, view.text + from, end - from);
                size = end;
                sent = view.ready;
            }
        }
        assert_int_equal(sent, answer_view(answer).count);
        assert_int_equal(size, answer_view(answer).size);
        assert_memory_equal(streamed, answer_view(answer).text, size);
        answer_close(answer);
    }
}

/* Without stop strings the text is what the reference decoder makes of the ids. */
static void the_demo_models_text_is_the_reference_decoders(void **state)
{
    struct stop_strings none = {.count = 0};
    struct err err = {0};
    struct text *text;
    uint32_t random = 1;

    (void)state;
    assert_true(text_open("ops/demo/model", &text, &err));
    for (int run = 0; run < 200; run++) {
        struct answer *answer = answer_open(text, &none);
        int32_t ids[40];
        char wanted[4096];
        size_t size = 0;

        for (int i = 0; i < 40; i++) {
            random = random * 1664525u + 1013904223u;
            ids[i] = (int32_t)((random >> 8) % (run % 2 ? 2048 : 262)); /* few: mostly bytes */
            answer_push(answer, ids[i], false);
        }
        answer_finish(answer);
        assert_true(text_decode(text, ids, 40, wanted, sizeof wanted, &size, &err));
        assert_int_equal(answer_view(answer).size, size);
        assert_memory_equal(answer_view(answer).text, wanted, size);
        answer_close(answer);
    }
    text_close(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_ready_when_their_text_is_final),
        cmocka_unit_test(an_incomplete_tail_belongs_to_the_last_id),
        cmocka_unit_test(a_stop_string_is_held_back_and_cut),
        cmocka_unit_test(what_is_no_stop_string_after_all_is_released),
        cmocka_unit_test(streamed_parts_are_the_whole_text),
        cmocka_unit_test(the_demo_models_text_is_the_reference_decoders),
    };

    return cmocka_run_group_tests(tests, open_text, close_text);
}
