/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/deepseek_v3.h"

#include "common/check.h"

/* Shorter names for one layer and one micro-batch. */
struct place {
    struct deepseek_v3_forward *f;
    const struct deepseek_v3_layer *layer;
    struct deepseek_v3_micro_batch *mb;
    struct err *err;
    size_t row; /* of the micro-batch's first token */
    uint32_t layer_index;
    uint32_t slot;
};

static bool norm(const struct place *p, float *x, size_t stride, struct weight w, float *out,
                 size_t out_stride, uint32_t dim)
{
    const struct rmsnorm_args args = {.x = x,
                                      .w = w.data,
                                      .out = out,
                                      .x_stride = stride,
                                      .out_stride = out_stride,
                                      .w_dtype = w.dtype,
                                      .n_rows = p->mb->n_rows,
                                      .dim = dim,
                                      .eps = p->f->config->norm_eps};

    return p->f->backend->rmsnorm(p->f->stream, &args, p->err);
}

/* out (n_rows, n_out) = x (n_rows, n_in) * w, all rows side by side. */
static bool project(const struct place *p, const float *x, uint32_t n_in, struct weight w,
                    float *out, uint32_t n_out, bool accumulate)
{
    const struct matmul_args args = {.x = x,
                                     .w = w.data,
                                     .out = out,
                                     .scratch = p->f->buffers.scratch,
                                     .x_stride = n_in,
                                     .w_stride = n_in,
                                     .out_stride = n_out,
                                     .w_dtype = w.dtype,
                                     .layout = MATMUL_OUT_IN,
                                     .numerics = p->f->numerics,
                                     .n_rows = p->mb->n_rows,
                                     .n_in = n_in,
                                     .n_out = n_out,
                                     .n_batches = 1,
                                     .accumulate = accumulate};

    return p->f->backend->matmul(p->f->stream, &args, p->err);
}

/* The chosen experts' weights times their rows. */
static bool project_experts(const struct place *p, const float *x, uint32_t n_in,
                            const void *const *w, enum dtype dtype, float *out, uint32_t n_out)
{
    const struct matmul_grouped_args args = {.x = x,
                                             .w = w,
                                             .offsets = p->mb->rows.offsets,
                                             .out = out,
                                             .scratch = p->f->buffers.scratch,
                                             .x_stride = n_in,
                                             .out_stride = n_out,
                                             .w_dtype = dtype,
                                             .numerics = p->f->numerics,
                                             .n_rows_max = p->mb->rows.n_rows_max,
                                             .n_in = n_in,
                                             .n_out = n_out,
                                             .n_groups = p->mb->rows.n_experts_local};

    return p->f->backend->matmul_grouped(p->f->stream, &args, p->err);
}

static bool gated(const struct place *p, float *gate, const float *up, uint32_t n_rows,
                  const uint32_t *n_rows_used, uint32_t dim)
{
    const struct swiglu_args args = {.gate = gate,
                                     .up = up,
                                     .out = gate,
                                     .n_rows_used = n_rows_used,
                                     .gate_stride = dim,
                                     .up_stride = dim,
                                     .out_stride = dim,
                                     .n_rows = n_rows,
                                     .dim = dim};

    return p->f->backend->swiglu(p->f->stream, &args, p->err);
}

static bool rotate(const struct place *p, float *x, size_t row_stride, uint32_t heads,
                   size_t head_stride)
{
    const struct rope_args args = {.x = x,
                                   .positions = p->mb->positions,
                                   .table = p->f->rope_table,
                                   .row_stride = row_stride,
                                   .head_stride = head_stride,
                                   .n_rows = p->mb->n_rows,
                                   .n_heads = heads,
                                   .dim = p->f->config->rope_dim,
                                   .n_positions = p->f->rope_positions};

    return p->f->backend->rope(p->f->stream, &args, p->err);
}

static void *layer_cache(const struct place *p)
{
    return p->f->cache + p->layer_index * p->f->cache_layer_size;
}

static bool write_cache(const struct place *p, const float *kv)
{
    const struct model_config *c = p->f->config;
    const struct kv_write_args args = {.batch = p->mb->ragged,
                                       .latent = kv,
                                       .key = kv + c->kv_rank,
                                       .cache = layer_cache(p),
                                       .latent_stride = c->kv_rank + c->rope_dim,
                                       .key_stride = c->kv_rank + c->rope_dim,
                                       .page_stride = p->f->cache_page_stride,
                                       .numerics = p->f->numerics,
                                       .kv_rank = c->kv_rank,
                                       .rope_dim = c->rope_dim};

    return p->f->backend->kv_write(p->f->stream, &args, p->err);
}

