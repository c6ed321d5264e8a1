/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/pipeline.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const struct pipeline_entry sequential[] = {
    {STAGE_ATTN0, 0, 0},         {STAGE_ATTN1, 0, 0},        {STAGE_DISPATCH_SEND, 0, 0},
    {STAGE_DISPATCH_RECV, 0, 0}, {STAGE_MLP, 0, 0},          {STAGE_SHARED, 0, 0},
    {STAGE_COMBINE_SEND, 0, 0},  {STAGE_COMBINE_RECV, 0, 0},
};

/* Attention of 1 hides dispatch of 0, experts of 0 hide dispatch of 1, experts of 1 hide combine
 * of 0, attention of 0 in the next layer hides combine of 1. */
static const struct pipeline_entry prefill[] = {
    {STAGE_ATTN0, 0, 0},         {STAGE_ATTN1, 0, 0},         {STAGE_COMBINE_RECV, 1, 1},
    {STAGE_DISPATCH_SEND, 0, 0}, {STAGE_ATTN0, 1, 0},         {STAGE_ATTN1, 1, 0},
    {STAGE_DISPATCH_RECV, 0, 0}, {STAGE_DISPATCH_SEND, 1, 0}, {STAGE_MLP, 0, 0},
    {STAGE_SHARED, 0, 0},        {STAGE_DISPATCH_RECV, 1, 0}, {STAGE_COMBINE_SEND, 0, 0},
    {STAGE_MLP, 1, 0},           {STAGE_SHARED, 1, 0},        {STAGE_COMBINE_RECV, 0, 0},
    {STAGE_COMBINE_SEND, 1, 0},
};

/* Shared experts of one and projections of the other hide a dispatch, the other's core attention
 * hides the combine; the two micro-batches are half a layer apart. */
static const struct pipeline_entry decode[] = {
    {STAGE_DISPATCH_SEND, 0, 1}, {STAGE_SHARED, 0, 1},       {STAGE_ATTN0, 1, 1},
    {STAGE_DISPATCH_RECV, 0, 1}, {STAGE_MLP, 0, 1},          {STAGE_COMBINE_SEND, 0, 1},
    {STAGE_ATTN1, 1, 1},         {STAGE_COMBINE_RECV, 0, 1}, {STAGE_DISPATCH_SEND, 1, 1},
    {STAGE_SHARED, 1, 1},        {STAGE_ATTN0, 0, 0},        {STAGE_DISPATCH_RECV, 1, 1},
    {STAGE_MLP, 1, 1},           {STAGE_COMBINE_SEND, 1, 1}, {STAGE_ATTN1, 0, 0},
    {STAGE_COMBINE_RECV, 1, 1},
};

const struct pipeline pipeline_sequential = {sequential, COUNT(sequential), 1};
const struct pipeline pipeline_prefill = {prefill, COUNT(prefill), 2};
const struct pipeline pipeline_decode = {decode, COUNT(decode), 2};

bool pipeline_run(const struct pipeline *pipeline, uint32_t layers,
                  bool (*stage)(void *context, enum stage stage, uint32_t layer,
                                uint32_t micro_batch, struct err *err),
                  void *context, struct err *err)
{
    for (uint32_t round = 0; round <= layers; round++) {
        for (size_t i = 0; i < pipeline->entry_count; i++) {
            const struct pipeline_entry *entry = &pipeline->entries[i];

            if (round < entry->behind || round - entry->behind >= layers)
                continue;
            if (!stage(context, entry->stage, round - entry->behind, entry->micro_batch, err))
                return false;
        }
    }
    return true;
}
