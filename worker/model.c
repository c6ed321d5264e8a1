/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "common/ids.h"
#include "kernels/device.h"
#include "kernels/rope.h"
#include "kernels/transport.h"
#include "worker/deepseek_v3.h"
#include "worker/text_file.h"
#include "worker/weights.h"

enum { REVISION_DIGITS = 16 };

/* The batch's arrays on the device. */
struct inputs {
    uint32_t *tokens;         /* (rows_max) */
    uint32_t *positions;      /* (rows_max) */
    uint32_t *first_row;      /* (seqs_max) counted from the micro-batch's first row */
    uint32_t *seq_rows;       /* (seqs_max) */
    uint32_t *first_position; /* (seqs_max) */
    uint32_t *pages;          /* (seqs_max, pages_max) */
};

struct model {
    struct model_options options;
    struct model_config config;
    struct weights *weights;
    struct deepseek_v3_weights layers;
    struct device *device;
    struct stream *stream;
    struct transport *transport;
    struct deepseek_v3_forward forward;
    struct inputs inputs;
    float *rope_table;
    uint32_t *first_row; /* (seqs_max) host staging of inputs.first_row */
    uint32_t context_max;
    char revision[REVISION_DIGITS + 1];
};

static bool alloc_words(struct model *model, size_t count, uint32_t **words, struct err *err)
{
    void *memory;

    if (!device_alloc(model->device, count * sizeof **words, &memory, err))
        return false;
    *words = memory;
    return true;
}

static bool inputs_open(struct model *model, struct err *err)
{
    const size_t rows = model->options.rows_max;
    const size_t seqs = model->options.seqs_max;
    struct inputs *in = &model->inputs;

    model->first_row = calloc(seqs, sizeof *model->first_row);
    if (!model->first_row)
        return err_set(err, ERR_FATAL, "no memory for batches of %zu sequences", seqs);
    return alloc_words(model, rows, &in->tokens, err) &&
           alloc_words(model, rows, &in->positions, err) &&
           alloc_words(model, seqs, &in->first_row, err) &&
           alloc_words(model, seqs, &in->seq_rows, err) &&
           alloc_words(model, seqs, &in->first_position, err) &&
           alloc_words(model, seqs * kv_pages_needed(model->context_max), &in->pages, err);
}

static bool rope_open(struct model *model, struct err *err)
{
    const struct model_config *c = &model->config;
    const size_t size = (size_t)model->context_max * c->rope_dim * sizeof(float);
    void *memory;
    float *table;
    bool ok;

    if (!device_alloc(model->device, size, &memory, err))
        return false;
    model->rope_table = memory;
    table = malloc(size);
    if (!table)
        return err_set(err, ERR_FATAL, "no memory for rotary tables of %u positions",
                       model->context_max);
    rope_table_build(&c->rope, model->context_max, table);
    ok = device_copy(model->stream, model->rope_table, table, size, err) &&
         stream_sync(model->stream, err);
    free(table);
    return ok;
}

static void forward_init(struct model *model, const struct backend *backend)
{
    const struct model_config *c = &model->config;
    const size_t entry = c->kv_rank + c->rope_dim;
    const enum numerics numerics = model->options.numerics;
    const double head = c->nope_dim + c->rope_dim;

    model->forward = (struct deepseek_v3_forward){
        .backend = backend,
        .stream = model->stream,
        .transport = model->transport,
        .config = c,
        .weights = &model->layers,
        .buffers = model->forward.buffers,
        .rope_table = model->rope_table,
        .cache_page_stride = c->layers * KV_PAGE_TOKENS * entry,
        .cache_layer_size = KV_PAGE_TOKENS * entry * dtype_size(numerics_kv_dtype(numerics)),
        .numerics = numerics,
        .rope_positions = model->context_max,
        .rows_max = model->options.rows_max,
        .softmax_scale = (float)(rope_softmax_factor(&c->rope) / sqrt(head)),
    };
}

