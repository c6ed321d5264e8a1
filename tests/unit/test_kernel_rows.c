/* SPDX-License-Identifier: Apache-2.0
 *
 * embedding, rmsnorm and swiglu: by hand, against ref on tails, and bit for
 * bit on any number of threads and in any company.
 */
#include "tests/unit/kernels_fixture.h"

static void test_embedding(void **state)
{
    enum { N_TOKENS = 9, DIM = 21 };
    const uint32_t tokens[] = {8, 0, 3, 3};
    uint32_t seed = 4;
    struct err err;

    (void)state;
    for (int dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++) {
        void *table = random_weights(N_TOKENS * DIM, (enum dtype)dtype, &seed);
        for (size_t i = 0; i <= fixture.n_fast; i++) {
            const struct backend *backend = i == 0 ? fixture.ref : fixture.fast[i - 1];
            float *out = fixture_alloc(4 * DIM * sizeof *out);
            const struct embedding_args args = {.tokens = tokens,
                                                .table = table,
                                                .out = out,
                                                .table_dtype = (enum dtype)dtype,
                                                .n_rows = 4,
                                                .n_tokens_known = N_TOKENS,
                                                .dim = DIM};
            assert_true(backend->embedding(fixture.streams[0], &args, &err));
            for (size_t k = 0; k < 4 * DIM; k++) {
                const size_t from = tokens[k / DIM] * (size_t)DIM + k % DIM;
                assert_true(out[k] == (dtype == DTYPE_F32
                                           ? ((float *)table)[from]
                                           : bf16_to_f32(((uint16_t *)table)[from])));
            }
            free(out);
        }
        free(table);
    }
}

/* The root of the mean square of (1, 7) is 5. */
static void test_rmsnorm_by_hand(void **state)
{
    const float x[] = {1, 3};
    const float w[] = {10, 1};
    struct err err;

    (void)state;
    for (size_t i = 0; i <= fixture.n_fast; i++) {
        const struct backend *backend = i == 0 ? fixture.ref : fixture.fast[i - 1];
        float residual[] = {0, 4}, out[2];
        struct rmsnorm_args args = {.x = x,
                                    .residual = residual,
                                    .w = w,
                                    .out = out,
                                    .x_stride = 2,
                                    .residual_stride = 2,
                                    .out_stride = 2,
                                    .n_rows = 1,
                                    .dim = 2};
        assert_true(backend->rmsnorm(fixture.streams[0], &args, &err));
        assert_true(same_bits(residual, (float[]){1, 7}, 2));
        assert_true(all_close(out, (float[]){2, 1.4f}, 2, 1e-6f));

        args.residual = NULL; /* (3, 1): the mean square is 5, and 4 more by eps */
        args.x = (float[]){3, 1};
        args.eps = 4;
        assert_true(backend->rmsnorm(fixture.streams[0], &args, &err));
        assert_true(all_close(out, (float[]){10, 1 / 3.f}, 2, 1e-6f));
    }
}

static void check_rmsnorm(uint32_t dim, enum dtype w_dtype, bool with_residual)
{
    enum { N_ROWS = 40, ROW = 17 };
    const size_t stride = dim + 3, n = N_ROWS * stride;
    uint32_t seed = 6;
    float *x = random_floats(n, &seed);
    float *residual = random_floats(n, &seed);
    float *expected = random_floats(n, &seed);
    void *w = random_weights(dim, w_dtype, &seed);
    float *alone = fixture_alloc(dim * sizeof *alone);
    struct rmsnorm_args args = {.x = x,
                                .w = w,
                                .x_stride = stride,
                                .residual_stride = stride,
                                .out_stride = stride,
                                .w_dtype = w_dtype,
                                .n_rows = N_ROWS,
                                .dim = dim,
                                .eps = 1e-6f};
    struct err err;

    for (size_t i = 0; i < 1 + fixture.n_fast * N_THREADS_MAX; i++) {
        const struct backend *backend =
            i == 0 ? fixture.ref : fixture.fast[(i - 1) / N_THREADS_MAX];
        struct stream *stream = fixture.streams[i == 0 ? 0 : (i - 1) % N_THREADS_MAX];
        float *sum = fixture_alloc(n * sizeof *sum);
        float *out = fixture_alloc(n * sizeof *out);
        memcpy(sum, residual, n * sizeof *sum);
        memcpy(out, expected, n * sizeof *out); /* the gaps between rows hold the same */
        args.out = out;
        args.residual = with_residual ? sum : NULL;
        assert_true(backend->rmsnorm(stream, &args, &err));
        if (i == 0)
            memcpy(expected, out, n * sizeof *out);
        assert_true(all_close(out, expected, n, 3e-6f));

        struct rmsnorm_args one = args;
        float *row_sum = random_floats(dim, &seed);
        memcpy(row_sum, residual + ROW * stride, dim * sizeof *row_sum);
        one.x = x + ROW * stride;
        one.residual = with_residual ? row_sum : NULL;
        one.out = alone;
        one.n_rows = 1;
        assert_true(backend->rmsnorm(fixture.streams[0], &one, &err));
        assert_true(same_bits(alone, out + ROW * stride, dim));
        free(row_sum);
        free(sum);
        free(out);
    }
    free(x);
    free(residual);
    free(expected);
    free(w);
    free(alone);
}

