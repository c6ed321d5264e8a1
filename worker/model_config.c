/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/model_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mla_attention.h"
#include "worker/json_keys.h"
#include "worker/text_file.h"

enum {
    /* Far above every published model, and small enough that a product of any two of them and
     * an element size fits 64 bits with room to spare. */
    WIDTH_MAX = 1 << 20,
    VOCAB_MAX = 1 << 24,
    POSITIONS_MAX = 1 << 24,
};

static bool read_sizes(struct model_config *config, struct json_keys *keys)
{
    config->vocab_size = json_keys_count_needed(keys, "vocab_size", 1, VOCAB_MAX);
    config->hidden = json_keys_count_needed(keys, "hidden_size", 1, WIDTH_MAX);
    config->layers = json_keys_count_needed(keys, "num_hidden_layers", 1, MODEL_LAYERS_MAX);
    config->heads = json_keys_count_needed(keys, "num_attention_heads", 1, 4096);
    config->q_rank = json_keys_count(keys, "q_lora_rank", 0, 1, WIDTH_MAX);
    config->kv_rank = json_keys_count_needed(keys, "kv_lora_rank", 1, MLA_ENTRY_MAX);
    config->nope_dim = json_keys_count_needed(keys, "qk_nope_head_dim", 1, 4096);
    config->rope_dim = json_keys_count_needed(keys, "qk_rope_head_dim", 2, 1024);
    config->v_dim = json_keys_count_needed(keys, "v_head_dim", 1, 4096);
    config->mlp_dim = json_keys_count_needed(keys, "intermediate_size", 1, WIDTH_MAX);
    config->positions_max =
        json_keys_count_needed(keys, "max_position_embeddings", 1, POSITIONS_MAX);
    config->norm_eps = (float)json_keys_number(keys, "rms_norm_eps", 1e-6, 0, 1);
    config->embeddings_tied = json_keys_flag(keys, "tie_word_embeddings", false);
    return !keys->failed;
}

static bool read_experts(struct model_config *config, struct json_keys *keys)
{
    config->dense_first =
        json_keys_count_needed(keys, "first_k_dense_replace", 0, MODEL_LAYERS_MAX);
    config->expert_period = json_keys_count(keys, "moe_layer_freq", 1, 1, MODEL_LAYERS_MAX);
    config->experts = json_keys_count(keys, "n_routed_experts", 0, 1, MOE_EXPERTS_MAX);
    if (keys->failed || config->experts == 0)
        return !keys->failed;
    config->expert_dim = json_keys_count_needed(keys, "moe_intermediate_size", 1, WIDTH_MAX);
    config->shared_experts = json_keys_count_needed(keys, "n_shared_experts", 0, 64);
    config->top_k = json_keys_count_needed(keys, "num_experts_per_tok", 1, config->experts);
    config->groups = json_keys_count_needed(keys, "n_group", 1, config->experts);
    config->groups_top = json_keys_count_needed(keys, "topk_group", 1, config->groups);
    config->expert_scale = (float)json_keys_number(keys, "routed_scaling_factor", 1, 1e-6, 1e6);
    config->expert_normalize = json_keys_flag(keys, "norm_topk_prob", true);
    return !keys->failed;
}

/* transformers 5 keeps theta and the scaling in rope_parameters, the hub's files beside and in
 * rope_scaling. */
