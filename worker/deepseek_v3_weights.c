/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/deepseek_v3_weights.h"

#include <stdio.h>
#include <stdlib.h>

/* What every lookup needs. */
struct loader {
    const struct model_config *config;
    struct weights *weights;
    uint32_t layer;
    struct err *err;
};

/* A tensor of the loader's layer. */
static bool find(const struct loader *loader, const char *name, uint64_t rows, uint64_t columns,
                 struct weight *weight)
{
    char full[256];

    snprintf(full, sizeof full, "model.layers.%u.%s.weight", loader->layer, name);
    return weights_find(loader->weights, full, rows, columns, weight, loader->err);
}

static bool find_mlp(const struct loader *loader, const char *prefix, uint32_t dim,
                     struct deepseek_v3_mlp *mlp)
{
    const uint32_t hidden = loader->config->hidden;
    char name[64];

    mlp->dim = dim;
    snprintf(name, sizeof name, "%s.gate_proj", prefix);
    if (!find(loader, name, dim, hidden, &mlp->gate))
        return false;
    snprintf(name, sizeof name, "%s.up_proj", prefix);
    if (!find(loader, name, dim, hidden, &mlp->up))
        return false;
    snprintf(name, sizeof name, "%s.down_proj", prefix);
    return find(loader, name, hidden, dim, &mlp->down);
}

/* The rotary rows of one head or of the shared key, from the halves layout (first all cosines'
 * partners, then all sines') to side by side, which is what kernels rotate. Scores do not change:
 * queries and keys are reordered alike. */
static bool interleave(const struct loader *loader, uint32_t heads, uint32_t plain,
                       uint64_t columns, struct weight *weight)
{
    const uint32_t rope = loader->config->rope_dim;
    const uint32_t rows = heads * (plain + rope);
    uint32_t *order = malloc(rows * sizeof *order);
    bool ok;

    if (!order)
        return err_set(loader->err, ERR_FATAL, "no memory to reorder %u rows", rows);
    for (uint32_t h = 0; h < heads; h++) {
        uint32_t *head = order + h * (plain + rope);
        uint32_t first = h * (plain + rope);

        for (uint32_t i = 0; i < plain; i++)
            head[i] = first + i;
        for (uint32_t i = 0; i < rope; i++)
            head[plain + i] = first + plain + i / 2 + i % 2 * (rope / 2);
    }
    ok = weights_reorder_rows(loader->weights, order, rows, columns, weight, loader->err);
    free(order);
    return ok;
}

static bool find_attention(const struct loader *loader, struct deepseek_v3_layer *layer)
{
    const struct model_config *c = loader->config;
    const uint32_t q_rows = c->heads * (c->nope_dim + c->rope_dim);
    const uint32_t q_in = c->q_rank ? c->q_rank : c->hidden;
    struct weight kv_b;
    bool ok = find(loader, "input_layernorm", c->hidden, 0, &layer->attn_norm);

    if (ok && c->q_rank)
        ok = find(loader, "self_attn.q_a_proj", c->q_rank, c->hidden, &layer->q_a) &&
             find(loader, "self_attn.q_a_layernorm", c->q_rank, 0, &layer->q_a_norm);
    ok = ok &&
         find(loader, c->q_rank ? "self_attn.q_b_proj" : "self_attn.q_proj", q_rows, q_in,
              &layer->q_b) &&
         find(loader, "self_attn.kv_a_proj_with_mqa", c->kv_rank + c->rope_dim, c->hidden,
              &layer->kv_a) &&
         find(loader, "self_attn.kv_a_layernorm", c->kv_rank, 0, &layer->kv_a_norm) &&
         find(loader, "self_attn.kv_b_proj", c->heads * (c->nope_dim + c->v_dim), c->kv_rank,
              &kv_b) &&
         find(loader, "self_attn.o_proj", c->hidden, c->heads * c->v_dim, &layer->o) &&
         find(loader, "post_attention_layernorm", c->hidden, 0, &layer->mlp_norm);
    if (ok && !c->rope_interleaved)
        ok = interleave(loader, c->heads, c->nope_dim, q_in, &layer->q_b) &&
             interleave(loader, 1, c->kv_rank, c->hidden, &layer->kv_a);
    if (!ok)
        return false;
    layer->w_head_stride = (size_t)(c->nope_dim + c->v_dim) * c->kv_rank;
    layer->w_uk = kv_b;
    layer->w_uv = (struct weight){.data = (const char *)kv_b.data +
                                          (size_t)c->nope_dim * c->kv_rank * dtype_size(kv_b.dtype),
                                  .dtype = kv_b.dtype};
    return true;
}

