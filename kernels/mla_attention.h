/* SPDX-License-Identifier: Apache-2.0
 *
 * mla_attention - multi-head latent attention over a paged cache, in absorbed
 * form, and the writing of that cache.
 *
 * The cache holds one entry per token and layer, shared by all heads: kv_rank
 * values of the normalised latent, then rope_dim values of the rotated key, in
 * the format of numerics_kv_dtype(). Entry of (page, slot), in elements from
 * cache: page * page_stride + slot * (kv_rank + rope_dim); so a page may hold
 * the entries of many layers, cache pointing at this layer's part.
 *
 *     score(t, h, j) = scale * (q_latent[t][h] . latent[j] + q_rope[t][h] . key[j])
 *     out[t][h]      = sum over j <= position(t) of softmax(score)(j) * latent[j]
 *
 * NUMERICS_BF16 rounds q_latent and q_rope; the weights of the softmax stay
 * float. Keys are taken in blocks of 16 positions, counted from position 0,
 * one after another with a running maximum. A token whose scores are all
 * -infinity gets zeros.
 */
#ifndef KERNELS_MLA_ATTENTION_H
#define KERNELS_MLA_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/numerics.h"
#include "kernels/ragged.h"

/* The entries of all tokens up to and including those of this batch are in the cache: kv_write
 * comes before on the same stream. Entries beyond a token's position are never read. */
struct mla_attention_args {
    struct ragged batch;       /* its arrays in device memory */
    const float *q_latent;     /* (n_tokens, n_heads, kv_rank), heads side by side */
    const float *q_rope;       /* (n_tokens, n_heads, rope_dim) */
    const void *cache;         /* this layer's entries, see above */
    float *out;                /* (n_tokens, n_heads, kv_rank), heads side by side */
    size_t q_latent_stride;    /* from token to token, in elements */
    size_t q_rope_stride;      /* from token to token, in elements */
    size_t q_rope_head_stride; /* from head to head, at least rope_dim: q_rope may lie inside q */
    size_t out_stride;         /* from token to token */
    size_t page_stride;        /* from page to page of the cache, in elements */
    enum numerics numerics;
    uint32_t n_tokens; /* rows of the batch in all, 0 is allowed */
    uint32_t n_heads;
    uint32_t kv_rank; /* kv_rank + rope_dim is at most MLA_ENTRY_MAX */
    uint32_t rope_dim;
    float scale; /* of the softmax */
};

struct kv_write_args {
    struct ragged batch;
    const float *latent; /* (n_tokens, kv_rank), normalised */
    const float *key;    /* (n_tokens, rope_dim), rotated */
    void *cache;
    size_t latent_stride; /* from token to token, in elements */
    size_t key_stride;    /* from token to token, in elements */
    size_t page_stride;
    enum numerics numerics;
    uint32_t kv_rank;
    uint32_t rope_dim;
};

enum {
    MLA_ENTRY_MAX = 1024, /* DeepSeek-V3 has 512 + 64; bounds the buffers on the stack */
};

#endif