/* Per head: queries into the latent space, q_nope (nope_dim) * W_UK. */
static bool absorb(const struct place *p, const float *q, float *q_latent)
{
    const struct model_config *c = p->f->config;
    const struct matmul_args args = {.x = q,
                                     .w = p->layer->w_uk.data,
                                     .out = q_latent,
                                     .scratch = p->f->buffers.scratch,
                                     .x_stride = (size_t)c->heads * (c->nope_dim + c->rope_dim),
                                     .w_stride = c->kv_rank,
                                     .out_stride = (size_t)c->heads * c->kv_rank,
                                     .x_batch_stride = c->nope_dim + c->rope_dim,
                                     .w_batch_stride = p->layer->w_head_stride,
                                     .out_batch_stride = c->kv_rank,
                                     .w_dtype = p->layer->w_uk.dtype,
                                     .layout = MATMUL_IN_OUT,
                                     .numerics = p->f->numerics,
                                     .n_rows = p->mb->n_rows,
                                     .n_in = c->nope_dim,
                                     .n_out = c->kv_rank,
                                     .n_batches = c->heads};

    return p->f->backend->matmul(p->f->stream, &args, p->err);
}

/* Per head: weighted latents to values, context (kv_rank) * W_UV. */
static bool expand(const struct place *p, const float *context, float *value)
{
    const struct model_config *c = p->f->config;
    const struct matmul_args args = {.x = context,
                                     .w = p->layer->w_uv.data,
                                     .out = value,
                                     .scratch = p->f->buffers.scratch,
                                     .x_stride = (size_t)c->heads * c->kv_rank,
                                     .w_stride = c->kv_rank,
                                     .out_stride = (size_t)c->heads * c->v_dim,
                                     .x_batch_stride = c->kv_rank,
                                     .w_batch_stride = p->layer->w_head_stride,
                                     .out_batch_stride = c->v_dim,
                                     .w_dtype = p->layer->w_uv.dtype,
                                     .layout = MATMUL_OUT_IN,
                                     .numerics = p->f->numerics,
                                     .n_rows = p->mb->n_rows,
                                     .n_in = c->kv_rank,
                                     .n_out = c->v_dim,
                                     .n_batches = c->heads};

    return p->f->backend->matmul(p->f->stream, &args, p->err);
}

static bool attend(const struct place *p, const float *q_latent, const float *q, float *context)
{
    const struct model_config *c = p->f->config;
    const size_t head = c->nope_dim + c->rope_dim;
    const struct mla_attention_args args = {.batch = p->mb->ragged,
                                            .q_latent = q_latent,
                                            .q_rope = q + c->nope_dim,
                                            .cache = layer_cache(p),
                                            .out = context,
                                            .q_latent_stride = (size_t)c->heads * c->kv_rank,
                                            .q_rope_stride = c->heads * head,
                                            .q_rope_head_stride = head,
                                            .out_stride = (size_t)c->heads * c->kv_rank,
                                            .page_stride = p->f->cache_page_stride,
                                            .numerics = p->f->numerics,
                                            .n_tokens = p->mb->n_rows,
                                            .n_heads = c->heads,
                                            .kv_rank = c->kv_rank,
                                            .rope_dim = c->rope_dim,
                                            .scale = p->f->softmax_scale};

    return p->f->backend->mla_attention(p->f->stream, &args, p->err);
}

static uint32_t *chosen(const struct place *p)
{
    const struct deepseek_v3_forward *f = p->f;

    return f->buffers.experts +
           ((size_t)p->layer->expert_layer * f->rows_max + p->row) * f->config->top_k;
}

static bool choose(const struct place *p, const float *logits, float *weights)
{
    const struct model_config *c = p->f->config;
    const struct moe_gate_args args = {.logits = logits,
                                       .bias = p->layer->gate_bias,
                                       .experts = chosen(p),
                                       .weights = weights,
                                       .score = c->score,
                                       .n_tokens = p->mb->n_rows,
                                       .n_experts = c->experts,
                                       .n_groups = c->groups,
                                       .groups_top = c->groups_top,
                                       .top_k = c->top_k,
                                       .scale = c->expert_scale,
                                       .normalize = c->expert_normalize};

    return p->f->backend->moe_gate(p->f->stream, &args, p->err);
}

/* The gate's logits are float in both modes, as in transformers: rounding them would choose other
 * experts. */
