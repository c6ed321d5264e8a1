/* SPDX-License-Identifier: Apache-2.0
 *
 * deepseek_v3 - the forward pass of DeepSeek-V3, stage by stage.
 *
 * Attention is multi-head latent attention in its absorbed form: queries are
 * taken into the latent space (q_nope * W_UK), meet the cached latents there,
 * and the weighted latents become values (W_UV). Prefill and decode use the
 * same arithmetic, so that a recomputed sequence has the same bits as one that
 * was never interrupted. Feed-forward layers are dense at first; then each has
 * routed experts, chosen by a sigmoid gate limited to groups, and shared ones.
 *
 * A stage enqueues the work of one layer for one micro-batch
 * (worker/pipeline.h says in which order they run). Stages allocate nothing.
 *
 * Source: DeepSeek-V2 report (MLA), section 2.1; DeepSeek-V3 report, section
 * 2.1; transformers, models/deepseek_v3/modeling_deepseek_v3.py.
 */
#ifndef WORKER_DEEPSEEK_V3_H
#define WORKER_DEEPSEEK_V3_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "kernels/backend.h"
#include "kernels/transport.h"
#include "worker/deepseek_v3_buffers.h"
#include "worker/deepseek_v3_weights.h"
#include "worker/model_config.h"
#include "worker/pipeline.h"

struct deepseek_v3_micro_batch {
    struct ragged ragged;       /* first_row counts from the micro-batch's first row */
    const uint32_t *positions;  /* (n_rows) */
    struct transport_rows rows; /* between dispatch and combine */
    uint32_t first_row;         /* in the buffers */
    uint32_t n_rows;            /* 0 is allowed */
};

/* Everything a stage needs. The model owns it all (worker/model.h). */
struct deepseek_v3_forward {
    const struct backend *backend;
    struct stream *stream;
    struct transport *transport;
    const struct model_config *config;
    const struct deepseek_v3_weights *weights;
    struct deepseek_v3_buffers buffers;
    const float *rope_table;  /* (rope_positions, rope_dim) */
    char *cache;              /* (pages, layers, page_size, kv_rank + rope_dim) */
    size_t cache_page_stride; /* in elements of the cache */
    size_t cache_layer_size;  /* bytes of one layer in a page */
    enum numerics numerics;
    uint32_t rope_positions;
    uint32_t rows_max;
    float softmax_scale;
    struct deepseek_v3_micro_batch micro_batches[PIPELINE_MICRO_BATCHES_MAX];
};

/* tokens (n_rows) to the residual stream of all micro-batches. */
bool deepseek_v3_embed(struct deepseek_v3_forward *forward, const uint32_t *tokens, uint32_t n_rows,
                       struct err *err);

/* One stage of one layer; context is a struct deepseek_v3_forward. For pipeline_run. */
bool deepseek_v3_stage(void *context, enum stage stage, uint32_t layer, uint32_t micro_batch,
                       struct err *err);

/* Logits of the rows (n_rows) in host memory. */
bool deepseek_v3_logits(struct deepseek_v3_forward *forward, const uint32_t *rows, uint32_t n_rows,
                        struct err *err);

#endif
