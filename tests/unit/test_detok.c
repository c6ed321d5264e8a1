/* SPDX-License-Identifier: Apache-2.0
 *
 * Detokenising: characters split over tokens, broken bytes, tails.
 */
#include "worker/detok.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#define FFFD "\xEF\xBF\xBD"

struct run {
    struct detok detok;
    char out[256];
    size_t size;
};

static void push(struct run *run, const char *bytes)
{
    run->size += detok_push(&run->detok, bytes, strlen(bytes), run->out + run->size);
}

static void assert_out(struct run *run, const char *wanted)
{
    assert_int_equal(run->size, strlen(wanted));
    assert_memory_equal(run->out, wanted, run->size);
}

static void a_split_character_appears_whole(void **state)
{
    struct run run = {0};

    (void)state;
    detok_init(&run.detok, false);
    push(&run, "a\xF0\x9F");
    assert_out(&run, "a");
    push(&run, "\x98\x8A");
    assert_out(&run, "a\xF0\x9F\x98\x8A");
    push(&run, "\xC3");
    push(&run, "\xBC"
               "b");
    assert_out(&run, "a\xF0\x9F\x98\x8A\xC3\xBC"
                     "b");
    assert_int_equal(detok_finish(&run.detok, run.out + run.size), 0);
}

static void an_incomplete_tail_is_flushed_once(void **state)
{
    struct run run = {0};

    (void)state;
    detok_init(&run.detok, false);
    push(&run, "x\xF0\x9F\x98");
    assert_out(&run, "x");
    run.size += detok_finish(&run.detok, run.out + run.size);
    assert_out(&run, "x" FFFD);
    assert_int_equal(detok_finish(&run.detok, run.out + run.size), 0);
}

/* The Unicode standard's own examples (3.9, tables 3-8 to 3-11). */
static void broken_bytes_become_one_mark_for_each_maximal_part(void **state)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82"
         "A",
         FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A"},
        {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF"
         "A",
         FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A"},
        {"\xF4\x91\x92\x93\xFF"
         "A\x80\xBF"
         "B",
         FFFD FFFD FFFD FFFD FFFD "A" FFFD FFFD "B"},
        {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
         "A",
         FFFD FFFD FFFD FFFD "A"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run run = {0};

        detok_init(&run.detok, false);
        push(&run, cases[i].in);
        assert_out(&run, cases[i].out);
    }
}

static void any_cut_gives_the_same_text(void **state)
{
    static const char in[] =
        "\xE1\x80\xF0\x9F\x98\x8A z\xC3\xBC\xFF\xED\xA0\x80\xE2\x82\xAC\xF1\xBF";
    struct run whole = {0};

    (void)state;
    detok_init(&whole.detok, false);
    push(&whole, in);
    for (size_t cut = 0; cut < sizeof in - 1; cut++) {
        struct run run = {0};

        detok_init(&run.detok, false);
        run.size = detok_push(&run.detok, in, cut, run.out);
        push(&run, in + cut);
        assert_int_equal(run.size, whole.size);
        assert_memory_equal(run.out, whole.out, whole.size);
    }
}

static void one_space_goes_where_the_model_says_so(void **state)
{
    struct run run = {0};

    (void)state;
    detok_init(&run.detok, true);
    push(&run, "");
    push(&run, "  a");
    push(&run, " b");
    assert_out(&run, " a b");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_split_character_appears_whole),
        cmocka_unit_test(an_incomplete_tail_is_flushed_once),
        cmocka_unit_test(broken_bytes_become_one_mark_for_each_maximal_part),
        cmocka_unit_test(any_cut_gives_the_same_text),
        cmocka_unit_test(one_space_goes_where_the_model_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
