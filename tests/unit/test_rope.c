/* SPDX-License-Identifier: Apache-2.0
 *
 * rope: rotation by hand, the YaRN tables against values of the published
 * formula, and fast back ends against ref.
 */
#include "tests/unit/kernels_fixture.h"

/* The rope_scaling of DeepSeek-V3's config.json. */
static const struct rope_config deepseek_v3 = {
    .dim = 64,
    .theta = 10000,
    .yarn = true,
    .factor = 40,
    .original_max_position_embeddings = 4096,
    .beta_fast = 32,
    .beta_slow = 1,
    .mscale = 1,
    .mscale_all_dim = 1,
};

/* Frequencies are 1 and 1/100: at position 3 the angles are 3 and 0.03. */
static void test_plain_table(void **state)
{
    const struct rope_config config = {.dim = 4, .theta = 10000};
    float table[4 * 4];

    (void)state;
    rope_table_build(&config, 4, table);
    assert_true(all_close(table, (float[]){1, 1, 0, 0}, 4, 0));
    assert_true(
        all_close(table + 12, (float[]){-.9899925f, .9995500f, .1411200f, .0299955f}, 4, 1e-6f));
    assert_true(rope_attention_factor(&config) == 1);
    assert_true(rope_softmax_factor(&config) == 1);
}

/* Pairs turn between 32 and 1 times in 4096 positions from pair 10 to pair 23:
 *     64 ln(4096 / (32 * 2 pi)) / (2 ln 10000) = 10.47,  64 ln(4096 / (2 pi)) / (2 ln 10000)
 * = 22.51 Below pair 10 frequencies are plain, above 23 they are a 40th, and pair 16 in between is
 * 1/100 * (7/13 + 6/13 / 40). */
static void test_yarn_table(void **state)
{
    const double pair_16 = 0.01 * (7 / 13. + 6 / 13. / 40);
    float *table = fixture_alloc(2 * 64 * sizeof *table);
    const float *sines = table + 64 + 32;

    (void)state;
    rope_table_build(&deepseek_v3, 2, table);
    for (int pair = 0; pair <= 10; pair++)
        assert_true(fabs(sines[pair] - sin(pow(10000, -pair / 32.))) < 1e-6);
    assert_true(fabs(sines[11] - sin(pow(10000, -11 / 32.))) > 1e-4);
    assert_true(fabs(sines[16] - sin(pair_16)) < 1e-7);
    for (int pair = 23; pair < 32; pair++)
        assert_true(fabs(sines[pair] - sin(pow(10000, -pair / 32.) / 40)) < 1e-8);
    free(table);
}

/* 0.1 ln 40 + 1 = 1.36889: with equal mscales it cancels in the table and stays, squared, in the
 * softmax; without them it is in the table. */
static void test_yarn_factors(void **state)
{
    struct rope_config config = deepseek_v3;
    float table[64];

    (void)state;
    assert_true(fabs(rope_attention_factor(&config) - 1) < 1e-12);
    assert_true(fabs(rope_softmax_factor(&config) - 1.8738542) < 1e-6);

    config.mscale = config.mscale_all_dim = 0;
    assert_true(fabs(rope_attention_factor(&config) - 1.3688879) < 1e-6);
    assert_true(rope_softmax_factor(&config) == 1);
    rope_table_build(&config, 1, table);
    assert_true(fabsf(table[0] - 1.3688879f) < 1e-6f);

    /* mscale 1/2: 1.18444, over 1.36889 */
    config.mscale = 0.5;
    config.mscale_all_dim = 1;
    assert_true(fabs(rope_attention_factor(&config) - 1.18444395 / 1.3688879) < 1e-6);

    config.attention_factor = 2;
    assert_true(rope_attention_factor(&config) == 2);
}

/* A quarter turn: (a, b) becomes (-b, a), in the interleaved pair. */
static void test_rotation_by_hand(void **state)
{
    const float table[] = {1, 1, 0, 0, 0, 1, 1, 0}; /* position 1 turns the first pair only */
    const uint32_t positions[] = {1, 0};
    struct err err;

    (void)state;
    for (size_t i = 0; i <= fixture.n_fast; i++) {
        const struct backend *backend = i == 0 ? fixture.ref : fixture.fast[i - 1];
        float x[] = {1, 2, 3, 4, 99, 1, 2, 3, 4, 99};
        const struct rope_args args = {.x = x,
                                       .positions = positions,
                                       .table = table,
                                       .row_stride = 5,
                                       .head_stride = 4,
                                       .n_rows = 2,
                                       .n_heads = 1,
                                       .dim = 4,
                                       .n_positions = 2};
        assert_true(backend->rope(fixture.streams[0], &args, &err));
        assert_true(all_close(x, (float[]){-2, 1, 3, 4, 99, 1, 2, 3, 4, 99}, 10, 0));
    }
}

/* Large enough for threads; every element is two products and a sum, so nothing may differ. */
static void test_same_bits_as_ref(void **state)
{
    enum { N_ROWS = 37, N_HEADS = 100, DIM = 66, ROW = N_HEADS * DIM, N_POSITIONS = 50 };
    const struct rope_config config = {.dim = DIM, .theta = 10000};
    uint32_t seed = 2;
    float *x = random_floats(N_ROWS * ROW, &seed);
    float *expected = fixture_alloc(N_ROWS * ROW * sizeof *expected);
    float *out = fixture_alloc(N_ROWS * ROW * sizeof *out);
    float *table = fixture_alloc(N_POSITIONS * DIM * sizeof *table);
    uint32_t positions[N_ROWS];
    struct rope_args args = {.positions = positions,
                             .table = table,
                             .row_stride = ROW,
                             .head_stride = DIM,
                             .n_rows = N_ROWS,
                             .n_heads = N_HEADS,
                             .dim = DIM,
                             .n_positions = N_POSITIONS};
    struct err err;

    (void)state;
    rope_table_build(&config, N_POSITIONS, table);
    for (uint32_t row = 0; row < N_ROWS; row++)
        positions[row] = row * 7 % N_POSITIONS;
    memcpy(expected, x, N_ROWS * ROW * sizeof *x);
    args.x = expected;
    assert_true(fixture.ref->rope(fixture.streams[0], &args, &err));
    for (size_t i = 0; i < fixture.n_fast; i++) {
        for (size_t threads = 0; threads < N_THREADS_MAX; threads++) {
            memcpy(out, x, N_ROWS * ROW * sizeof *x);
            args.x = out;
            assert_true(fixture.fast[i]->rope(fixture.streams[threads], &args, &err));
            assert_true(same_bits(out, expected, N_ROWS * ROW));
        }
    }
    free(x);
    free(expected);
    free(out);
    free(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_table),      cmocka_unit_test(test_yarn_table),
        cmocka_unit_test(test_yarn_factors),     cmocka_unit_test(test_rotation_by_hand),
        cmocka_unit_test(test_same_bits_as_ref),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