/* One of the three matrices of all experts; they must share a type, because one call multiplies
 * them all. */
static bool find_expert_matrices(const struct loader *loader, const char *name, uint32_t rows,
                                 uint32_t columns, const void **matrices, enum dtype *dtype)
{
    char full[64];

    for (uint32_t e = 0; e < loader->config->experts; e++) {
        struct weight weight;

        snprintf(full, sizeof full, "mlp.experts.%u.%s", e, name);
        if (!find(loader, full, rows, columns, &weight))
            return false;
        if (e > 0 && weight.dtype != *dtype)
            return err_set(loader->err, ERR_REJECT,
                           "tensor model.layers.%u.%s.weight has another type than expert 0's",
                           loader->layer, full);
        matrices[e] = weight.data;
        *dtype = weight.dtype;
    }
    return true;
}

static bool find_experts(const struct loader *loader, struct deepseek_v3_layer *layer)
{
    const struct model_config *c = loader->config;
    struct deepseek_v3_experts *experts = &layer->experts;
    char bias[128];

    experts->gate = calloc(c->experts, sizeof *experts->gate);
    experts->up = calloc(c->experts, sizeof *experts->up);
    experts->down = calloc(c->experts, sizeof *experts->down);
    if (!experts->gate || !experts->up || !experts->down)
        return err_set(loader->err, ERR_FATAL, "no memory for %u experts", c->experts);
    snprintf(bias, sizeof bias, "model.layers.%u.mlp.gate.e_score_correction_bias", loader->layer);
    return find(loader, "mlp.gate", c->experts, c->hidden, &layer->gate) &&
           weights_find_floats(loader->weights, bias, c->experts, &layer->gate_bias, loader->err) &&
           find_expert_matrices(loader, "gate_proj", c->expert_dim, c->hidden, experts->gate,
                                &experts->gate_dtype) &&
           find_expert_matrices(loader, "up_proj", c->expert_dim, c->hidden, experts->up,
                                &experts->up_dtype) &&
           find_expert_matrices(loader, "down_proj", c->hidden, c->expert_dim, experts->down,
                                &experts->down_dtype);
}

static bool find_layer(const struct loader *loader, struct deepseek_v3_layer *layer)
{
    const struct model_config *c = loader->config;

    if (!find_attention(loader, layer))
        return false;
    if (!layer->has_experts)
        return find_mlp(loader, "mlp", c->mlp_dim, &layer->shared);
    if (!find_experts(loader, layer))
        return false;
    if (c->shared_experts == 0)
        return true;
    return find_mlp(loader, "mlp.shared_experts", c->shared_experts * c->expert_dim,
                    &layer->shared);
}

bool deepseek_v3_weights_open(struct deepseek_v3_weights *model, const struct model_config *config,
                              struct weights *weights, struct err *err)
{
    struct loader loader = {.config = config, .weights = weights, .err = err};
    uint32_t expert_layers = 0;
    bool ok;

    *model = (struct deepseek_v3_weights){.layer_count = config->layers};
    model->layers = calloc(config->layers, sizeof *model->layers);
    if (!model->layers)
        return err_set(err, ERR_FATAL, "no memory for %u layers", config->layers);
    ok = weights_find(weights, "model.embed_tokens.weight", config->vocab_size, config->hidden,
                      &model->embedding, err);
    for (uint32_t l = 0; ok && l < config->layers; l++) {
        struct deepseek_v3_layer *layer = &model->layers[l];

        loader.layer = l;
        layer->has_experts = model_config_has_experts(config, l);
        layer->expert_layer = expert_layers;
        expert_layers += layer->has_experts;
        ok = find_layer(&loader, layer);
    }
    ok = ok && weights_find(weights, "model.norm.weight", config->hidden, 0, &model->norm, err);
    model->head = model->embedding;
    /* Some files carry a copy of a tied head; the embedding is what counts then. */
    if (ok && !config->embeddings_tied)
        ok = weights_find(weights, "lm_head.weight", config->vocab_size, config->hidden,
                          &model->head, err);
    if (!ok)
        deepseek_v3_weights_close(model);
    return ok;
}

void deepseek_v3_weights_close(struct deepseek_v3_weights *model)
{
    for (uint32_t l = 0; model->layers && l < model->layer_count; l++) {
        free((void *)model->layers[l].experts.gate);
        free((void *)model->layers[l].experts.up);
        free((void *)model->layers[l].experts.down);
    }
    free(model->layers);
    *model = (struct deepseek_v3_weights){0};
}
