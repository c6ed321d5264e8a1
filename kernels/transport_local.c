/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "common/check.h"
#include "kernels/moe_permute.h"
#include "kernels/transport.h"

/* One micro-batch in flight. */
struct slot {
    struct transport_batch batch;
    float *rows;         /* (n_tokens_max * top_k, dim) */
    uint32_t *offsets;   /* (n_experts + 1) */
    uint32_t *row_of;    /* (n_tokens_max, top_k) */
    const float *output; /* given by combine_send */
};

struct transport {
    struct transport_options options;
    struct slot *slots; /* (n_slots) */
};

static bool slot_alloc(const struct transport_options *options, struct slot *slot, struct err *err)
{
    const size_t n_pairs = (size_t)options->n_tokens_max * options->top_k;
    void *rows, *offsets, *row_of;

    if (!device_alloc(options->device, n_pairs * options->dim * sizeof(float), &rows, err))
        return false;
    slot->rows = rows;
    if (!device_alloc(options->device, (options->n_experts + 1) * sizeof(uint32_t), &offsets, err))
        return false;
    slot->offsets = offsets;
    if (!device_alloc(options->device, n_pairs * sizeof(uint32_t), &row_of, err))
        return false;
    slot->row_of = row_of;
    return true;
}

bool transport_open_local(struct transport_options options, struct transport **transport,
                          struct err *err)
{
    if (options.n_ranks != 1 || options.rank != 0)
        return err_set(err, ERR_FATAL, "transport local: rank %u of %u wanted, it has one rank",
                       options.rank, options.n_ranks);

    struct transport *opened = calloc(1, sizeof *opened);
    struct slot *slots = calloc(options.n_slots, sizeof *slots);
    if (!opened || !slots) {
        free(opened);
        free(slots);
        return err_set(err, ERR_FATAL, "transport local: no memory for %u slots", options.n_slots);
    }
    opened->options = options;
    opened->slots = slots;
    for (uint32_t i = 0; i < options.n_slots; i++) {
        if (!slot_alloc(&options, &slots[i], err)) {
            transport_close(opened);
            return false;
        }
    }
    *transport = opened;
    return true;
}

void transport_close(struct transport *transport)
{
    if (!transport)
        return;
    for (uint32_t i = 0; i < transport->options.n_slots; i++) {
        device_free(transport->options.device, transport->slots[i].rows);
        device_free(transport->options.device, transport->slots[i].offsets);
        device_free(transport->options.device, transport->slots[i].row_of);
    }
    free(transport->slots);
    free(transport);
}

uint32_t transport_rows_max(const struct transport *transport)
{
    return transport->options.n_tokens_max * transport->options.top_k;
}

static struct slot *slot_get(struct transport *transport, uint32_t slot)
{
    CHECK(slot < transport->options.n_slots);
    return &transport->slots[slot];
}

bool transport_dispatch_send(struct transport *transport, struct stream *stream, uint32_t slot,
                             const struct transport_batch *batch, struct err *err)
{
    const struct transport_options *options = &transport->options;
    struct slot *s = slot_get(transport, slot);

    CHECK(batch->n_tokens <= options->n_tokens_max);
    s->batch = *batch;
    s->output = NULL;
    return options->backend->moe_permute(stream,
                                         &(struct moe_permute_args){
                                             .x = batch->x,
                                             .experts = batch->experts,
                                             .rows = s->rows,
                                             .offsets = s->offsets,
                                             .row_of = s->row_of,
                                             .x_stride = batch->x_stride,
                                             .n_tokens = batch->n_tokens,
                                             .n_experts = options->n_experts,
                                             .top_k = options->top_k,
                                             .dim = options->dim,
                                         },
                                         err);
}

bool transport_dispatch_recv(struct transport *transport, struct stream *stream, uint32_t slot,
                             struct transport_rows *rows, struct err *err)
{
    const struct slot *s = slot_get(transport, slot);

    (void)stream;
    (void)err;
    *rows = (struct transport_rows){
        .x = s->rows,
        .offsets = s->offsets,
        .n_experts_local = transport->options.n_experts,
        .expert_first = 0,
        .n_rows_max = s->batch.n_tokens * transport->options.top_k,
    };
    return true;
}

bool transport_combine_send(struct transport *transport, struct stream *stream, uint32_t slot,
                            const float *rows, struct err *err)
{
    (void)stream;
    (void)err;
    slot_get(transport, slot)->output = rows;
    return true;
}

bool transport_combine_recv(struct transport *transport, struct stream *stream, uint32_t slot,
                            const struct transport_result *result, struct err *err)
{
    const struct slot *s = slot_get(transport, slot);

    CHECK(s->output || s->batch.n_tokens == 0);
    return transport->options.backend->moe_combine(stream,
                                                   &(struct moe_combine_args){
                                                       .rows = s->output,
                                                       .weights = s->batch.weights,
                                                       .row_of = s->row_of,
                                                       .shared = result->shared,
                                                       .out = result->out,
                                                       .shared_stride = result->shared_stride,
                                                       .out_stride = result->out_stride,
                                                       .n_tokens = s->batch.n_tokens,
                                                       .top_k = transport->options.top_k,
                                                       .dim = transport->options.dim,
                                                       .accumulate = result->accumulate,
                                                   },
                                                   err);
}
