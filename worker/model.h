/* SPDX-License-Identifier: Apache-2.0
 *
 * model - a model directory on a device: weights, KV cache, one forward pass.
 *
 * The caller describes a ragged batch in host memory; the model copies it to
 * the device, runs embedding, layers and output matrix, and waits. Which
 * sequences, which pages and what to sample is the engine's business
 * (worker/engine.h).
 *
 * A batch may be cut into micro-batches at sequence boundaries. They run in
 * pairs whose stages alternate (worker/pipeline.h), one pair after the other.
 * Nothing of the result depends on it.
 *
 * Threads: one thread owns a model.
 */
#ifndef WORKER_MODEL_H
#define WORKER_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "kernels/backend.h"
#include "worker/kv_pages.h"
#include "worker/model_config.h"
#include "worker/pipeline.h"

struct model;

struct model_options {
    const char *dir;
    const char *backend; /* kernels/backend.h has the names */
    enum numerics numerics;
    uint32_t threads;     /* 0: one per core */
    uint32_t rows_max;    /* tokens of one batch */
    uint32_t seqs_max;    /* sequences of one batch, and rows with logits */
    uint32_t context_max; /* tokens of a sequence; 0: what the model allows */
};

/* One step. All arrays are host memory and the caller's. */
struct model_batch {
    const uint32_t *tokens;         /* (n_rows) */
    const uint32_t *positions;      /* (n_rows) */
    const uint32_t *first_row;      /* (n_seqs) ascending, without gaps */
    const uint32_t *seq_rows;       /* (n_seqs) rows of each, at least 1 */
    const uint32_t *first_position; /* (n_seqs) */
    const uint32_t *pages;          /* (n_seqs, pages_stride) */
    const uint32_t *logit_rows;     /* (n_logits) rows whose logits are wanted */
    size_t pages_stride;            /* at least the pages of the longest sequence */
    uint32_t n_rows;                /* at most rows_max */
    uint32_t n_seqs;                /* at most seqs_max */
    uint32_t n_logits;              /* at most seqs_max */
    const uint32_t *micro_first;    /* (n_micro + 1) sequences where micro-batches begin, the end */
    uint32_t n_micro;               /* 0: the batch is one */
    const struct pipeline *pipeline;
};

/* Maps the weights and allocates everything but the KV cache. FATAL names file, tensor and
 * reason. */
bool model_open(struct model **model, const struct model_options *options, struct err *err);
void model_close(struct model *model); /* NULL is allowed */

/* Bytes of one page of the KV cache. */
size_t model_page_size(const struct model *model);

/* Allocates the KV cache, once, before the first forward. */
bool model_cache_open(struct model *model, uint32_t pages, struct err *err);

/* Runs a batch to its end. Tokens must be below vocab_size, positions below context_max. */
bool model_forward(struct model *model, const struct model_batch *batch, struct err *err);

/* Of the last batch: (n_logits, vocab_size), in host memory, until the next one. */
const float *model_logits(const struct model *model);

/* Of the last batch: the experts (n_rows, top_k) of a layer, best first, by number among the
 * layers with experts; until the next batch. */
const uint32_t *model_experts(const struct model *model, uint32_t expert_layer);

const struct model_config *model_config(const struct model *model);
uint32_t model_context_max(const struct model *model);

/* Equal ids compute equal bits: instruction set and mode, as "ref/f32". */
const char *model_numerics_id(const struct model *model);

/* 16 hexadecimal digits of a SHA-256 over config.json and the weights' headers: names the weights
 * without reading them all. */
const char *model_revision(const struct model *model);

#endif