static bool gate(const struct place *p, const float *normed)
{
    const struct model_config *c = p->f->config;
    float *logits = p->f->buffers.gate_logits + p->row * c->experts;
    float *weights = p->f->buffers.gate_weights + p->row * c->top_k;
    const struct matmul_args args = {.x = normed,
                                     .w = p->layer->gate.data,
                                     .out = logits,
                                     .x_stride = c->hidden,
                                     .w_stride = c->hidden,
                                     .out_stride = c->experts,
                                     .w_dtype = p->layer->gate.dtype,
                                     .layout = MATMUL_OUT_IN,
                                     .numerics = NUMERICS_F32,
                                     .n_rows = p->mb->n_rows,
                                     .n_in = c->hidden,
                                     .n_out = c->experts,
                                     .n_batches = 1};

    return p->f->backend->matmul(p->f->stream, &args, p->err) && choose(p, logits, weights);
}

static bool attn0(const struct place *p)
{
    const struct model_config *c = p->f->config;
    const struct deepseek_v3_buffers *b = &p->f->buffers;
    const struct deepseek_v3_layer *w = p->layer;
    const uint32_t head = c->nope_dim + c->rope_dim;
    const uint32_t entry = c->kv_rank + c->rope_dim;
    float *x = b->x + p->row * c->hidden;
    float *h = b->normed + p->row * c->hidden;
    float *q_a = b->q_a + p->row * c->q_rank;
    float *q = b->q + p->row * c->heads * head;
    float *kv = b->kv + p->row * entry;
    float *q_latent = b->q_latent + p->row * c->heads * c->kv_rank;
    bool ok = norm(p, x, c->hidden, w->attn_norm, h, c->hidden, c->hidden);

    if (c->q_rank)
        ok = ok && project(p, h, c->hidden, w->q_a, q_a, c->q_rank, false) &&
             norm(p, q_a, c->q_rank, w->q_a_norm, q_a, c->q_rank, c->q_rank) &&
             project(p, q_a, c->q_rank, w->q_b, q, c->heads * head, false);
    else
        ok = ok && project(p, h, c->hidden, w->q_b, q, c->heads * head, false);
    return ok && rotate(p, q + c->nope_dim, (size_t)c->heads * head, c->heads, head) &&
           project(p, h, c->hidden, w->kv_a, kv, entry, false) &&
           norm(p, kv, entry, w->kv_a_norm, kv, entry, c->kv_rank) &&
           rotate(p, kv + c->kv_rank, entry, 1, c->rope_dim) && write_cache(p, kv) &&
           absorb(p, q, q_latent);
}

static bool attn1(const struct place *p)
{
    const struct model_config *c = p->f->config;
    const struct deepseek_v3_buffers *b = &p->f->buffers;
    const struct deepseek_v3_layer *w = p->layer;
    float *x = b->x + p->row * c->hidden;
    float *h = b->normed + p->row * c->hidden;
    float *q = b->q + p->row * c->heads * (c->nope_dim + c->rope_dim);
    float *q_latent = b->q_latent + p->row * c->heads * c->kv_rank;
    float *context = b->context + p->row * c->heads * c->kv_rank;
    float *value = b->value + p->row * c->heads * c->v_dim;

    return attend(p, q_latent, q, context) && expand(p, context, value) &&
           project(p, value, c->heads * c->v_dim, w->o, x, c->hidden, true) &&
           norm(p, x, c->hidden, w->mlp_norm, h, c->hidden, c->hidden) &&
           (!w->has_experts || gate(p, h));
}

static bool dispatch(const struct place *p)
{
    const struct model_config *c = p->f->config;
    const struct transport_batch batch = {
        .x = p->f->buffers.normed + p->row * c->hidden,
        .experts = chosen(p),
        .weights = p->f->buffers.gate_weights + p->row * c->top_k,
        .x_stride = c->hidden,
        .n_tokens = p->mb->n_rows,
    };

    return transport_dispatch_send(p->f->transport, p->f->stream, p->slot, &batch, p->err);
}

static bool mlp(const struct place *p)
{
    const struct model_config *c = p->f->config;
    const struct deepseek_v3_buffers *b = &p->f->buffers;
    const struct deepseek_v3_experts *w = &p->layer->experts;
    const struct transport_rows *rows = &p->mb->rows;
    const uint32_t *n_used = rows->offsets + rows->n_experts_local;
    const size_t first = p->row * c->top_k;
    float *g = b->expert_gate + first * c->expert_dim;
    float *up = b->expert_up + first * c->expert_dim;
    float *out = b->expert_out + first * c->hidden;

    return project_experts(p, rows->x, c->hidden, w->gate, w->gate_dtype, g, c->expert_dim) &&
           project_experts(p, rows->x, c->hidden, w->up, w->up_dtype, up, c->expert_dim) &&
           gated(p, g, up, rows->n_rows_max, n_used, c->expert_dim) &&
           project_experts(p, g, c->expert_dim, w->down, w->down_dtype, out, c->hidden);
}

