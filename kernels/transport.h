/* SPDX-License-Identifier: Apache-2.0
 *
 * transport - tokens to the ranks that hold their experts, and back.
 *
 * One micro-batch goes through four calls, each enqueued on a stream:
 *
 *     dispatch_send   rows leave for their experts
 *     dispatch_recv   this rank's experts have their rows, sorted by expert
 *     combine_send    the experts' output leaves for the tokens' ranks
 *     combine_recv    tokens get the weighted sum, in slot order
 *
 * Between a send and its recv the caller may enqueue other work, which then
 * hides the communication. Micro-batches in flight at the same time use
 * different slots. All ranks make all calls in the same order, also those
 * without tokens.
 *
 * transport_local is the transport of one rank: all experts are here, send
 * sorts and recv finds it done. Buffers are allocated at open.
 */
#ifndef KERNELS_TRANSPORT_H
#define KERNELS_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "kernels/backend.h"
#include "kernels/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct transport;

struct transport_options {
    const struct backend *backend;
    struct device *device; /* outlives the transport */
    uint32_t n_ranks;      /* divides n_experts */
    uint32_t rank;
    uint32_t n_experts; /* of the model, in all ranks together */
    uint32_t top_k;
    uint32_t dim;
    uint32_t n_tokens_max; /* of one micro-batch of one rank */
    uint32_t n_slots;      /* micro-batches in flight */
};

/* What a rank sends. The arrays stay as they are until combine_recv of the slot has passed. */
struct transport_batch {
    const float *x;          /* (n_tokens, dim), rows x_stride apart */
    const uint32_t *experts; /* (n_tokens, top_k), numbers of the whole model */
    const float *weights;    /* (n_tokens, top_k) */
    size_t x_stride;         /* in elements */
    uint32_t n_tokens;       /* 0 is allowed, at most n_tokens_max */
};

/* What a rank's experts got. Valid until the slot's combine_recv. */
struct transport_rows {
    const float *x;          /* (n_rows_max, dim) */
    const uint32_t *offsets; /* (n_experts_local + 1), device memory; as matmul_grouped takes them.
                              * The last one is the number of rows */
    uint32_t n_experts_local;
    uint32_t expert_first; /* the model's number of local expert 0 */
    uint32_t n_rows_max;   /* rows there can be in this micro-batch */
};

struct transport_result {
    const float *shared;  /* (n_tokens, dim), rows shared_stride apart; added last. NULL: none */
    float *out;           /* (n_tokens, dim), rows out_stride apart */
    size_t shared_stride; /* in elements */
    size_t out_stride;
    bool accumulate; /* add to out, the residual stream, instead of setting it */
};

/* ERR_FATAL: n_ranks is not 1, or no memory. */
bool transport_open_local(struct transport_options options, struct transport **transport,
                          struct err *err);
void transport_close(struct transport *transport); /* NULL is allowed */

/* Rows that dispatch_recv can report at most, to size the experts' buffers. */
uint32_t transport_rows_max(const struct transport *transport);

bool transport_dispatch_send(struct transport *transport, struct stream *stream, uint32_t slot,
                             const struct transport_batch *batch, struct err *err);
bool transport_dispatch_recv(struct transport *transport, struct stream *stream, uint32_t slot,
                             struct transport_rows *rows, struct err *err);
/* rows: (n_rows_max, dim), the experts' output in the order of dispatch_recv; it stays as it is
 * until the slot's combine_recv has passed. */
bool transport_combine_send(struct transport *transport, struct stream *stream, uint32_t slot,
                            const float *rows, struct err *err);
bool transport_combine_recv(struct transport *transport, struct stream *stream, uint32_t slot,
                            const struct transport_result *result, struct err *err);

#ifdef __cplusplus
}
#endif
#endif
