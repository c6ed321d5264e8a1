/* SPDX-License-Identifier: Apache-2.0
 *
 * backend - the table of kernels that the model is computed with.
 *
 * main() finds one table at start-up and passes it on; nobody asks again which
 * one it got. Every kernel enqueues its work on the stream and returns: it
 * allocates nothing and never waits. Its arguments are copied, the memory they
 * point to lives where the device computes and stays as it is until the stream
 * has passed. False means that the launch failed (ERR_FATAL); arguments that
 * break a contract are our own bugs and stop the process.
 *
 *     ref             plain loops; defines correct
 *     cpu-avx2        AVX2 and FMA
 *     cpu-avx512      AVX-512 F, BW, DQ, VL
 *     cpu-avx512bf16  the same, and vdpbf16ps for NUMERICS_BF16
 *     auto            the last of these that this machine can run
 *     cpu             the same as auto, never ref
 */
#ifndef KERNELS_BACKEND_H
#define KERNELS_BACKEND_H

#include <stdbool.h>

#include "common/err.h"
#include "kernels/device.h"
#include "kernels/embedding.h"
#include "kernels/matmul.h"
#include "kernels/mla_attention.h"
#include "kernels/moe_gate.h"
#include "kernels/moe_permute.h"
#include "kernels/numerics.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"

#ifdef __cplusplus
extern "C" {
#endif

struct backend {
    const char *name;
    enum device_kind device_kind;
    /* By enum numerics. Tables with the same id give the same bits: a request may be resumed
     * on a worker with the id it began with, on no other. */
    const char *numerics_id[2];

    bool (*embedding)(struct stream *, const struct embedding_args *, struct err *);
    bool (*rmsnorm)(struct stream *, const struct rmsnorm_args *, struct err *);
    bool (*matmul)(struct stream *, const struct matmul_args *, struct err *);
    bool (*matmul_grouped)(struct stream *, const struct matmul_grouped_args *, struct err *);
    bool (*rope)(struct stream *, const struct rope_args *, struct err *);
    bool (*kv_write)(struct stream *, const struct kv_write_args *, struct err *);
    bool (*mla_attention)(struct stream *, const struct mla_attention_args *, struct err *);
    bool (*moe_gate)(struct stream *, const struct moe_gate_args *, struct err *);
    bool (*moe_permute)(struct stream *, const struct moe_permute_args *, struct err *);
    bool (*moe_combine)(struct stream *, const struct moe_combine_args *, struct err *);
    bool (*swiglu)(struct stream *, const struct swiglu_args *, struct err *);
};

/* ERR_FATAL when the name is unknown or this machine cannot run that table; the message lists
 * the names that it can. The table is static. */
bool backend_find(const char *name, const struct backend **backend, struct err *err);

#ifdef __cplusplus
}
#endif
#endif
