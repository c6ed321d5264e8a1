/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding the tensors of a small model, and the rotary rows of files that do
 * not interleave them: attention scores must be the same.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "worker/deepseek_v3_weights.h"

static const char dir[] = "tests/golden/tiny/yarn";

static void test_finds_everything(void **state)
{
    struct model_config c;
    struct weights *weights;
    struct deepseek_v3_weights model;
    struct err err;

    (void)state;
    assert_true(model_config_read(&c, dir, &err));
    assert_true(weights_open(&weights, dir, &err));
    assert_true(deepseek_v3_weights_open(&model, &c, weights, &err));
    assert_int_equal(model.layer_count, 3);
    assert_false(model.layers[0].has_experts);
    assert_int_equal(model.layers[0].shared.dim, c.mlp_dim);
    assert_true(model.layers[2].has_experts);
    assert_int_equal(model.layers[2].expert_layer, 1);
    assert_int_equal(model.layers[2].shared.dim, c.expert_dim);
    assert_non_null(model.layers[2].experts.down[15]);
    /* The values' part of a head begins after its keys' part. */
    assert_ptr_equal(model.layers[0].w_uv.data,
                     (const char *)model.layers[0].w_uk.data + 2 * c.nope_dim * c.kv_rank);
    assert_ptr_not_equal(model.head.data, model.embedding.data);
    deepseek_v3_weights_close(&model);
    weights_close(weights);
}

static void refuse(const struct model_config *config, const char *words)
{
    struct weights *weights;
    struct deepseek_v3_weights model;
    struct err err;

    assert_true(weights_open(&weights, dir, &err));
    assert_false(deepseek_v3_weights_open(&model, config, weights, &err));
    if (!strstr(err.message, words))
        fail_msg("said \"%s\", expected \"%s\"", err.message, words);
    weights_close(weights);
}

static void test_names_what_is_missing(void **state)
{
    struct model_config c;
    struct model_config other;
    struct err err;

    (void)state;
    assert_true(model_config_read(&c, dir, &err));
    other = c;
    other.layers = 4;
    refuse(&other, "tensor model.layers.3.input_layernorm.weight is missing");
    other = c;
    other.experts = 32;
    refuse(&other, "tensor model.layers.1.mlp.gate.weight");
    other = c;
    other.expert_dim = 31;
    refuse(&other, "tensor model.layers.1.mlp.experts.0.gate_proj.weight");
    other = c;
    other.dense_first = 0;
    refuse(&other, "tensor model.layers.0.mlp.gate.weight is missing");
    other = c;
    other.q_rank = 0;
    refuse(&other, "tensor model.layers.0.self_attn.q_proj.weight is missing");
}

/* Element (row, 0) of a matrix. */
static float first_of(struct weight w, uint32_t row, uint32_t columns)
{
    return bf16_to_f32(((const uint16_t *)w.data)[(size_t)row * columns]);
}

/* Rotates pairs (a, b) of x by the angle position / (1 + pair). */
static void rotate(const float *x, uint32_t dim, bool halves, double position, double *out)
{
    for (uint32_t i = 0; i < dim / 2; i++) {
        const uint32_t a = halves ? i : 2 * i;
        const uint32_t b = halves ? i + dim / 2 : 2 * i + 1;
        const double angle = position / (1 + i);

        out[a] = (double)x[a] * cos(angle) - (double)x[b] * sin(angle);
        out[b] = (double)x[b] * cos(angle) + (double)x[a] * sin(angle);
    }
}

/* The score of a query at position 5 with a key at position 2, both the first columns of the
 * projections' rotary rows of layer 0, head 1. */
static double score(const struct deepseek_v3_layer *layer, const struct model_config *c,
                    bool halves)
{
    float q[64] = {0};
    float k[64] = {0};
    double q_rotated[64] = {0};
    double k_rotated[64] = {0};
    double sum = 0;

    assert_true(c->rope_dim <= 64);
    for (uint32_t i = 0; i < c->rope_dim; i++) {
        const uint32_t q_row = c->nope_dim + c->rope_dim + c->nope_dim + i;

        q[i] = first_of(layer->q_b, q_row, c->q_rank);
        k[i] = first_of(layer->kv_a, c->kv_rank + i, c->hidden);
    }
    rotate(q, c->rope_dim, halves, 5, q_rotated);
    rotate(k, c->rope_dim, halves, 2, k_rotated);
    for (uint32_t i = 0; i < c->rope_dim; i++)
        sum += q_rotated[i] * k_rotated[i];
    return sum;
}

static void test_halves_become_pairs(void **state)
{
    struct model_config c;
    struct weights *weights;
    struct deepseek_v3_weights as_stored;
    struct deepseek_v3_weights reordered;
    struct err err;
    double right;

    (void)state;
    assert_true(model_config_read(&c, dir, &err));
    assert_true(weights_open(&weights, dir, &err));
    assert_true(deepseek_v3_weights_open(&as_stored, &c, weights, &err));
    c.rope_interleaved = false;
    assert_true(deepseek_v3_weights_open(&reordered, &c, weights, &err));
    right = score(&as_stored.layers[0], &c, true);
    assert_true(fabs(right - score(&reordered.layers[0], &c, false)) < 1e-9);
    assert_true(fabs(right - score(&as_stored.layers[0], &c, false)) > 1e-3);
    /* Rows without position stay where they are. */
    assert_true(first_of(as_stored.layers[0].q_b, 3, c.q_rank) ==
                first_of(reordered.layers[0].q_b, 3, c.q_rank));
    deepseek_v3_weights_close(&reordered);
    deepseek_v3_weights_close(&as_stored);
    weights_close(weights);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_everything),
        cmocka_unit_test(test_names_what_is_missing),
        cmocka_unit_test(test_halves_become_pairs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
