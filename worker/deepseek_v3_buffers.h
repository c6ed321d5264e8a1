/* SPDX-License-Identifier: Apache-2.0
 *
 * deepseek_v3_buffers - the activations of a forward pass.
 *
 * All of it is device memory, allocated once for the largest step there can be.
 */
#ifndef WORKER_DEEPSEEK_V3_BUFFERS_H
#define WORKER_DEEPSEEK_V3_BUFFERS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "kernels/device.h"
#include "kernels/numerics.h"
#include "worker/model_config.h"

/* For rows_max tokens. What a micro-batch has in flight are its rows of each. */
struct deepseek_v3_buffers {
    float *x;            /* (rows, hidden) the residual stream */
    float *normed;       /* (rows, hidden) */
    float *q_a;          /* (rows, q_rank) */
    float *q;            /* (rows, heads, nope_dim + rope_dim) */
    float *kv;           /* (rows, kv_rank + rope_dim) latent, key */
    float *q_latent;     /* (rows, heads, kv_rank) */
    float *context;      /* (rows, heads, kv_rank) */
    float *value;        /* (rows, heads, v_dim) */
    float *gate_logits;  /* (rows, experts) */
    float *gate_weights; /* (rows, top_k) */
    uint32_t *experts;   /* (expert layers, rows_max, top_k) */
    float *mlp_gate;     /* (rows, mlp_width) */
    float *mlp_up;       /* the same */
    float *shared;       /* (rows, hidden) */
    float *expert_gate;  /* (rows * top_k, expert_dim) */
    float *expert_up;    /* the same */
    float *expert_out;   /* (rows * top_k, hidden) */
    float *last;         /* (logits_max, hidden) rows that are sampled, normalised */
    float *logits;       /* (logits_max, vocab_size) */
    void *scratch;       /* of one matmul at a time */
    uint32_t mlp_width;  /* of the widest dense or shared MLP */
};

bool deepseek_v3_buffers_open(struct deepseek_v3_buffers *buffers,
                              const struct model_config *config, struct device *device,
                              uint32_t rows_max, uint32_t logits_max, enum numerics numerics,
                              struct err *err);
void deepseek_v3_buffers_close(struct deepseek_v3_buffers *buffers,
                               struct device *device); /* zeroed is allowed */

#endif
