/* SPDX-License-Identifier: Apache-2.0
 *
 * micro_batch - which sequences of a step form a micro-batch.
 *
 * Micro-batches that hide each other's communication (worker/pipeline.h) should
 * take equally long and load the experts alike: a step waits for the slowest.
 * Sequences are dealt out from the longest to the shortest, each to the
 * micro-batch with the fewest rows, and among equals to the one whose experts
 * are least like its own. No answer depends on it: numerics are batch-invariant.
 *
 * Values only; the caller owns all arrays.
 */
#ifndef WORKER_MICRO_BATCH_H
#define WORKER_MICRO_BATCH_H

#include <stddef.h>
#include <stdint.h>

struct micro_batch_input {
    const uint32_t *rows;                 /* (count) of each sequence, at least 1 */
    const uint32_t *const *expert_counts; /* (count)(cells) what each has chosen so far */
    uint32_t count;
    uint32_t cells; /* 0: experts are left out */
    uint32_t size;  /* sequences of a micro-batch, at most; at least 1 */
};

/* How many: an even number, since they run in pairs, or count if that is less. Their sizes differ
 * by one at most and do not exceed size. */
uint32_t micro_batch_count(uint32_t count, uint32_t size);

/* Floats of scratch that micro_batch_cut() needs. */
size_t micro_batch_scratch(uint32_t count_max, uint32_t cells);

/* order: (count) the sequences, micro-batch by micro-batch, in each as they came; first:
 * (micro_batch_count() + 1) where each begins in it, and its end. */
void micro_batch_cut(const struct micro_batch_input *input, float *scratch, uint32_t *order,
                     uint32_t *first);

#endif
