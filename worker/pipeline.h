/* SPDX-License-Identifier: Apache-2.0
 *
 * pipeline - in which order the stages of a forward pass are enqueued.
 *
 * A layer is eight stages. On one rank they run one after another. Across ranks
 * dispatch and combine take long, so a step is cut into two micro-batches and
 * one computes while the other's rows travel: between a send and its recv
 * stands work of the other micro-batch. Which work is the difference between
 * the tables:
 *
 *     sequential   one micro-batch, stage by stage
 *     prefill      two; attention of one hides the dispatch of the other, experts hide its combine
 *     decode       two; shared experts and projections hide a dispatch, core attention a combine
 *
 * The order never changes a result (tests/unit/test_engine.c compares bits).
 *
 * Source: DeepSeek-V3 technical report, sections 3.2.1 and 3.4, and the profile data published
 * with it.
 */
#ifndef WORKER_PIPELINE_H
#define WORKER_PIPELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

enum stage {
    STAGE_ATTN0, /* norm, projections, rope, KV write */
    STAGE_ATTN1, /* core attention, output projection, norm, gate */
    STAGE_DISPATCH_SEND,
    STAGE_DISPATCH_RECV,
    STAGE_SHARED, /* shared experts; the whole MLP in dense layers */
    STAGE_MLP,    /* routed experts */
    STAGE_COMBINE_SEND,
    STAGE_COMBINE_RECV,
    STAGE_COUNT
};

enum { PIPELINE_MICRO_BATCHES_MAX = 2 };

/* One line of a table. Round r of 0..layers runs the entry for layer r - behind, if there is such
 * a layer: an overlap that reaches into the next layer is written once, without start and end. */
struct pipeline_entry {
    enum stage stage;
    uint8_t micro_batch;
    uint8_t behind; /* 0 or 1 */
};

struct pipeline {
    const struct pipeline_entry *entries;
    size_t entry_count;
    uint32_t micro_batches;
};

extern const struct pipeline pipeline_sequential;
extern const struct pipeline pipeline_prefill;
extern const struct pipeline pipeline_decode;

/* Calls stage for every stage of every layer and micro-batch, in the table's order. Stops at the
 * first failure. */
bool pipeline_run(const struct pipeline *pipeline, uint32_t layers,
                  bool (*stage)(void *context, enum stage stage, uint32_t layer,
                                uint32_t micro_batch, struct err *err),
                  void *context, struct err *err);

#endif