/* Shared experts into a buffer of their own, which combine adds last; a dense layer's MLP
 * straight to the residual stream. */
static bool shared(const struct place *p)
{
    const struct model_config *c = p->f->config;
    const struct deepseek_v3_buffers *b = &p->f->buffers;
    const struct deepseek_v3_mlp *w = &p->layer->shared;
    const bool dense = !p->layer->has_experts;
    float *h = b->normed + p->row * c->hidden;
    float *g = b->mlp_gate + p->row * b->mlp_width;
    float *up = b->mlp_up + p->row * b->mlp_width;
    float *out = (dense ? b->x : b->shared) + p->row * c->hidden;

    if (w->dim == 0)
        return true;
    return project(p, h, c->hidden, w->gate, g, w->dim, false) &&
           project(p, h, c->hidden, w->up, up, w->dim, false) &&
           gated(p, g, up, p->mb->n_rows, NULL, w->dim) &&
           project(p, g, w->dim, w->down, out, c->hidden, dense);
}

static bool combine(const struct place *p)
{
    const struct model_config *c = p->f->config;
    const struct deepseek_v3_buffers *b = &p->f->buffers;
    const struct transport_result result = {
        .shared = p->layer->shared.dim ? b->shared + p->row * c->hidden : NULL,
        .out = b->x + p->row * c->hidden,
        .shared_stride = c->hidden,
        .out_stride = c->hidden,
        .accumulate = true,
    };

    return transport_combine_recv(p->f->transport, p->f->stream, p->slot, &result, p->err);
}

bool deepseek_v3_stage(void *context, enum stage stage, uint32_t layer, uint32_t micro_batch,
                       struct err *err)
{
    struct deepseek_v3_forward *f = context;
    struct deepseek_v3_micro_batch *mb = &f->micro_batches[micro_batch];
    const struct place p = {.f = f,
                            .layer = &f->weights->layers[layer],
                            .mb = mb,
                            .err = err,
                            .row = mb->first_row,
                            .layer_index = layer,
                            .slot = micro_batch};
    const float *expert_out = f->buffers.expert_out + p.row * f->config->top_k * f->config->hidden;

    const bool routed = p.layer->has_experts;

    CHECK(stage < STAGE_COUNT);
    switch (stage) {
    case STAGE_ATTN0:
        return attn0(&p);
    case STAGE_ATTN1:
        return attn1(&p);
    case STAGE_DISPATCH_SEND:
        return !routed || dispatch(&p);
    case STAGE_DISPATCH_RECV:
        return !routed || transport_dispatch_recv(f->transport, f->stream, p.slot, &mb->rows, err);
    case STAGE_SHARED:
        return shared(&p);
    case STAGE_MLP:
        return !routed || mlp(&p);
    case STAGE_COMBINE_SEND:
        return !routed || transport_combine_send(f->transport, f->stream, p.slot, expert_out, err);
    case STAGE_COMBINE_RECV:
        return !routed || combine(&p);
    case STAGE_COUNT:
        break;
    }
    return false;
}

bool deepseek_v3_embed(struct deepseek_v3_forward *forward, const uint32_t *tokens, uint32_t n_rows,
                       struct err *err)
{
    const struct model_config *c = forward->config;
    const struct embedding_args args = {.tokens = tokens,
                                        .table = forward->weights->embedding.data,
                                        .out = forward->buffers.x,
                                        .table_dtype = forward->weights->embedding.dtype,
                                        .n_rows = n_rows,
                                        .n_tokens_known = c->vocab_size,
                                        .dim = c->hidden};

    return forward->backend->embedding(forward->stream, &args, err);
}

bool deepseek_v3_logits(struct deepseek_v3_forward *forward, const uint32_t *rows, uint32_t n_rows,
                        struct err *err)
{
    const struct model_config *c = forward->config;
    float *last = forward->buffers.last;
    struct deepseek_v3_micro_batch all = {.n_rows = n_rows};
    const struct place p = {.f = forward, .mb = &all, .err = err};

    for (uint32_t i = 0; i < n_rows; i++) {
        const float *row = forward->buffers.x + (size_t)rows[i] * c->hidden;

        if (!device_copy(forward->stream, last + (size_t)i * c->hidden, row,
                         c->hidden * sizeof *row, err))
            return false;
    }
    return norm(&p, last, c->hidden, forward->weights->norm, last, c->hidden, c->hidden) &&
           project(&p, last, c->hidden, forward->weights->head, forward->buffers.logits,
                   c->vocab_size, false);
}
