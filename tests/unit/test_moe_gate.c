/* SPDX-License-Identifier: Apache-2.0
 *
 * moe_gate: rows worked out by hand, faults that others have reported, and
 * ties everywhere against ref.
 */
#include "tests/unit/kernels_fixture.h"

enum { TOP_K_MAX = 8 };

static void check_gate(struct moe_gate_args args, const uint32_t *experts, const float *weights)
{
    uint32_t experts_out[TOP_K_MAX];
    float weights_out[TOP_K_MAX];
    struct err err;

    args.experts = experts_out;
    args.weights = weights_out;
    args.n_tokens = 1;
    for (size_t i = 0; i <= fixture.n_fast; i++) {
        const struct backend *backend = i == 0 ? fixture.ref : fixture.fast[i - 1];
        assert_true(backend->moe_gate(fixture.streams[0], &args, &err));
        assert_memory_equal(experts_out, experts, args.top_k * sizeof *experts);
        assert_true(all_close(weights_out, weights, args.top_k, 1e-4f));
    }
}

/* sglang PR 35160 and sglang-jax PR 1282: renormalisation and scaling forgotten. */
static void test_softmax_weights(void **state)
{
    const float logits[] = {2, 1, 0, -1};
    struct moe_gate_args args = {.logits = logits,
                                 .score = MOE_GATE_SOFTMAX,
                                 .n_experts = 4,
                                 .n_groups = 1,
                                 .groups_top = 1,
                                 .top_k = 2,
                                 .scale = 1};

    (void)state;
    check_gate(args, (uint32_t[]){0, 1}, (float[]){.6439f, .2369f});
    args.scale = 2.5f;
    check_gate(args, (uint32_t[]){0, 1}, (float[]){1.6098f, .5922f});
    args.normalize = true;
    args.scale = 1;
    check_gate(args, (uint32_t[]){0, 1}, (float[]){.7311f, .2689f});
}

/* The bias moves the choice, not the weight: sigmoid(0) is 1/2, sigmoid(ln 3) is 3/4. */
static void test_bias_chooses_only(void **state)
{
    const float logits[] = {0, logf(3), 0, -100};
    const float bias[] = {0, 0, 0.3f, -1};

    (void)state;
    check_gate((struct moe_gate_args){.logits = logits,
                                      .bias = bias,
                                      .n_experts = 4,
                                      .n_groups = 1,
                                      .groups_top = 1,
                                      .top_k = 3,
                                      .scale = 2},
               (uint32_t[]){2, 1, 0}, (float[]){1, 1.5f, 1});
}

/* Three groups of three. By choices the best single expert is 0, but its group's two best sum up
 * to less than those of the other groups. */
static void test_groups(void **state)
{
    const float zeros[9] = {0};
    const float bias[] = {4, 0, 0, 2, 2, 0, 3, 2, 1};

    (void)state;
    check_gate((struct moe_gate_args){.logits = zeros,
                                      .bias = (float[]){4, -2, -2, 2, 2, 0, 3, 2, 1},
                                      .n_experts = 9,
                                      .n_groups = 3,
                                      .groups_top = 2,
                                      .top_k = 4,
                                      .scale = 1,
                                      .normalize = true},
               (uint32_t[]){6, 3, 4, 7}, (float[]){.25f, .25f, .25f, .25f});
    /* groups 0 and 1 tie for the second place: the lower one stays */
    check_gate((struct moe_gate_args){.logits = zeros,
                                      .bias = bias,
                                      .n_experts = 9,
                                      .n_groups = 3,
                                      .groups_top = 2,
                                      .top_k = 3,
                                      .scale = 1},
               (uint32_t[]){0, 6, 7}, (float[]){.5f, .5f, .5f});
}

/* A dropped group must not come back because all choices that stay are negative. */
static void test_negative_choices_stay_in_their_groups(void **state)
{
    const float logits[] = {-3, -3, -3, -3};

    (void)state;
    check_gate((struct moe_gate_args){.logits = logits,
                                      .bias = (float[]){-9, -8, -5, -7},
                                      .n_experts = 4,
                                      .n_groups = 2,
                                      .groups_top = 1,
                                      .top_k = 2,
                                      .scale = 1,
                                      .normalize = true},
               (uint32_t[]){2, 3}, (float[]){.5f, .5f});
}

/* vllm PR 38859: 256 logits, all of them negative. 7 and 256 have no common divisor, so the
 * logits are all different, and the largest is where 7 e mod 256 is. */
static void test_all_logits_negative(void **state)
{
    float logits[256];
    uint32_t experts[8];
    float weights[8];

    (void)state;
    for (uint32_t e = 0; e < 256; e++)
        logits[e] = -9 + (float)(7 * e % 256) / 32;
    for (uint32_t k = 0; k < 8; k++) {
        experts[k] = (255 - k) * 183 % 256; /* 183 * 7 is 1 modulo 256 */
        weights[k] = 1 / (1 + expf(-logits[experts[k]]));
    }
    check_gate((struct moe_gate_args){.logits = logits,
                                      .n_experts = 256,
                                      .n_groups = 1,
                                      .groups_top = 1,
                                      .top_k = 8,
                                      .scale = 1},
               experts, weights);
}