static bool open_device(struct model *model, const struct backend *backend, struct err *err)
{
    const struct model_config *c = &model->config;
    const struct device_options device = {.kind = backend->device_kind,
                                          .n_threads = model->options.threads};

    if (!device_open(device, &model->device, err) ||
        !stream_open(model->device, &model->stream, err) ||
        !deepseek_v3_buffers_open(&model->forward.buffers, c, model->device,
                                  model->options.rows_max, model->options.seqs_max,
                                  model->options.numerics, err) ||
        !inputs_open(model, err) || !rope_open(model, err))
        return false;
    if (model_config_expert_layers(c) == 0)
        return true;

    const struct transport_options transport = {.backend = backend,
                                                .device = model->device,
                                                .n_ranks = 1,
                                                .n_experts = c->experts,
                                                .top_k = c->top_k,
                                                .dim = c->hidden,
                                                .n_tokens_max = model->options.rows_max,
                                                .n_slots = PIPELINE_MICRO_BATCHES_MAX};
    return transport_open_local(transport, &model->transport, err);
}

static void hash_piece(void *context, const void *bytes, size_t size)
{
    sha256_update(context, bytes, size);
}

static bool set_revision(struct model *model, struct err *err)
{
    uint8_t digest[SHA256_SIZE];
    struct sha256 *sha;
    char *text;

    if (!text_file_read(model->options.dir, "config.json", &text, err))
        return false;
    sha = sha256_open();
    if (text)
        sha256_update(sha, text, strlen(text));
    weights_identify(model->weights, hash_piece, sha);
    sha256_close(sha, digest);
    free(text);
    hex_format(digest, REVISION_DIGITS / 2, model->revision);
    return true;
}

bool model_open(struct model **model, const struct model_options *options, struct err *err)
{
    struct model *made = calloc(1, sizeof *made);
    const struct backend *backend;
    uint32_t context;

    CHECK(options->seqs_max >= 1);
    CHECK(options->rows_max >= options->seqs_max);

    if (!made)
        return err_set(err, ERR_FATAL, "%.200s: no memory", options->dir);
    made->options = *options;
    if (!backend_find(options->backend, &backend, err) ||
        !model_config_read(&made->config, options->dir, err) ||
        !weights_open(&made->weights, options->dir, err) ||
        !deepseek_v3_weights_open(&made->layers, &made->config, made->weights, err) ||
        !set_revision(made, err))
        goto failed;
    context = options->context_max;
    if (context > made->config.positions_max) {
        err_set(err, ERR_FATAL, "%.150s: context of %u tokens, the model allows %u", options->dir,
                context, made->config.positions_max);
        goto failed;
    }
    made->context_max = context ? context : made->config.positions_max;
    if (!open_device(made, backend, err))
        goto failed;
    forward_init(made, backend);
    *model = made;
    return true;
failed:
    model_close(made);
    return false;
}

void model_close(struct model *model)
{
    if (!model)
        return;
    if (model->device) {
        struct inputs *in = &model->inputs;
        void *const memory[] = {in->tokens,        in->positions,       in->first_row,
                                in->seq_rows,      in->first_position,  in->pages,
                                model->rope_table, model->forward.cache};

        transport_close(model->transport);
        deepseek_v3_buffers_close(&model->forward.buffers, model->device);
        for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
            device_free(model->device, memory[i]);
        stream_close(model->stream);
        device_close(model->device);
    }
    free(model->first_row);
    deepseek_v3_weights_close(&model->layers);
    weights_close(model->weights);
    free(model);
}

size_t model_page_size(const struct model *model)
{
    return model->config.layers * model->forward.cache_layer_size;
}

bool model_cache_open(struct model *model, uint32_t pages, struct err *err)
{
    void *memory;

    CHECK(!model->forward.cache);
    if (!device_alloc(model->device, pages * model_page_size(model), &memory, err))
        return false;
    model->forward.cache = memory;
    return true;
}

/* The sequences [begin, end) of a batch as one micro-batch. */
static void micro_batch_init(struct model *model, const struct model_batch *batch,
                             uint32_t micro_batch, uint32_t begin, uint32_t end)
{
    const uint32_t row = begin < batch->n_seqs ? batch->first_row[begin] : batch->n_rows;
    const uint32_t row_end = end < batch->n_seqs ? batch->first_row[end] : batch->n_rows;
    const struct inputs *in = &model->inputs;

    model->forward.micro_batches[micro_batch] = (struct deepseek_v3_micro_batch){
        .ragged = {.first_row = in->first_row + begin,
                   .n_rows = in->seq_rows + begin,
                   .first_position = in->first_position + begin,
                   .pages = in->pages + begin * batch->pages_stride,
                   .pages_stride = batch->pages_stride,
                   .n_seqs = end - begin,
                   .page_size = KV_PAGE_TOKENS},
        .positions = in->positions + row,
        .first_row = row,
        .n_rows = row_end - row,
    };
}

