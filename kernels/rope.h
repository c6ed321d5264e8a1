/* SPDX-License-Identifier: Apache-2.0
 *
 * rope - rotary position embedding, in place, on interleaved pairs.
 *
 * The pair (x[2i], x[2i + 1]) turns by the angle position * inv_freq[i]. The
 * tables are built once, on the host, for plain and YaRN scaling, with the
 * arithmetic of transformers' modeling_rope_utils.py
 * (_compute_yarn_parameters) and modeling_deepseek_v3.py: frequencies and
 * angles in float, cosines and sines times the attention factor.
 */
#ifndef KERNELS_ROPE_H
#define KERNELS_ROPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* x[row][head] is rotated by the angles of positions[row]. */
struct rope_args {
    float *x;                  /* (n_rows, n_heads, dim); the dim elements lie side by side */
    const uint32_t *positions; /* (n_rows), each below n_positions */
    const float *table;        /* (n_positions, dim): dim / 2 cosines, then dim / 2 sines */
    size_t row_stride;         /* in elements */
    size_t head_stride;        /* in elements, at least dim */
    uint32_t n_rows;           /* 0 is allowed */
    uint32_t n_heads;
    uint32_t dim; /* even */
    uint32_t n_positions;
};

struct rope_config {
    uint32_t dim;  /* qk_rope_head_dim, even */
    double theta;  /* rope_theta, above 1 */
    bool yarn;     /* rope_scaling.type is yarn; the rest counts only then */
    double factor; /* rope_scaling.factor */
    double original_max_position_embeddings;
    double beta_fast;        /* 32 where the file has none */
    double beta_slow;        /* 1 where the file has none */
    double mscale;           /* 0 where the file has none */
    double mscale_all_dim;   /* 0 where the file has none */
    double attention_factor; /* 0 where the file has none: computed from the two mscales */
};

/* table: (n_positions, config->dim) floats in host memory, the caller's. */
void rope_table_build(const struct rope_config *config, uint32_t n_positions, float *table);

/* What cosines and sines are multiplied with; 1 without YaRN. */
double rope_attention_factor(const struct rope_config *config);

/* What DeepSeek multiplies 1 / sqrt(qk_head_dim) with to get its softmax scale: the square of
 * the mscale of mscale_all_dim; 1 without YaRN or without mscale_all_dim. */
double rope_softmax_factor(const struct rope_config *config);

#endif
