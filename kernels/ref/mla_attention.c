/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/mla_attention.h"

#include <math.h>

#include "common/check.h"
#include "kernels/ref/element.h"
#include "kernels/ref/ref.h"

/* Index of the cache entry of a position, in elements. */
static size_t entry_of(const struct ragged *batch, size_t page_stride, size_t entry_size,
                       size_t seq, size_t position)
{
    const size_t page = batch->pages[seq * batch->pages_stride + position / batch->page_size];

    return page * page_stride + position % batch->page_size * entry_size;
}

bool ref_kv_write(struct stream *stream, const struct kv_write_args *args, struct err *err)
{
    const struct ragged *batch = &args->batch;
    const enum dtype dtype = numerics_kv_dtype(args->numerics);

    (void)stream;
    (void)err;
    for (size_t seq = 0; seq < batch->n_seqs; seq++) {
        for (size_t i = 0; i < batch->n_rows[seq]; i++) {
            const size_t row = batch->first_row[seq] + i;
            const size_t entry = entry_of(batch, args->page_stride, args->kv_rank + args->rope_dim,
                                          seq, batch->first_position[seq] + i);
            for (size_t d = 0; d < args->kv_rank; d++)
                element_set(args->cache, dtype, entry + d,
                            args->latent[row * args->latent_stride + d]);
            for (size_t d = 0; d < args->rope_dim; d++)
                element_set(args->cache, dtype, entry + args->kv_rank + d,
                            args->key[row * args->key_stride + d]);
        }
    }
    return true;
}

struct query {
    const float *latent;
    const float *rope;
    float *out;
    size_t seq;
    size_t n_keys;
};

static double score(const struct mla_attention_args *args, const struct query *query, size_t key)
{
    const enum dtype dtype = numerics_kv_dtype(args->numerics);
    const size_t entry =
        entry_of(&args->batch, args->page_stride, args->kv_rank + args->rope_dim, query->seq, key);
    double sum = 0;

    for (size_t d = 0; d < args->kv_rank; d++)
        sum += (double)element_round(query->latent[d], args->numerics) *
               element_get(args->cache, dtype, entry + d);
    for (size_t d = 0; d < args->rope_dim; d++)
        sum += (double)element_round(query->rope[d], args->numerics) *
               element_get(args->cache, dtype, entry + args->kv_rank + d);
    return sum * args->scale;
}

/* Scores are computed twice, once for their maximum, so that no buffer is needed. */
static void attend(const struct mla_attention_args *args, const struct query *query)
{
    const enum dtype dtype = numerics_kv_dtype(args->numerics);
    double out[MLA_ENTRY_MAX] = {0};
    double score_max = -INFINITY;
    double sum = 0;

    for (size_t key = 0; key < query->n_keys; key++)
        score_max = fmax(score_max, score(args, query, key));
    if (score_max == -INFINITY)
        score_max = 0; /* all weights become 0 instead of NaN */
    for (size_t key = 0; key < query->n_keys; key++) {
        const size_t entry = entry_of(&args->batch, args->page_stride,
                                      args->kv_rank + args->rope_dim, query->seq, key);
        const double weight = exp(score(args, query, key) - score_max);
        sum += weight;
        for (size_t d = 0; d < args->kv_rank; d++)
            out[d] += weight * element_get(args->cache, dtype, entry + d);
    }
    for (size_t d = 0; d < args->kv_rank; d++)
        query->out[d] = sum == 0 ? 0 : (float)(out[d] / sum);
}

bool ref_mla_attention(struct stream *stream, const struct mla_attention_args *args,
                       struct err *err)
{
    const struct ragged *batch = &args->batch;

    (void)stream;
    (void)err;
    CHECK(args->kv_rank + args->rope_dim <= MLA_ENTRY_MAX);
    for (size_t seq = 0; seq < batch->n_seqs; seq++) {
        CHECK(batch->first_row[seq] + batch->n_rows[seq] <= args->n_tokens);
        for (size_t i = 0; i < batch->n_rows[seq]; i++) {
            const size_t row = batch->first_row[seq] + i;
            for (size_t head = 0; head < args->n_heads; head++) {
                const struct query query = {
                    .latent = args->q_latent + row * args->q_latent_stride + head * args->kv_rank,
                    .rope =
                        args->q_rope + row * args->q_rope_stride + head * args->q_rope_head_stride,
                    .out = args->out + row * args->out_stride + head * args->kv_rank,
                    .seq = seq,
                    .n_keys = batch->first_position[seq] + i + 1,
                };
                attend(args, &query);
            }
        }
    }
    return true;
}