static void test_ties_go_to_the_lower_index(void **state)
{
    const float logits[40] = {0};

    (void)state;
    check_gate((struct moe_gate_args){.logits = logits,
                                      .score = MOE_GATE_SOFTMAX,
                                      .n_experts = 40,
                                      .n_groups = 1,
                                      .groups_top = 1,
                                      .top_k = 4,
                                      .scale = 10},
               (uint32_t[]){0, 1, 2, 3}, (float[]){.25f, .25f, .25f, .25f});
}

/* Whatever the logits are, experts are in range and distinct: they index memory. */
static void test_not_a_number(void **state)
{
    const float logits[] = {NAN, 1, NAN, INFINITY, -INFINITY};
    uint32_t experts[5];
    float weights[5];
    struct moe_gate_args args = {.logits = logits,
                                 .experts = experts,
                                 .weights = weights,
                                 .n_tokens = 1,
                                 .n_experts = 5,
                                 .n_groups = 1,
                                 .groups_top = 1,
                                 .top_k = 5,
                                 .scale = 1};
    struct err err;

    (void)state;
    for (size_t i = 0; i <= fixture.n_fast; i++) {
        const struct backend *backend = i == 0 ? fixture.ref : fixture.fast[i - 1];
        assert_true(backend->moe_gate(fixture.streams[0], &args, &err));
        assert_memory_equal(experts, ((uint32_t[]){3, 1, 4, 0, 2}), sizeof experts);
    }
}

static void check_against_ref(struct moe_gate_args args)
{
    enum { N_TOKENS = 300 };
    const size_t n_chosen = (size_t)N_TOKENS * args.top_k;
    uint32_t experts_ref[N_TOKENS * TOP_K_MAX], experts[N_TOKENS * TOP_K_MAX];
    float weights_ref[N_TOKENS * TOP_K_MAX], weights[N_TOKENS * TOP_K_MAX];
    float *logits = fixture_alloc((size_t)N_TOKENS * args.n_experts * sizeof *logits);
    uint32_t seed = 5;
    struct err err;

    /* 32 values only: ties, the hard part, are everywhere, and far enough from each other */
    for (size_t i = 0; i < (size_t)N_TOKENS * args.n_experts; i++)
        logits[i] = floorf(random_float(&seed) * 16) / 4;
    args.logits = logits;
    args.n_tokens = N_TOKENS;
    args.experts = experts_ref;
    args.weights = weights_ref;
    assert_true(fixture.ref->moe_gate(fixture.streams[0], &args, &err));
    args.experts = experts;
    args.weights = weights;
    for (size_t i = 0; i < fixture.n_fast; i++) {
        assert_true(fixture.fast[i]->moe_gate(fixture.streams[2], &args, &err));
        assert_memory_equal(experts, experts_ref, n_chosen * sizeof *experts);
        assert_true(all_close(weights, weights_ref, n_chosen, 1e-5f));
    }
    free(logits);
}

static void test_agrees_with_ref(void **state)
{
    const struct moe_gate_args shapes[] = {
        {.n_experts = 16, .n_groups = 1, .groups_top = 1, .top_k = 4},
        {.n_experts = 256, .n_groups = 8, .groups_top = 4, .top_k = 8},
        {.n_experts = 60, .n_groups = 1, .groups_top = 1, .top_k = 4},
        {.n_experts = 7, .n_groups = 7, .groups_top = 3, .top_k = 3},
        {.n_experts = 5, .n_groups = 1, .groups_top = 1, .top_k = 5},
        {.n_experts = 1, .n_groups = 1, .groups_top = 1, .top_k = 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (int normalize = 0; normalize < 2; normalize++) {
            struct moe_gate_args args = shapes[i];
            args.normalize = normalize;
            args.scale = 2.5f;
            args.score = MOE_GATE_SIGMOID;
            check_against_ref(args);
            args.score = MOE_GATE_SOFTMAX;
            check_against_ref(args);
        }
    }
}

static void test_empty_batch(void **state)
{
    const struct moe_gate_args args = {
        .n_experts = 4, .n_groups = 1, .groups_top = 1, .top_k = 2, .scale = 1};
    struct err err;

    (void)state;
    for (size_t i = 0; i <= fixture.n_fast; i++) {
        const struct backend *backend = i == 0 ? fixture.ref : fixture.fast[i - 1];
        assert_true(backend->moe_gate(fixture.streams[0], &args, &err));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softmax_weights),
        cmocka_unit_test(test_bias_chooses_only),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_negative_choices_stay_in_their_groups),
        cmocka_unit_test(test_all_logits_negative),
        cmocka_unit_test(test_ties_go_to_the_lower_index),
        cmocka_unit_test(test_not_a_number),
        cmocka_unit_test(test_agrees_with_ref),
        cmocka_unit_test(test_empty_batch),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
