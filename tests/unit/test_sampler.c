/* SPDX-License-Identifier: Apache-2.0
 *
 * The sampler: published Philox vectors, hand-worked filters, ties, and the
 * frequencies of many positions against the softmax.
 */
#include "worker/sampler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

/* Random123's kat_vectors, philox4x32 with 10 rounds. */
static void philox_gives_the_published_vectors(void **state)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } vectors[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        uint32_t out[4];

        sampler_philox(vectors[i].counter, vectors[i].key, out);
        assert_memory_equal(out, vectors[i].out, sizeof out);
    }
}

static int32_t choose(struct sampling sampling, uint64_t position, const float *logits, size_t n)
{
    struct sampler_candidate scratch[64];
    struct err err = {0};
    int32_t id = -1;

    assert_true(n <= 64);
    assert_true(sampler_choose(&sampling, position, logits, n, scratch, &id, &err));
    return id;
}

static void greedy_takes_the_largest_and_the_lower_of_equals(void **state)
{
    const float logits[] = {-3.0f, 2.0f, NAN, 2.0f, -INFINITY};
    const float infinite[] = {1.0f, INFINITY, INFINITY};

    (void)state;
    assert_int_equal(choose((struct sampling){.top_p = 1.0f}, 0, logits, 5), 1);
    assert_int_equal(choose((struct sampling){.temperature = 1.0f, .top_p = 1.0f}, 0, infinite, 3),
                     1);
}

static void nothing_to_choose_is_an_error(void **state)
{
    const float logits[] = {NAN, -INFINITY};
    struct sampler_candidate scratch[2];
    struct sampling sampling = {.top_p = 1.0f};
    struct err err = {0};
    int32_t id;

    (void)state;
    assert_false(sampler_choose(&sampling, 7, logits, 2, scratch, &id, &err));
    assert_int_equal(err.kind, ERR_REJECT);
    assert_non_null(strstr(err.message, "position 7"));
}

/* Counts of 20,000 positions; allowed error 4 standard deviations of a fair draw. */
static void assert_frequencies(struct sampling sampling, const float *logits, const double *wanted,
                               size_t n)
{
    enum { DRAWS = 20000 };
    uint32_t counts[64] = {0};

    for (uint64_t position = 0; position < DRAWS; position++)
        counts[choose(sampling, position, logits, n)]++;
    for (size_t id = 0; id < n; id++) {
        double off = fabs(counts[id] - wanted[id] * DRAWS);

        assert_true(off <= 4.0 * sqrt(wanted[id] * (1.0 - wanted[id]) * DRAWS));
    }
}

/* ln 1, ln 2, ln 3, ln 4: the softmax is .1 .2 .3 .4 */
static const float tenths[] = {0.0f, 0.69314718f, 1.09861229f, 1.38629436f};

static void draws_follow_the_softmax(void **state)
{
    struct sampling plain = {.temperature = 1.0f, .top_p = 1.0f, .seed = 1};
    struct sampling hot = {.temperature = 0.5f, .top_p = 1.0f, .seed = 2};

    (void)state;
    assert_frequencies(plain, tenths, (const double[]){.1, .2, .3, .4}, 4);
    /* At half the temperature the weights are squared: 1 4 9 16 of 30. */
    assert_frequencies(hot, tenths, (const double[]){1 / 30.0, 4 / 30.0, 9 / 30.0, 16 / 30.0}, 4);
}

static void filters_keep_the_best(void **state)
{
    const float equal[] = {0.0f, 0.0f, 0.0f, 0.0f};
    struct sampling two = {.temperature = 1.0f, .top_p = 1.0f, .top_k = 2, .seed = 3};
    struct sampling nucleus = {.temperature = 1.0f, .top_p = 0.65f, .seed = 4};
    struct sampling both = {.temperature = 1.0f, .top_p = 0.5f, .top_k = 3, .seed = 5};
    struct sampling half = {.temperature = 1.0f, .top_p = 0.5f, .seed = 6};
    struct sampling one = {.temperature = 2.0f, .top_p = 1.0f, .top_k = 1, .seed = 7};
    struct sampling tiny = {.temperature = 2.0f, .top_p = 1e-6f, .seed = 8};

    (void)state;
    assert_frequencies(two, tenths, (const double[]){0, 0, 3 / 7.0, 4 / 7.0}, 4);
    assert_frequencies(nucleus, tenths, (const double[]){0, 0, 3 / 7.0, 4 / 7.0}, 4);
    /* top_k 3 leaves 2 3 4 of 9; half of 9 is passed by 4 + 3. */
    assert_frequencies(both, tenths, (const double[]){0, 0, 3 / 7.0, 4 / 7.0}, 4);
    assert_frequencies(half, equal, (const double[]){.5, .5, 0, 0}, 4); /* ties: lower ids stay */
    assert_frequencies(one, tenths, (const double[]){0, 0, 0, 1}, 4);
    assert_frequencies(tiny, tenths, (const double[]){0, 0, 0, 1}, 4);
}

static void seed_and_position_decide_alone(void **state)
{
    struct sampling sampling = {.temperature = 1.5f, .top_p = 0.95f, .seed = 0x123456789abcdef0};
    struct sampling other = sampling;
    float logits[50];
    int differs_by_seed = 0, differs_by_position = 0;

    (void)state;
    other.seed ^= (uint64_t)1 << 63;
    for (size_t i = 0; i < 50; i++)
        logits[i] = (float)((i * 37) % 11) * 0.1f;
    for (uint64_t position = 0; position < 100; position++) {
        int32_t id = choose(sampling, position, logits, 50);

        assert_int_equal(id, choose(sampling, position, logits, 50));
        differs_by_seed += id != choose(other, position, logits, 50);
        differs_by_position += id != choose(sampling, position + ((uint64_t)1 << 40), logits, 50);
    }
    assert_true(differs_by_seed > 50);
    assert_true(differs_by_position > 50);
}

static void the_default_seed_comes_from_the_request_id(void **state)
{
    (void)state;
    assert_int_equal(sampler_seed("foobar", 6), 0x85944171f73967e8); /* FNV-1a's test vector */
    assert_int_not_equal(sampler_seed("foobar", 6), sampler_seed("foobas", 6));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_vectors),
        cmocka_unit_test(greedy_takes_the_largest_and_the_lower_of_equals),
        cmocka_unit_test(nothing_to_choose_is_an_error),
        cmocka_unit_test(draws_follow_the_softmax),
        cmocka_unit_test(filters_keep_the_best),
        cmocka_unit_test(seed_and_position_decide_alone),
        cmocka_unit_test(the_default_seed_comes_from_the_request_id),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
