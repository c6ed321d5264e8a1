/* SPDX-License-Identifier: Apache-2.0
 *
 * sequences - those an engine holds, and where each of them stands.
 *
 *     free -> waiting -> running -> finished -> free
 *                 ^---------'  preempted: its pages went to an older one
 *
 * Leaving running, a sequence lets its pages go: the full ones stay in the prefix
 * cache as long as nobody needs the place, so that being preempted costs little.
 * Any state but free may end in free (removal). Waiting ones queue in the order
 * of submission: preempted ones first, then urgent ones, then the rest. Running
 * ones stand in the order in which they were admitted, so that the last is the
 * youngest.
 *
 * All memory comes from sequences_open().
 */
#ifndef WORKER_SEQUENCES_H
#define WORKER_SEQUENCES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "worker/prefix_cache.h"
#include "worker/sampler.h"

enum sequence_state { SEQUENCE_FREE, SEQUENCE_WAITING, SEQUENCE_RUNNING, SEQUENCE_FINISHED };

struct sequence {
    uint64_t tag;
    int32_t *tokens; /* (context_max) prompt, then answer; the first known of them are set */
    struct page_chain chain; /* of its KV */
    uint32_t *expert_counts; /* (profile_cells) worker/expert_profile.h */
    struct sampling sampling;
    enum sequence_state state;
    bool ignore_eos;
    bool urgent;
    uint32_t prompt_count;
    uint32_t known_max; /* prompt_count + max_tokens */
    uint32_t known;
    uint32_t sampled;      /* answer tokens that were not given */
    uint32_t fed;          /* tokens whose KV is in the cache */
    uint32_t cached;       /* tokens of the prompt that the prefix cache had when it first ran */
    uint32_t rows;         /* that it has in the current step */
    bool decoding;         /* its row of the current step feeds a token it sampled before */
    int64_t submit_us;     /* times of the monotonic clock */
    int64_t first_step_us; /* 0: none yet */
    int64_t last_step_us;
    double prefill_us;
    double decode_us;
};

struct sequences {
    struct sequence *pool;     /* (pool_count) */
    struct sequence **running; /* (running_count), oldest first */
    struct sequence **waiting; /* (waiting_count), next first */
    int32_t *tokens;
    uint32_t *page_lists;
    uint32_t *expert_counts;
    struct prefix_cache cache;
    uint32_t pool_count;
    uint32_t running_count;
    uint32_t waiting_count;
};

struct sequences_shape {
    uint32_t count;
    uint32_t context_max; /* tokens of a sequence */
    uint32_t pages;
    bool prefix_cache;      /* share the pages of equal beginnings */
    uint32_t profile_cells; /* of a sequence; 0 is allowed */
};

bool sequences_open(struct sequences *sequences, struct sequences_shape shape, struct err *err);
void sequences_close(struct sequences *sequences); /* zeroed is allowed */

/* NULL: no such tag, or no free place. */
struct sequence *sequences_find(const struct sequences *sequences, uint64_t tag);
struct sequence *sequences_take(struct sequences *sequences);

/* The only place where a sequence changes its state. Leaving running lets its pages go. */
void sequences_move(struct sequences *sequences, struct sequence *sequence,
                    enum sequence_state state);

/* The sequence's rows of a step ran: their tokens are fed. */
void sequences_feed(struct sequences *sequences, struct sequence *sequence);

#endif
