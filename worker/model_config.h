/* SPDX-License-Identifier: Apache-2.0
 *
 * model_config - config.json of a Hugging Face directory, checked.
 *
 * Reads both dialects: rope_theta and rope_scaling at the top as files on the
 * hub have them, and rope_parameters as transformers 5 writes. What sizes a
 * tensor or picks an expert must be there; an absent q_lora_rank is the same as
 * null. Every number has bounds, so that sizes computed from them later do not
 * overflow; whatever would change the arithmetic and is not implemented is an
 * error that says so, never ignored.
 *
 * Source: transformers, models/deepseek_v3/configuration_deepseek_v3.py and
 * modeling_deepseek_v3.py.
 */
#ifndef WORKER_MODEL_CONFIG_H
#define WORKER_MODEL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "kernels/moe_gate.h"
#include "kernels/rope.h"

enum {
    MODEL_LAYERS_MAX = 1024,
    MODEL_EOS_MAX = 16,
    MODEL_NAME_SIZE_MAX = 128,
};

struct model_config {
    char name[MODEL_NAME_SIZE_MAX]; /* _name_or_path's last part, or the directory's */
    uint32_t vocab_size;
    uint32_t hidden;
    uint32_t layers;
    uint32_t heads;
    uint32_t q_rank;   /* 0: queries are projected in one step */
    uint32_t kv_rank;  /* width of the latent that is cached */
    uint32_t nope_dim; /* of a head's query and key, without position */
    uint32_t rope_dim; /* of a head's query, and of the key all heads share */
    uint32_t v_dim;
    uint32_t mlp_dim;    /* of dense layers */
    uint32_t expert_dim; /* of one expert */
    uint32_t experts;
    uint32_t shared_experts; /* as one block, shared_experts * expert_dim wide; 0: none */
    uint32_t top_k;
    uint32_t groups;
    uint32_t groups_top;
    uint32_t dense_first;   /* layers before the first with experts */
    uint32_t expert_period; /* after them every layer divisible by this has experts */
    uint32_t positions_max;
    float norm_eps;
    float expert_scale;
    bool expert_normalize;
    bool embeddings_tied;
    bool rope_interleaved;
    enum moe_gate_score score;
    struct rope_config rope;
    int32_t eos_ids[MODEL_EOS_MAX]; /* of generation_config.json, else config.json */
    size_t eos_count;
};

/* Reads dir/config.json and, where it exists, dir/generation_config.json. REJECT names the file,
 * the key and its limit. */
bool model_config_read(struct model_config *config, const char *dir, struct err *err);

/* The same from text; generation may be NULL. name stands for the path in errors. */
bool model_config_parse(struct model_config *config, const char *name, const char *text,
                        const char *generation, struct err *err);

/* Does this layer have experts? The others have one dense MLP. */
bool model_config_has_experts(const struct model_config *config, uint32_t layer);

/* Layers that have. */
uint32_t model_config_expert_layers(const struct model_config *config);

#endif
