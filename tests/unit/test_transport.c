/* SPDX-License-Identifier: Apache-2.0
 *
 * transport_local and the sorting under it: a micro-batch by hand, empty ones,
 * two in flight, and sums in slot order whatever the company.
 */
#include "kernels/transport.h"
#include "tests/unit/kernels_fixture.h"

enum { N_EXPERTS = 5, TOP_K = 2, DIM = 19, N_TOKENS_MAX = 600 };

static struct transport *open_local(const struct backend *backend, size_t n_threads)
{
    const struct transport_options options = {.backend = backend,
                                              .device = fixture.devices[n_threads - 1],
                                              .n_ranks = 1,
                                              .n_experts = N_EXPERTS,
                                              .top_k = TOP_K,
                                              .dim = DIM,
                                              .n_tokens_max = N_TOKENS_MAX,
                                              .n_slots = 2};
    struct transport *transport;
    struct err err;

    assert_true(transport_open_local(options, &transport, &err));
    assert_int_equal(transport_rows_max(transport), N_TOKENS_MAX * TOP_K);
    return transport;
}

/* Three tokens; experts 0 and 3 get nobody. Expert e multiplies by e. */
static void check_by_hand(const struct backend *backend)
{
    struct transport *transport = open_local(backend, 1);
    struct stream *stream = fixture.streams[0];
    const uint32_t experts[] = {4, 1, 1, 2, 2, 1};
    const float weights[] = {1, 10, 1, 10, 1, 10};
    float x[3 * DIM], shared[3 * DIM], out[3 * DIM], rows_out[6 * DIM];
    struct transport_rows rows;
    struct err err;

    for (size_t i = 0; i < 3 * DIM; i++) {
        x[i] = (float)(i / DIM + 1);
        shared[i] = 1000;
        out[i] = 5000;
    }
    assert_true(transport_dispatch_send(
        transport, stream, 0,
        &(struct transport_batch){
            .x = x, .experts = experts, .weights = weights, .x_stride = DIM, .n_tokens = 3},
        &err));
    assert_true(transport_dispatch_recv(transport, stream, 0, &rows, &err));
    assert_int_equal(rows.n_experts_local, N_EXPERTS);
    assert_int_equal(rows.expert_first, 0);
    assert_int_equal(rows.n_rows_max, 6);
    assert_memory_equal(rows.offsets, ((uint32_t[]){0, 0, 3, 5, 5, 6}), 6 * sizeof(uint32_t));
    for (uint32_t row = 0; row < 6; row++) {
        const float expected[] = {1, 2, 3, 2, 3, 1}; /* tokens ascending within an expert */
        const float expert[] = {1, 1, 1, 2, 2, 4};
        assert_true(rows.x[row * DIM] == expected[row]);
        for (size_t i = 0; i < DIM; i++)
            rows_out[row * DIM + i] = rows.x[row * DIM + i] * expert[row];
    }
    assert_true(transport_combine_send(transport, stream, 0, rows_out, &err));
    assert_true(transport_combine_recv(transport, stream, 0,
                                       &(struct transport_result){.shared = shared,
                                                                  .out = out,
                                                                  .shared_stride = DIM,
                                                                  .out_stride = DIM,
                                                                  .accumulate = true},
                                       &err));
    for (size_t i = 0; i < DIM; i++) {
        assert_true(out[i] == 6000 + 1 * (4 + 10 * 1));
        assert_true(out[DIM + i] == 6000 + 2 * (1 + 10 * 2));
        assert_true(out[2 * DIM + i] == 6000 + 3 * (2 + 10 * 1));
    }
    transport_close(transport);
}

static void test_by_hand(void **state)
{
    (void)state;
    check_by_hand(fixture.ref);
    for (size_t i = 0; i < fixture.n_fast; i++)
        check_by_hand(fixture.fast[i]);
}

