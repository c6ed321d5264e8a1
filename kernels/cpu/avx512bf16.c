/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "common/check.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/stream.h"

#include "kernels/cpu/simd_avx512.h"

#include "kernels/cpu/vec_math.h"

#include "kernels/cpu/dot.inc"
#include "kernels/cpu/dot_pairs.inc"

static const struct dots *const dots_rounded = &dots_pairs;

#include "kernels/cpu/matmul.inc"

#include "kernels/cpu/attention.inc"
#include "kernels/cpu/moe.inc"
#include "kernels/cpu/rows.inc"

const struct backend backend_cpu_avx512bf16 = {
    .name = "cpu-avx512bf16",
    .numerics_id = {[NUMERICS_F32] = "cpu-fma16/f32", [NUMERICS_BF16] = "cpu-avx512bf16/bf16"},
#include "kernels/cpu/table.inc"
};