static bool read_rope(struct model_config *config, struct json_keys *keys)
{
    const json_t *parameters = json_object_get(keys->object, "rope_parameters");
    const json_t *scaling = json_object_get(keys->object, "rope_scaling");
    struct json_keys rope = *keys;
    const char *type;

    rope.object = json_is_object(parameters) ? parameters : scaling;
    config->rope = (struct rope_config){.dim = config->rope_dim};
    config->rope.theta = json_keys_number(keys, "rope_theta", 10000, 1.0001, 1e12);
    if (json_is_object(parameters))
        config->rope.theta =
            json_keys_number(&rope, "rope_theta", config->rope.theta, 1.0001, 1e12);
    type = json_keys_string(&rope, "rope_type");
    if (!type)
        type = json_keys_string(&rope, "type");
    if (type && strcmp(type, "default") != 0 && strcmp(type, "yarn") != 0)
        return err_set(keys->err, ERR_REJECT,
                       "%s: rope scaling %.40s is not supported; default and yarn are", keys->path,
                       type);

    config->rope.yarn = type && strcmp(type, "yarn") == 0;
    if (config->rope.yarn) {
        double positions = config->positions_max;

        config->rope.factor = json_keys_number(&rope, "factor", 0, 1, 1e6);
        config->rope.original_max_position_embeddings = json_keys_number(
            &rope, "original_max_position_embeddings", positions, 1, POSITIONS_MAX);
        config->rope.beta_fast = json_keys_number(&rope, "beta_fast", 32, 1e-3, 1e6);
        config->rope.beta_slow = json_keys_number(&rope, "beta_slow", 1, 1e-3, 1e6);
        config->rope.mscale = json_keys_number(&rope, "mscale", 0, 0, 1e3);
        config->rope.mscale_all_dim = json_keys_number(&rope, "mscale_all_dim", 0, 0, 1e3);
        config->rope.attention_factor = json_keys_number(&rope, "attention_factor", 0, 0, 1e3);
        if (!rope.failed && config->rope.factor == 0)
            return err_set(keys->err, ERR_REJECT, "%s: rope scaling yarn has no factor",
                           keys->path);
        if (!rope.failed && !json_keys_flag(&rope, "truncate", true))
            return err_set(keys->err, ERR_REJECT, "%s: yarn with truncate false is not supported",
                           keys->path);
    }
    config->rope_interleaved = json_keys_flag(keys, "rope_interleave", true);
    return !keys->failed && !rope.failed;
}

/* Whatever would change the arithmetic and is not implemented. */
static bool check_supported(struct model_config *config, struct json_keys *keys)
{
    const char *type = json_keys_string(keys, "model_type");
    const char *act = json_keys_string(keys, "hidden_act");
    const char *scoring = json_keys_string(keys, "scoring_func");
    const char *method = json_keys_string(keys, "topk_method");
    bool bias = json_keys_flag(keys, "attention_bias", false);
    const json_t *quantization = json_object_get(keys->object, "quantization_config");

    if (keys->failed)
        return false;
    if (!type || strcmp(type, "deepseek_v3") != 0)
        return err_set(keys->err, ERR_REJECT,
                       "%s: model_type %.40s is not supported; deepseek_v3 is", keys->path,
                       type ? type : "(none)");
    if (act && strcmp(act, "silu") != 0)
        return err_set(keys->err, ERR_REJECT, "%s: hidden_act %.40s is not supported; silu is",
                       keys->path, act);
    if (scoring && strcmp(scoring, "sigmoid") != 0)
        return err_set(keys->err, ERR_REJECT, "%s: scoring_func %.40s is not supported; sigmoid is",
                       keys->path, scoring);
    if (method && strcmp(method, "noaux_tc") != 0)
        return err_set(keys->err, ERR_REJECT, "%s: topk_method %.40s is not supported; noaux_tc is",
                       keys->path, method);
    if (bias)
        return err_set(keys->err, ERR_REJECT, "%s: attention_bias true is not supported",
                       keys->path);
    if (json_is_object(quantization))
        return err_set(keys->err, ERR_REJECT,
                       "%s: quantization_config is not supported; give bf16 or f32 weights",
                       keys->path);
    config->score = MOE_GATE_SIGMOID;
    return true;
}

/* Limits that tie two keys together. */
static bool check_together(const struct model_config *config, struct json_keys *keys)
{
    if (config->rope_dim % 2 != 0)
        return err_set(keys->err, ERR_REJECT, "%s: qk_rope_head_dim is %u, it must be even",
                       keys->path, config->rope_dim);
    if (config->kv_rank + config->rope_dim > MLA_ENTRY_MAX)
        return err_set(keys->err, ERR_REJECT,
                       "%s: kv_lora_rank + qk_rope_head_dim is %u, allowed are %d", keys->path,
                       config->kv_rank + config->rope_dim, MLA_ENTRY_MAX);
    if (config->experts == 0)
        return true;
    if (config->experts % config->groups != 0)
        return err_set(keys->err, ERR_REJECT,
                       "%s: n_routed_experts %u is not divisible by n_group %u", keys->path,
                       config->experts, config->groups);
    if (config->experts / config->groups * config->groups_top < config->top_k)
        return err_set(keys->err, ERR_REJECT,
                       "%s: topk_group %u of %u-expert groups hold less than "
                       "num_experts_per_tok %u",
                       keys->path, config->groups_top, config->experts / config->groups,
                       config->top_k);
    if (config->groups > 1 && config->experts / config->groups < 2)
        return err_set(keys->err, ERR_REJECT, "%s: n_group %u leaves groups of one expert",
                       keys->path, config->groups);
    return true;
}

