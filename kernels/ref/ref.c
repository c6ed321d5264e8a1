/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/ref/ref.h"

const struct backend backend_ref = {
    .name = "ref",
    .device_kind = DEVICE_CPU,
    .numerics_id = {[NUMERICS_F32] = "ref/f32", [NUMERICS_BF16] = "ref/bf16"},
    .embedding = ref_embedding,
    .rmsnorm = ref_rmsnorm,
    .matmul = ref_matmul,
    .matmul_grouped = ref_matmul_grouped,
    .rope = ref_rope,
    .kv_write = ref_kv_write,
    .mla_attention = ref_mla_attention,
    .moe_gate = ref_moe_gate,
    .moe_permute = ref_moe_permute,
    .moe_combine = ref_moe_combine,
    .swiglu = ref_swiglu,
};
