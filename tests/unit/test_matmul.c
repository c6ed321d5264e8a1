/* SPDX-License-Identifier: Apache-2.0
 *
 * matmul: by hand, against ref on tails, and bit for bit against itself with
 * other neighbours, threads and instruction sets.
 */
#include "tests/unit/kernels_fixture.h"

struct shape {
    uint32_t n_rows;
    uint32_t n_in;
    uint32_t n_out;
    uint32_t n_batches;
};

/* A product with memory of its own; rows of x, w and out lie a little apart. */
struct problem {
    struct matmul_args args;
    float *x;
    void *w;
    float *out;
    size_t out_count;
};

static struct problem problem_open(struct shape s, enum dtype w_dtype, enum matmul_layout layout,
                                   enum numerics numerics)
{
    const uint32_t w_rows = layout == MATMUL_OUT_IN ? s.n_out : s.n_in;
    const size_t w_stride = (layout == MATMUL_OUT_IN ? s.n_in : s.n_out) + 1;
    const size_t x_stride = s.n_in + 2, out_stride = s.n_out + 3;
    uint32_t seed = 7;
    struct problem p = {.out_count = s.n_batches * s.n_rows * out_stride};

    p.x = random_floats(s.n_batches * s.n_rows * x_stride, &seed);
    p.w = random_weights(s.n_batches * w_rows * w_stride, w_dtype, &seed);
    p.out = random_floats(p.out_count, &seed);
    p.args = (struct matmul_args){
        .x = p.x,
        .w = p.w,
        .out = p.out,
        .scratch = fixture_alloc(matmul_scratch_size(s.n_rows, s.n_in, s.n_batches, numerics)),
        .x_stride = x_stride,
        .w_stride = w_stride,
        .out_stride = out_stride,
        .x_batch_stride = s.n_rows * x_stride,
        .w_batch_stride = w_rows * w_stride,
        .out_batch_stride = s.n_rows * out_stride,
        .w_dtype = w_dtype,
        .layout = layout,
        .numerics = numerics,
        .n_rows = s.n_rows,
        .n_in = s.n_in,
        .n_out = s.n_out,
        .n_batches = s.n_batches,
    };
    return p;
}

static void problem_close(struct problem *p)
{
    free(p->x);
    free(p->w);
    free(p->out);
    free(p->args.scratch);
}

static void test_by_hand(void **state)
{
    const float x[] = {1, 2, 3, 4, 5, 6};
    const float w[] = {1, 0, -1, 2, 2, 2}; /* two outputs of three inputs */
    const float w_turned[] = {1, 2, 0, 2, -1, 2};
    struct matmul_args args = {.x = x,
                               .w = w,
                               .x_stride = 3,
                               .w_stride = 3,
                               .out_stride = 2,
                               .n_rows = 2,
                               .n_in = 3,
                               .n_out = 2,
                               .n_batches = 1};
    struct err err;

    (void)state;
    for (size_t i = 0; i <= fixture.n_fast; i++) {
        const struct backend *backend = i == 0 ? fixture.ref : fixture.fast[i - 1];
        float out[4] = {100, 100, 100, 100};
        args.out = out;
        assert_true(backend->matmul(fixture.streams[0], &args, &err));
        assert_true(same_bits(out, (float[]){-2, 12, -2, 30}, 4));

        struct matmul_args turned = args;
        turned.w = w_turned;
        turned.w_stride = 2;
        turned.layout = MATMUL_IN_OUT;
        turned.accumulate = true;
        assert_true(backend->matmul(fixture.streams[0], &turned, &err));
        assert_true(same_bits(out, (float[]){-4, 24, -4, 60}, 4));
    }
}

/* 1 + 1/256 lies between two bfloat16 and goes to the even one, 1; the mode must show. */
static void test_bf16_rounds_activations(void **state)
{
    const float x[] = {1 + 1.f / 256, 1 + 3.f / 256};
    const uint16_t w[] = {bf16_from_f32(1), 0, 0, bf16_from_f32(1)};
    float out[2];
    _Alignas(64) char scratch[256];
    struct matmul_args args = {.x = x,
                               .w = w,
                               .out = out,
                               .scratch = scratch,
                               .x_stride = 2,
                               .w_stride = 2,
                               .out_stride = 2,
                               .w_dtype = DTYPE_BF16,
                               .n_rows = 1,
                               .n_in = 2,
                               .n_out = 2,
                               .n_batches = 1};
    struct err err;

    (void)state;
    assert_true(matmul_scratch_size(1, 2, 1, NUMERICS_BF16) <= sizeof scratch);
    for (size_t i = 0; i <= fixture.n_fast; i++) {
        const struct backend *backend = i == 0 ? fixture.ref : fixture.fast[i - 1];
        args.numerics = NUMERICS_F32;
        assert_true(backend->matmul(fixture.streams[0], &args, &err));
        assert_true(same_bits(out, x, 2));
        args.numerics = NUMERICS_BF16;
        assert_true(backend->matmul(fixture.streams[0], &args, &err));
        assert_true(same_bits(out, (float[]){1, 1 + 4.f / 256}, 2));
    }
}

