/* SPDX-License-Identifier: Apache-2.0
 *
 * step_plan - which tokens of which sequences make the next step.
 *
 * Every running sequence gets its decode row; sequences that still have several
 * known tokens to feed (a new prompt, or one that is recomputed) share a budget
 * of chunk_tokens, oldest first, and what is left of it admits waiting ones.
 * Those begin behind the pages that the prefix cache has of them; at least the
 * last known token is fed again, since its logits are needed. A waiting sequence
 * whose next page is just being computed by another one is passed over until it
 * is there: a burst of requests with one beginning computes it once.
 * When pages run out, idle ones of the prefix cache are reused first, then the
 * youngest running sequence gives its own back and waits again, so the oldest
 * always goes on and every sequence ends some day.
 *
 * Where steps overlap, the sequences stand micro-batch by micro-batch
 * (worker/micro_batch.h).
 *
 * A plan changes the books (sequences, pages), not the clock or the device.
 */
#ifndef WORKER_STEP_PLAN_H
#define WORKER_STEP_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "worker/micro_batch.h"
#include "worker/model.h"
#include "worker/sequences.h"

struct step_limits {
    uint32_t seqs_max;      /* sequences in one step, what buffers hold */
    uint32_t chunk_tokens;  /* rows of sequences with more than one row, at most */
    uint32_t context_max;   /* tokens of a sequence */
    uint32_t profile_cells; /* of a sequence's expert_counts; 0: micro-batches are cut by length */
};

/* The batch of one step, in arrays of its own. */
struct step_plan {
    struct step_limits limits;
    struct sequence **seqs;    /* (n_seqs) */
    struct sequence **sampled; /* (n_logits) those of them that say a token */
    uint32_t *tokens;          /* as struct model_batch has them */
    uint32_t *positions;
    uint32_t *first_row;
    uint32_t *seq_rows;
    uint32_t *first_position;
    uint32_t *pages;
    uint32_t *logit_rows;
    uint32_t *micro_first; /* (n_micro + 1) */
    /* Scratch of a step, (seqs_max) each but the last. */
    struct sequence **claimed;
    const uint32_t **expert_counts;
    uint32_t *claimed_rows;
    uint32_t *order;
    float *micro_scratch; /* micro_batch_scratch() */
    size_t pages_stride;
    uint32_t n_rows;
    uint32_t n_seqs;
    uint32_t n_logits;
    uint32_t n_micro;
    uint32_t n_decode_rows; /* of n_rows */
};

bool step_plan_open(struct step_plan *plan, struct step_limits limits, struct err *err);
void step_plan_close(struct step_plan *plan); /* zeroed is allowed */

struct step_sizes {
    uint32_t batch;       /* admit while fewer sequences run; urgent ones, fewer urgent ones */
    uint32_t micro_batch; /* cut into micro-batches of so many sequences at most; 0: do not cut */
};

/* Makes the next step's batch. Returns how many sequences were preempted. n_rows is 0 when there is
 * nothing to do. */
uint32_t step_plan_make(struct step_plan *plan, struct sequences *sequences,
                        struct step_sizes sizes);

/* The plan as the model takes it. */
struct model_batch step_plan_batch(const struct step_plan *plan, const struct pipeline *pipeline);

#endif
