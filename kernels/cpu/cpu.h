/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu - the fast CPU back ends, one table per instruction set.
 *
 * All are compiled from the same bodies (the .inc files): the file of an
 * instruction set includes its vectors (simd_*.h), then the bodies. Lanes and
 * order of sums are those of sixteen floats everywhere, so that their results
 * are equal bit for bit, except that cpu-avx512bf16 multiplies bfloat16 by
 * vdpbf16ps. A table must not be called on a machine without its instructions;
 * backend_find sees to that.
 */
#ifndef KERNELS_CPU_CPU_H
#define KERNELS_CPU_CPU_H

#include "kernels/backend.h"

extern const struct backend backend_cpu_avx2;
extern const struct backend backend_cpu_avx512;
extern const struct backend backend_cpu_avx512bf16;

#endif