static void check_against_ref(struct shape s, enum dtype w_dtype, enum matmul_layout layout,
                              enum numerics numerics, bool accumulate)
{
    struct problem p = problem_open(s, w_dtype, layout, numerics);
    float *before = fixture_alloc(p.out_count * sizeof *before);
    float *expected = fixture_alloc(p.out_count * sizeof *expected);
    struct err err;

    p.args.accumulate = accumulate;
    memcpy(before, p.out, p.out_count * sizeof *before);
    CHECK(fixture.ref->matmul(fixture.streams[0], &p.args, &err));
    memcpy(expected, p.out, p.out_count * sizeof *expected);
    for (size_t i = 0; i < fixture.n_fast; i++) {
        memcpy(p.out, before, p.out_count * sizeof *before);
        assert_true(fixture.fast[i]->matmul(fixture.streams[1], &p.args, &err));
        /* the gaps between rows must still hold what was there: expected has it too */
        if (!all_close(p.out, expected, p.out_count, 4e-6f * (float)(s.n_in + 4)))
            fail_msg("%s: %u x %u x %u, weights %d, layout %d, numerics %d", fixture.fast[i]->name,
                     s.n_rows, s.n_in, s.n_out, (int)w_dtype, (int)layout, (int)numerics);
    }
    free(before);
    free(expected);
    problem_close(&p);
}

