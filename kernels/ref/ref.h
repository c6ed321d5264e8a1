/* SPDX-License-Identifier: Apache-2.0
 *
 * ref - the reference back end: plain loops that define what is correct.
 *
 * They run on the calling thread, sum in double, and share no code with the
 * fast back ends they judge. Fast they are not.
 */
#ifndef KERNELS_REF_REF_H
#define KERNELS_REF_REF_H

#include "kernels/backend.h"

extern const struct backend backend_ref;

bool ref_embedding(struct stream *stream, const struct embedding_args *args, struct err *err);
bool ref_rmsnorm(struct stream *stream, const struct rmsnorm_args *args, struct err *err);
bool ref_matmul(struct stream *stream, const struct matmul_args *args, struct err *err);
bool ref_matmul_grouped(struct stream *stream, const struct matmul_grouped_args *args,
                        struct err *err);
bool ref_rope(struct stream *stream, const struct rope_args *args, struct err *err);
bool ref_kv_write(struct stream *stream, const struct kv_write_args *args, struct err *err);
bool ref_mla_attention(struct stream *stream, const struct mla_attention_args *args,
                       struct err *err);
bool ref_moe_gate(struct stream *stream, const struct moe_gate_args *args, struct err *err);
bool ref_moe_permute(struct stream *stream, const struct moe_permute_args *args, struct err *err);
bool ref_moe_combine(struct stream *stream, const struct moe_combine_args *args, struct err *err);
bool ref_swiglu(struct stream *stream, const struct swiglu_args *args, struct err *err);

#endif
