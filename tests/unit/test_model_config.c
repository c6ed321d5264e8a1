/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json in both dialects, and for every rule one that breaks it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "worker/model_config.h"

/* A small model; every case adds keys behind, and the last of two equal keys counts. */
static const char base[] =
    "\"model_type\":\"deepseek_v3\",\"vocab_size\":100,\"hidden_size\":8,\"num_hidden_layers\":5,"
    "\"num_attention_heads\":2,\"q_lora_rank\":null,\"kv_lora_rank\":4,\"qk_nope_head_dim\":6,"
    "\"qk_rope_head_dim\":2,\"v_head_dim\":3,\"intermediate_size\":16,\"moe_intermediate_size\":4,"
    "\"n_routed_experts\":8,\"n_shared_experts\":1,\"num_experts_per_tok\":2,\"n_group\":4,"
    "\"topk_group\":2,\"first_k_dense_replace\":1,\"max_position_embeddings\":64,"
    "\"routed_scaling_factor\":2.5,\"eos_token_id\":2";

static bool parse(struct model_config *config, const char *more, const char *generation,
                  struct err *err)
{
    char text[4096];

    snprintf(text, sizeof text, "{%s%s%s}", base, *more ? "," : "", more);
    return model_config_parse(config, "dir/config.json", text, generation, err);
}

static void test_reads_sizes(void **state)
{
    struct model_config config;
    struct err err;

    (void)state;
    assert_true(parse(&config, "", NULL, &err));
    assert_int_equal(config.vocab_size, 100);
    assert_int_equal(config.q_rank, 0);
    assert_int_equal(config.kv_rank, 4);
    assert_int_equal(config.positions_max, 64);
    assert_true(config.expert_scale == 2.5f);
    assert_true(config.norm_eps == 1e-6f);
    assert_true(config.expert_normalize);
    assert_true(config.rope_interleaved);
    assert_false(config.embeddings_tied);
    assert_false(config.rope.yarn);
    assert_true(config.rope.theta == 10000);
    assert_int_equal(config.score, MOE_GATE_SIGMOID);
}

static void test_layers_with_experts(void **state)
{
    struct model_config config;
    struct err err;

    (void)state;
    assert_true(parse(&config, "", NULL, &err));
    assert_false(model_config_has_experts(&config, 0));
    assert_true(model_config_has_experts(&config, 1));
    assert_int_equal(model_config_expert_layers(&config), 4);
    assert_true(parse(&config, "\"moe_layer_freq\":2", NULL, &err));
    assert_false(model_config_has_experts(&config, 1));
    assert_true(model_config_has_experts(&config, 2));
    assert_int_equal(model_config_expert_layers(&config), 2);
    assert_true(parse(&config, "\"n_routed_experts\":null", NULL, &err));
    assert_int_equal(model_config_expert_layers(&config), 0);
}

static void test_rope_of_the_hub(void **state)
{
    struct model_config config;
    struct err err;

    (void)state;
    assert_true(parse(&config,
                      "\"rope_theta\":50000,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,"
                      "\"original_max_position_embeddings\":16,\"beta_fast\":24,\"mscale\":1.0,"
                      "\"mscale_all_dim\":0.5}",
                      NULL, &err));
    assert_true(config.rope.yarn);
    assert_true(config.rope.theta == 50000);
    assert_true(config.rope.factor == 40);
    assert_true(config.rope.original_max_position_embeddings == 16);
    assert_true(config.rope.beta_fast == 24);
    assert_true(config.rope.beta_slow == 1);
    assert_true(config.rope.mscale == 1);
    assert_true(config.rope.mscale_all_dim == 0.5);
}

static void test_rope_of_transformers_5(void **state)
{
    struct model_config config;
    struct err err;

    (void)state;
    assert_true(parse(&config,
                      "\"rope_parameters\":{\"rope_type\":\"yarn\",\"rope_theta\":70000,"
                      "\"factor\":4,\"original_max_position_embeddings\":16}",
                      NULL, &err));
    assert_true(config.rope.yarn);
    assert_true(config.rope.theta == 70000);
    assert_true(config.rope.factor == 4);
    assert_true(config.rope.beta_fast == 32);
    assert_true(parse(&config, "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":7e3}",
                      NULL, &err));
    assert_false(config.rope.yarn);
    assert_true(config.rope.theta == 7000);
}