/* eos_token_id: a number, a list of them, or nothing. */
static bool read_eos(struct model_config *config, const char *path, const json_t *object,
                     struct err *err)
{
    const json_t *value = json_object_get(object, "eos_token_id");
    size_t count = json_is_array(value) ? json_array_size(value) : 1;

    if (!value || json_is_null(value))
        return true;
    if (count > MODEL_EOS_MAX)
        return err_set(err, ERR_REJECT, "%s: eos_token_id has %zu entries, allowed are %d", path,
                       count, MODEL_EOS_MAX);
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_is_array(value) ? json_array_get(value, i) : value;

        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= (json_int_t)config->vocab_size)
            return err_set(err, ERR_REJECT, "%s: eos_token_id is not a token below %u", path,
                           config->vocab_size);
        config->eos_ids[i] = (int32_t)json_integer_value(id);
    }
    config->eos_count = count;
    return true;
}

static void read_name(struct model_config *config, const json_t *object)
{
    const char *name = json_string_value(json_object_get(object, "_name_or_path"));
    const char *slash = name ? strrchr(name, '/') : NULL;

    if (name && *name)
        snprintf(config->name, sizeof config->name, "%s", slash && slash[1] ? slash + 1 : name);
}

bool model_config_parse(struct model_config *config, const char *name, const char *text,
                        const char *generation, struct err *err)
{
    json_error_t error;
    json_t *object = json_loads(text, 0, &error);
    json_t *more = generation ? json_loads(generation, 0, &error) : NULL;
    struct json_keys keys = {.path = name, .object = object, .err = err};
    bool ok = false;

    memset(config, 0, sizeof *config);
    if ((object && !json_is_object(object)) || (more && !json_is_object(more))) {
        err_set(err, ERR_REJECT, "%s: JSON, but not an object", name); /* no line is to blame */
        goto out;
    }
    if (!object || (generation && !more)) {
        err_set(err, ERR_REJECT, "%s: not a JSON object: line %d: %.120s", name, error.line,
                error.text);
        goto out;
    }
    read_name(config, object);
    ok = check_supported(config, &keys) && read_sizes(config, &keys) &&
         read_experts(config, &keys) && read_rope(config, &keys) && check_together(config, &keys) &&
         read_eos(config, name, object, err) && read_eos(config, name, more, err);
out:
    json_decref(more);
    json_decref(object);
    return ok;
}

bool model_config_read(struct model_config *config, const char *dir, struct err *err)
{
    char *text = NULL;
    char *generation = NULL;
    char path[4096];
    bool ok = false;

    snprintf(path, sizeof path, "%s/config.json", dir);
    if (!text_file_read(dir, "config.json", &text, err) ||
        !text_file_read(dir, "generation_config.json", &generation, err))
        goto out;
    if (!text) {
        err_set(err, ERR_REJECT, "%s: no such file", path);
        goto out;
    }
    ok = model_config_parse(config, path, text, generation, err);
    if (ok && !config->name[0]) {
        char *resolved = realpath(dir, NULL);
        const char *slash = resolved ? strrchr(resolved, '/') : NULL;

        snprintf(config->name, sizeof config->name, "%s", slash ? slash + 1 : dir);
        free(resolved);
    }
out:
    free(generation);
    free(text);
    return ok;
}

bool model_config_has_experts(const struct model_config *config, uint32_t layer)
{
    return config->experts > 0 && layer >= config->dense_first &&
           layer % config->expert_period == 0;
}

uint32_t model_config_expert_layers(const struct model_config *config)
{
    uint32_t count = 0;

    for (uint32_t layer = 0; layer < config->layers; layer++)
        count += model_config_has_experts(config, layer);
    return count;
}