/* Rows as each micro-batch counts them, from its own first. */
static void set_first_rows(struct model *model, const struct model_batch *batch)
{
    uint32_t micro = 0;
    uint32_t row = 0;

    for (uint32_t s = 0; s < batch->n_seqs; s++) {
        while (micro < batch->n_micro && batch->micro_first[micro] <= s) {
            row = batch->first_row[s];
            micro++;
        }
        model->first_row[s] = batch->first_row[s] - row;
    }
}

static bool upload(struct model *model, uint32_t *to, const uint32_t *from, size_t count,
                   struct err *err)
{
    return device_copy(model->stream, to, from, count * sizeof *from, err);
}

static bool upload_batch(struct model *model, const struct model_batch *batch, struct err *err)
{
    const struct inputs *in = &model->inputs;
    const uint32_t seqs = batch->n_seqs;

    return upload(model, in->tokens, batch->tokens, batch->n_rows, err) &&
           upload(model, in->positions, batch->positions, batch->n_rows, err) &&
           upload(model, in->first_row, model->first_row, seqs, err) &&
           upload(model, in->seq_rows, batch->seq_rows, seqs, err) &&
           upload(model, in->first_position, batch->first_position, seqs, err) &&
           upload(model, in->pages, batch->pages, seqs * batch->pages_stride, err);
}

/* All micro-batches, as many at a time as the pipeline interleaves. */
static bool run_layers(struct model *model, const struct model_batch *batch, struct err *err)
{
    const uint32_t whole[] = {0, batch->n_seqs};
    const uint32_t *first = batch->n_micro > 0 ? batch->micro_first : whole;
    const uint32_t count = batch->n_micro > 0 ? batch->n_micro : 1;
    const uint32_t at_once = batch->pipeline->micro_batches;

    for (uint32_t m = 0; m < count; m += at_once) {
        for (uint32_t i = 0; i < at_once; i++) {
            uint32_t begin = first[m + i < count ? m + i : count];
            uint32_t end = first[m + i + 1 < count ? m + i + 1 : count];

            micro_batch_init(model, batch, i, begin, end);
        }
        if (!pipeline_run(batch->pipeline, model->config.layers, deepseek_v3_stage, &model->forward,
                          err))
            return false;
    }
    return true;
}

bool model_forward(struct model *model, const struct model_batch *batch, struct err *err)
{
    struct deepseek_v3_forward *forward = &model->forward;

    CHECK(forward->cache);
    CHECK(batch->n_rows <= model->options.rows_max);
    CHECK(batch->n_seqs <= model->options.seqs_max);
    CHECK(batch->n_logits <= model->options.seqs_max);
    CHECK(batch->pages_stride <= kv_pages_needed(model->context_max));

    set_first_rows(model, batch);
    return upload_batch(model, batch, err) &&
           deepseek_v3_embed(forward, model->inputs.tokens, batch->n_rows, err) &&
           run_layers(model, batch, err) &&
           deepseek_v3_logits(forward, batch->logit_rows, batch->n_logits, err) &&
           stream_sync(model->stream, err);
}

/* Memory of the CPU device is host memory; another device would copy here. */
const float *model_logits(const struct model *model)
{
    return model->forward.buffers.logits;
}

const uint32_t *model_experts(const struct model *model, uint32_t expert_layer)
{
    return model->forward.buffers.experts +
           (size_t)expert_layer * model->options.rows_max * model->config.top_k;
}

const struct model_config *model_config(const struct model *model)
{
    return &model->config;
}

uint32_t model_context_max(const struct model *model)
{
    return model->context_max;
}

const char *model_numerics_id(const struct model *model)
{
    return model->forward.backend->numerics_id[model->options.numerics];
}

const char *model_revision(const struct model *model)
{
    return model->revision;
}
