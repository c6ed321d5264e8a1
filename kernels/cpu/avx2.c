/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "common/check.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/stream.h"

#include "kernels/cpu/simd_avx2.h"

#include "kernels/cpu/vec_math.h"

#include "kernels/cpu/dot.inc"

/* No instruction for products of bfloat16: both sides are widened. */
static const struct dots *const dots_rounded = &dots_widened[DTYPE_BF16];

#include "kernels/cpu/matmul.inc"

#include "kernels/cpu/attention.inc"
#include "kernels/cpu/moe.inc"
#include "kernels/cpu/rows.inc"

const struct backend backend_cpu_avx2 = {
    .name = "cpu-avx2",
    .numerics_id = {[NUMERICS_F32] = "cpu-fma16/f32", [NUMERICS_BF16] = "cpu-fma16/bf16"},
#include "kernels/cpu/table.inc"
};
