/* SPDX-License-Identifier: Apache-2.0
 *
 * deepseek_v3_weights - the tensors of a DeepSeek-V3 model, found and checked.
 *
 * kv_b_proj is not multiplied as one matrix: attention works in the latent
 * space, so its rows are used per head, as W_UK on the query's side and W_UV on
 * the value's. Both lie in the file as they are needed, one after the other
 * (nope_dim rows, then v_dim rows, for each head), and are only pointed at.
 */
#ifndef WORKER_DEEPSEEK_V3_WEIGHTS_H
#define WORKER_DEEPSEEK_V3_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "worker/model_config.h"
#include "worker/weights.h"

/* A gated MLP: down(silu(gate(x)) * up(x)). */
struct deepseek_v3_mlp {
    struct weight gate; /* (dim, hidden) */
    struct weight up;   /* (dim, hidden) */
    struct weight down; /* (hidden, dim) */
    uint32_t dim;       /* 0: there is none */
};

/* All experts of a layer; as matmul_grouped takes them. */
struct deepseek_v3_experts {
    const void **gate; /* (experts) pointers to (expert_dim, hidden) */
    const void **up;   /* (experts) */
    const void **down; /* (experts) pointers to (hidden, expert_dim) */
    enum dtype gate_dtype;
    enum dtype up_dtype;
    enum dtype down_dtype;
};

struct deepseek_v3_layer {
    struct weight attn_norm; /* (hidden) */
    struct weight q_a;       /* (q_rank, hidden); none where q_rank is 0 */
    struct weight q_a_norm;  /* (q_rank) */
    struct weight q_b;       /* (heads * (nope_dim + rope_dim), q_rank, or hidden if that is 0) */
    struct weight kv_a;      /* (kv_rank + rope_dim, hidden) */
    struct weight kv_a_norm; /* (kv_rank) */
    struct weight w_uk;      /* (heads) of (nope_dim, kv_rank), w_head_stride apart */
    struct weight w_uv;      /* (heads) of (v_dim, kv_rank), w_head_stride apart */
    size_t w_head_stride;    /* in elements */
    struct weight o;         /* (hidden, heads * v_dim) */
    struct weight mlp_norm;  /* (hidden) */
    struct weight gate;      /* (experts, hidden); none in dense layers */
    const float *gate_bias;  /* (experts) */
    struct deepseek_v3_experts experts;
    struct deepseek_v3_mlp shared; /* shared experts, or the MLP of a dense layer */
    uint32_t expert_layer;         /* number among the layers with experts */
    bool has_experts;
};

struct deepseek_v3_weights {
    struct weight embedding;          /* (vocab_size, hidden) */
    struct deepseek_v3_layer *layers; /* (layers) */
    uint32_t layer_count;
    struct weight norm; /* (hidden) */
    struct weight head; /* (vocab_size, hidden); the embedding where they are tied */
};

/* Finds every tensor that config calls for. weights stays the caller's and outlives it. */
bool deepseek_v3_weights_open(struct deepseek_v3_weights *model, const struct model_config *config,
                              struct weights *weights, struct err *err);
void deepseek_v3_weights_close(struct deepseek_v3_weights *model); /* zeroed is allowed */

#endif