static void test_rmsnorm_agrees_with_ref(void **state)
{
    const uint32_t dims[] = {1, 16, 33, 192, 7168};

    (void)state;
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        check_rmsnorm(dims[i], DTYPE_F32, false);
        check_rmsnorm(dims[i], DTYPE_BF16, true);
    }
}

/* silu(ln 3) is 3/4 ln 3. Large arguments give the arguments or 0, and no NaN. */
static void test_swiglu_by_hand(void **state)
{
    const float gate[] = {logf(3), 0, 200, -200, -80};
    const float up[] = {4, 5, 1, 1, 1};
    struct err err;

    (void)state;
    for (size_t i = 0; i <= fixture.n_fast; i++) {
        const struct backend *backend = i == 0 ? fixture.ref : fixture.fast[i - 1];
        float out[5];
        const struct swiglu_args args = {.gate = gate,
                                         .up = up,
                                         .out = out,
                                         .gate_stride = 5,
                                         .up_stride = 5,
                                         .out_stride = 5,
                                         .n_rows = 1,
                                         .dim = 5};
        assert_true(backend->swiglu(fixture.streams[0], &args, &err));
        assert_true(all_close(out, (float[]){3 * logf(3), 0, 200, 0, 0}, 5, 1e-6f));
    }
}

/* Gate and up side by side in one row, out over the gate; 90 rows, of which 77 are used. */
static void test_swiglu_agrees_with_ref(void **state)
{
    enum { N_ROWS = 90, DIM = 1003, ROW = 2 * DIM };
    const uint32_t n_used = 77;
    uint32_t seed = 8;
    float *x = random_floats(N_ROWS * ROW, &seed);
    float *expected = fixture_alloc(N_ROWS * ROW * sizeof *expected);
    float *out = fixture_alloc(N_ROWS * ROW * sizeof *out);
    float *first = fixture_alloc(N_ROWS * ROW * sizeof *first);
    struct err err;

    (void)state;
    for (size_t k = 0; k < N_ROWS * ROW; k++)
        x[k] *= 10;
    for (size_t i = 0; i < 1 + fixture.n_fast * N_THREADS_MAX; i++) {
        const struct backend *backend =
            i == 0 ? fixture.ref : fixture.fast[(i - 1) / N_THREADS_MAX];
        float *to = i == 0 ? expected : out;
        const struct swiglu_args args = {.gate = to,
                                         .up = to + DIM,
                                         .out = to,
                                         .n_rows_used = &n_used,
                                         .gate_stride = ROW,
                                         .up_stride = ROW,
                                         .out_stride = ROW,
                                         .n_rows = N_ROWS,
                                         .dim = DIM};
        memcpy(to, x, N_ROWS * ROW * sizeof *x);
        assert_true(
            backend->swiglu(fixture.streams[i == 0 ? 0 : (i - 1) % N_THREADS_MAX], &args, &err));
        assert_true(same_bits(to + n_used * ROW, x + n_used * ROW, (N_ROWS - n_used) * ROW));
        if (i == 1)
            memcpy(first, out, N_ROWS * ROW * sizeof *out);
        if (i > 0) {
            assert_true(all_close(out, expected, N_ROWS * ROW, 2e-5f));
            assert_true(same_bits(out, first, N_ROWS * ROW)); /* all back ends, all threads */
        }
    }
    free(x);
    free(expected);
    free(out);
    free(first);
}

static void test_empty_batches(void **state)
{
    struct err err;

    (void)state;
    for (size_t i = 0; i <= fixture.n_fast; i++) {
        const struct backend *backend = i == 0 ? fixture.ref : fixture.fast[i - 1];
        struct stream *stream = fixture.streams[0];
        assert_true(backend->embedding(stream, &(struct embedding_args){.dim = 8}, &err));
        assert_true(backend->rmsnorm(stream, &(struct rmsnorm_args){.dim = 8}, &err));
        assert_true(backend->swiglu(stream, &(struct swiglu_args){.dim = 8}, &err));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embedding),
        cmocka_unit_test(test_rmsnorm_by_hand),
        cmocka_unit_test(test_rmsnorm_agrees_with_ref),
        cmocka_unit_test(test_swiglu_by_hand),
        cmocka_unit_test(test_swiglu_agrees_with_ref),
        cmocka_unit_test(test_empty_batches),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