static void test_no_tokens(void **state)
{
    (void)state;
    for (size_t i = 0; i <= fixture.n_fast; i++) {
        struct transport *transport = open_local(i == 0 ? fixture.ref : fixture.fast[i - 1], 1);
        const struct transport_batch batch = {.x_stride = DIM};
        const struct transport_result result = {.out_stride = DIM};
        struct stream *stream = fixture.streams[0];
        struct transport_rows rows;
        struct err err;
        assert_true(transport_dispatch_send(transport, stream, 1, &batch, &err));
        assert_true(transport_dispatch_recv(transport, stream, 1, &rows, &err));
        assert_int_equal(rows.n_rows_max, 0);
        for (size_t e = 0; e <= N_EXPERTS; e++)
            assert_int_equal(rows.offsets[e], 0);
        assert_true(transport_combine_send(transport, stream, 1, NULL, &err));
        assert_true(transport_combine_recv(transport, stream, 1, &result, &err));
        transport_close(transport);
    }
}

/* Tokens [first, first + n) of a common random batch go through a slot; experts do nothing. */
static void round_trip(struct transport *transport, struct stream *stream, uint32_t slot,
                       uint32_t first, uint32_t n, float *out)
{
    uint32_t seed = 9;
    float *x = random_floats(N_TOKENS_MAX * DIM, &seed);
    float *weights = random_floats(N_TOKENS_MAX * TOP_K, &seed);
    uint32_t experts[N_TOKENS_MAX * TOP_K];
    const struct transport_batch batch = {.x = x + first * DIM,
                                          .experts = experts + first * TOP_K,
                                          .weights = weights + first * TOP_K,
                                          .x_stride = DIM,
                                          .n_tokens = n};
    const struct transport_result result = {.out = out, .out_stride = DIM};
    struct transport_rows rows;
    struct err err;

    for (uint32_t token = 0; token < N_TOKENS_MAX; token++) {
        experts[token * TOP_K] = token * 7 % N_EXPERTS;
        experts[token * TOP_K + 1] = (token * 7 + 1 + token % 4) % N_EXPERTS;
    }
    assert_true(transport_dispatch_send(transport, stream, slot, &batch, &err));
    assert_true(transport_dispatch_recv(transport, stream, slot, &rows, &err));
    assert_true(transport_combine_send(transport, stream, slot, rows.x, &err));
    assert_true(transport_combine_recv(transport, stream, slot, &result, &err));
    for (uint32_t i = 0; i < n * DIM; i++) {
        const uint32_t token = first + i / DIM;
        const float sum =
            (weights[token * TOP_K] + weights[token * TOP_K + 1]) * x[first * DIM + i];
        assert_true(fabsf(out[i] - sum) < 1e-5f);
    }
    free(x);
    free(weights);
}

static void test_company_does_not_show(void **state)
{
    float *all = fixture_alloc(N_TOKENS_MAX * DIM * sizeof *all);
    float *part = fixture_alloc(N_TOKENS_MAX * DIM * sizeof *part);

    (void)state;
    for (size_t i = 0; i <= fixture.n_fast; i++) {
        for (size_t threads = 1; threads <= N_THREADS_MAX; threads++) {
            struct transport *transport =
                open_local(i == 0 ? fixture.ref : fixture.fast[i - 1], threads);
            struct stream *stream = fixture.streams[threads - 1];
            round_trip(transport, stream, 0, 0, N_TOKENS_MAX, all);
            round_trip(transport, stream, 1, 100, 7, part);
            assert_true(same_bits(part, all + 100 * DIM, 7 * DIM));
            transport_close(transport);
        }
    }
    free(all);
    free(part);
}

static void test_more_ranks_are_refused(void **state)
{
    const struct transport_options options = {
        .backend = fixture.ref, .device = fixture.devices[0], .n_ranks = 2, .rank = 1};
    struct transport *transport;
    struct err err;

    (void)state;
    assert_false(transport_open_local(options, &transport, &err));
    assert_int_equal(err.kind, ERR_FATAL);
    assert_string_equal(err.message, "transport local: rank 1 of 2 wanted, it has one rank");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_no_tokens),
        cmocka_unit_test(test_company_does_not_show),
        cmocka_unit_test(test_more_ranks_are_refused),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
