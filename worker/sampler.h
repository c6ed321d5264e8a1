/* SPDX-License-Identifier: Apache-2.0
 *
 * sampler - which token follows, given the logits of one position.
 *
 * The random number of a position is a function of (seed, position) alone:
 * Philox4x32-10, a counter-based generator (Salmon et al., SC 2011), keyed by
 * the seed and counting positions. So a request says the same tokens again
 * after a crash, a preemption or a move to another worker, whatever it is
 * batched with. Ties go to the lower id, so does every sort here.
 *
 * Pure functions of their arguments; any thread.
 */
#ifndef WORKER_SAMPLER_H
#define WORKER_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/* A plain value. Filters apply in the order temperature, top_k, top_p. */
struct sampling {
    float temperature; /* 0 is greedy: the largest logit; up to 2 */
    float top_p;       /* in (0, 1]; 1 is off */
    uint32_t top_k;    /* 0 is off */
    uint64_t seed;
};

struct sampler_candidate {
    double weight; /* exp((logit - largest) / temperature) */
    int32_t id;
};

/* logits (n_vocab); scratch (n_vocab) is overwritten. position counts tokens
 * of the sequence, prompt included. False (ERR_REJECT) if no logit is a number
 * above -inf; a NaN among others is never chosen. */
bool sampler_choose(const struct sampling *sampling, uint64_t position, const float *logits,
                    size_t n_vocab, struct sampler_candidate *scratch, int32_t *id,
                    struct err *err);

/* The seed of a request that names none: a hash of its id, so that every
 * attempt has the same one. */
uint64_t sampler_seed(const void *request_id, size_t size);

/* Philox4x32-10, open for its published test vectors. */
void sampler_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

#endif