/* The last shape is computed in blocks. */
static void test_agrees_with_ref(void **state)
{
    const struct shape shapes[] = {
        {0, 8, 8, 1},    {1, 1, 1, 1},     {1, 15, 7, 1},     {2, 16, 4, 3},     {3, 17, 5, 2},
        {4, 31, 9, 1},   {5, 32, 16, 1},   {6, 33, 17, 2},    {7, 48, 63, 1},    {8, 64, 64, 1},
        {13, 95, 65, 1}, {64, 100, 67, 1}, {1, 1000, 130, 1}, {33, 257, 129, 2}, {40, 3001, 50, 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int w_dtype = DTYPE_F32; w_dtype <= DTYPE_BF16; w_dtype++)
            for (int layout = MATMUL_OUT_IN; layout <= MATMUL_IN_OUT; layout++)
                for (int numerics = NUMERICS_F32; numerics <= NUMERICS_BF16; numerics++)
                    for (int accumulate = 0; accumulate < 2; accumulate++)
                        check_against_ref(shapes[i], (enum dtype)w_dtype,
                                          (enum matmul_layout)layout, (enum numerics)numerics,
                                          accumulate);
}

/* Row 37 of 64, alone, and with NaN in all other rows, on every number of threads. */
static void check_row_alone(const struct backend *backend, struct shape s, enum dtype w_dtype,
                            enum matmul_layout layout, enum numerics numerics)
{
    enum { ROW = 37 };
    struct problem all = problem_open(s, w_dtype, layout, numerics);
    struct problem one = problem_open(s, w_dtype, layout, numerics);
    const float *row = all.out + ROW * all.args.out_stride;
    struct err err;

    assert_true(backend->matmul(fixture.streams[0], &all.args, &err));
    one.args.x += ROW * one.args.x_stride;
    one.args.n_rows = 1;
    assert_true(backend->matmul(fixture.streams[0], &one.args, &err));
    assert_true(same_bits(one.out, row, s.n_out));

    for (size_t i = 0; i < N_THREADS_MAX; i++) {
        struct problem threads = problem_open(s, w_dtype, layout, numerics);
        for (size_t k = 0; k < s.n_rows * threads.args.x_stride; k++)
            if (k / threads.args.x_stride != ROW)
                threads.x[k] = NAN;
        assert_true(backend->matmul(fixture.streams[i], &threads.args, &err));
        assert_true(same_bits(threads.out + ROW * threads.args.out_stride, row, s.n_out));
        problem_close(&threads);
    }
    problem_close(&all);
    problem_close(&one);
}

/* Shapes large enough to be shared out; the second is computed in blocks. */
static void test_row_does_not_know_its_neighbours(void **state)
{
    const struct shape shapes[] = {{64, 203, 131, 1}, {64, 3001, 45, 1}};

    (void)state;
    for (size_t i = 0; i < fixture.n_fast * 2; i++)
        for (int w_dtype = DTYPE_F32; w_dtype <= DTYPE_BF16; w_dtype++)
            for (int layout = MATMUL_OUT_IN; layout <= MATMUL_IN_OUT; layout++)
                for (int numerics = NUMERICS_F32; numerics <= NUMERICS_BF16; numerics++)
                    check_row_alone(fixture.fast[i / 2], shapes[i % 2], (enum dtype)w_dtype,
                                    (enum matmul_layout)layout, (enum numerics)numerics);
}

static void test_same_id_same_bits(void **state)
{
    const struct shape s = {11, 333, 77, 2};
    struct err err;

    (void)state;
    for (int numerics = NUMERICS_F32; numerics <= NUMERICS_BF16; numerics++) {
        struct problem first = problem_open(s, DTYPE_BF16, MATMUL_OUT_IN, (enum numerics)numerics);
        if (fixture.n_fast > 0)
            CHECK(fixture.fast[0]->matmul(fixture.streams[0], &first.args, &err));
        for (size_t i = 1; i < fixture.n_fast; i++) {
            struct problem other =
                problem_open(s, DTYPE_BF16, MATMUL_OUT_IN, (enum numerics)numerics);
            const bool same_id = strcmp(fixture.fast[0]->numerics_id[numerics],
                                        fixture.fast[i]->numerics_id[numerics]) == 0;
            assert_true(fixture.fast[i]->matmul(fixture.streams[0], &other.args, &err));
            assert_int_equal(same_id, same_bits(first.out, other.out, first.out_count));
            problem_close(&other);
        }
        problem_close(&first);
    }
}

/* Experts 0 and 3 have no rows; the row behind the last is not touched. */
static void test_grouped(void **state)
{
    enum { N_IN = 37, N_OUT = 21, N_ROWS = 14, N_ROWS_USED = 13 };
    const uint32_t offsets[] = {0, 0, 1, 9, 9, N_ROWS_USED};
    uint32_t seed = 3;
    float *x = random_floats(N_ROWS * N_IN, &seed);
    void *w = random_weights(5 * N_IN * N_OUT, DTYPE_BF16, &seed);
    void *scratch = fixture_alloc(matmul_scratch_size(N_ROWS, N_IN, 1, NUMERICS_BF16));
    const void *experts[5];
    float out[N_ROWS * N_OUT], expected[N_ROWS * N_OUT];
    struct matmul_grouped_args args = {.x = x,
                                       .w = experts,
                                       .offsets = offsets,
                                       .scratch = scratch,
                                       .x_stride = N_IN,
                                       .out_stride = N_OUT,
                                       .w_dtype = DTYPE_BF16,
                                       .n_rows_max = N_ROWS,
                                       .n_in = N_IN,
                                       .n_out = N_OUT,
                                       .n_groups = 5};
    struct err err;

    (void)state;
    for (size_t e = 0; e < 5; e++)
        experts[e] = (uint16_t *)w + e * N_IN * N_OUT;
    for (int numerics = NUMERICS_F32; numerics <= NUMERICS_BF16; numerics++) {
        args.numerics = (enum numerics)numerics;
        args.out = expected;
        expected[N_ROWS_USED * N_OUT] = 5;
        assert_true(fixture.ref->matmul_grouped(fixture.streams[0], &args, &err));
        assert_true(expected[N_ROWS_USED * N_OUT] == 5);
        for (size_t i = 0; i < fixture.n_fast; i++) {
            const float *row = x + 8 * N_IN; /* the last row of expert 2, as a product of its own */
            float alone[N_OUT];
            args.out = out;
            out[N_ROWS_USED * N_OUT] = 6;
            assert_true(fixture.fast[i]->matmul_grouped(fixture.streams[2], &args, &err));
            assert_true(out[N_ROWS_USED * N_OUT] == 6);
            assert_true(all_close(out, expected, N_ROWS_USED * N_OUT, 1e-4f));
            assert_true(fixture.fast[i]->matmul(fixture.streams[0],
                                                &(struct matmul_args){.x = row,
                                                                      .w = experts[2],
                                                                      .out = alone,
                                                                      .scratch = scratch,
                                                                      .x_stride = N_IN,
                                                                      .w_stride = N_IN,
                                                                      .out_stride = N_OUT,
                                                                      .w_dtype = DTYPE_BF16,
                                                                      .numerics = args.numerics,
                                                                      .n_rows = 1,
                                                                      .n_in = N_IN,
                                                                      .n_out = N_OUT,
                                                                      .n_batches = 1},
                                                &err));
            assert_true(same_bits(alone, out + 8 * N_OUT, N_OUT));
        }
    }
    free(x);
    free(w);
    free(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_bf16_rounds_activations),
        cmocka_unit_test(test_agrees_with_ref),
        cmocka_unit_test(test_row_does_not_know_its_neighbours),
        cmocka_unit_test(test_same_id_same_bits),
        cmocka_unit_test(test_grouped),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