static void test_eos(void **state)
{
    struct model_config config;
    struct err err;

    (void)state;
    assert_true(parse(&config, "", NULL, &err));
    assert_int_equal(config.eos_count, 1);
    assert_int_equal(config.eos_ids[0], 2);
    assert_true(parse(&config, "", "{\"eos_token_id\":[5,7]}", &err));
    assert_int_equal(config.eos_count, 2);
    assert_int_equal(config.eos_ids[1], 7);
    assert_true(parse(&config, "", "{}", &err));
    assert_int_equal(config.eos_ids[0], 2);
    assert_true(parse(&config, "\"eos_token_id\":null", NULL, &err));
    assert_int_equal(config.eos_count, 0);
    assert_false(parse(&config, "", "{\"eos_token_id\":100}", &err));
    assert_non_null(strstr(err.message, "eos_token_id"));
}

static void test_name(void **state)
{
    struct model_config config;
    struct err err;

    (void)state;
    assert_true(parse(&config, "\"_name_or_path\":\"org/some-model\"", NULL, &err));
    assert_string_equal(config.name, "some-model");
    assert_true(model_config_read(&config, "ops/demo/model/", &err));
    assert_string_equal(config.name, "model");
    assert_int_equal(config.eos_ids[0], 2);
    assert_false(model_config_read(&config, "ops/demo", &err));
    assert_non_null(strstr(err.message, "ops/demo/config.json: no such file"));
}

static void test_refuses(void **state)
{
    static const struct {
        const char *more;
        const char *words;
    } cases[] = {
        {"\"model_type\":\"llama\"", "model_type llama is not supported; deepseek_v3 is"},
        {"\"model_type\":null", "model_type (none)"},
        {"\"hidden_size\":0", "hidden_size is 0, allowed are 1 to 1048576"},
        {"\"hidden_size\":-1", "hidden_size is -1"},
        {"\"hidden_size\":1e9", "hidden_size is not an integer"},
        {"\"hidden_size\":\"8\"", "hidden_size is not an integer"},
        {"\"hidden_size\":99999999999", "hidden_size is 99999999999"},
        {"\"hidden_size\":null", "hidden_size is missing"},
        {"\"num_hidden_layers\":1025", "num_hidden_layers is 1025, allowed are 1 to 1024"},
        {"\"kv_lora_rank\":1023", "kv_lora_rank + qk_rope_head_dim is 1025"},
        {"\"qk_rope_head_dim\":3", "must be even"},
        {"\"num_experts_per_tok\":9", "num_experts_per_tok is 9, allowed are 1 to 8"},
        {"\"num_experts_per_tok\":5", "hold less than num_experts_per_tok 5"},
        {"\"n_group\":3", "not divisible by n_group 3"},
        {"\"n_group\":8", "groups of one expert"},
        {"\"n_group\":null", "n_group is missing"},
        {"\"hidden_act\":\"gelu\"", "hidden_act gelu"},
        {"\"scoring_func\":\"softmax\"", "scoring_func softmax"},
        {"\"topk_method\":\"greedy\"", "topk_method greedy"},
        {"\"attention_bias\":true", "attention_bias true"},
        {"\"attention_bias\":1", "attention_bias is not true or false"},
        {"\"quantization_config\":{\"quant_method\":\"fp8\"}", "quantization_config"},
        {"\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}", "rope scaling linear"},
        {"\"rope_scaling\":{\"type\":\"yarn\"}", "yarn has no factor"},
        {"\"rope_scaling\":{\"type\":\"yarn\",\"factor\":0.5}", "factor is 0.5"},
        {"\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"truncate\":false}", "truncate"},
        {"\"rope_theta\":\"x\"", "rope_theta is not a number"},
        {"\"rms_norm_eps\":2", "rms_norm_eps is 2, allowed are 0 to 1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_config config;
        struct err err;

        if (parse(&config, cases[i].more, NULL, &err))
            fail_msg("accepted: %s", cases[i].more);
        assert_int_equal(err.kind, ERR_REJECT);
        assert_non_null(strstr(err.message, "dir/config.json"));
        if (!strstr(err.message, cases[i].words))
            fail_msg("%s: said \"%s\"", cases[i].more, err.message);
    }
}

static void test_refuses_what_is_no_object(void **state)
{
    struct model_config config;
    struct err err;

    (void)state;
    assert_false(model_config_parse(&config, "c", "{\"a\":", NULL, &err));
    assert_non_null(strstr(err.message, "not a JSON object"));
    assert_false(model_config_parse(&config, "c", "[1]", NULL, &err));
    assert_string_equal(err.message, "c: JSON, but not an object");
    assert_false(parse(&config, "", "nonsense", &err));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_sizes),
        cmocka_unit_test(test_layers_with_experts),
        cmocka_unit_test(test_rope_of_the_hub),
        cmocka_unit_test(test_rope_of_transformers_5),
        cmocka_unit_test(test_eos),
        cmocka_unit_test(test_name),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_refuses_what_is_no_object),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
