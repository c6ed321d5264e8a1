/* SPDX-License-Identifier: Apache-2.0
 *
 * block_cache - the prefix cache of a simulated worker, in the blocks that a trace names.
 *
 * What a running sequence's prompt consists of is held, once however many hold it. A block that
 * was computed stays when the last one lets it go, idle, until its memory is needed: the least
 * recently used one goes first, the end of a prompt before its beginning. A sequence starts behind
 * its leading blocks that are computed, and waits for those that another one is computing. It is
 * what worker/prefix_cache.h does, coarser, and answers are left out, since a trace does not say
 * which blocks they become.
 *
 * everywhere: the same with one unbounded cache of results beside all nodes, as a ceiling.
 * Ids index plain arrays: 18 bytes for each id of the trace. One thread.
 */
#ifndef SCHEDULER_SIM_BLOCK_CACHE_H
#define SCHEDULER_SIM_BLOCK_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

/* A prompt: ids of blocks of block_tokens, the last of them in part. */
struct blocks {
    const uint32_t *ids;
    uint32_t count; /* 0: unknown */
    uint32_t tokens;
};

enum { BLOCK_NOBODY = UINT32_MAX };

struct block {
    uint32_t owner;      /* who held it first and will compute it; BLOCK_NOBODY: it has left */
    uint32_t prev, next; /* among the idle ones, from the least recently used on */
    uint32_t users : 31; /* sequences that hold it */
    uint32_t computed : 1;
};

struct block_cache {
    struct block *blocks; /* (limit + 1); the last is the head of the ring of idle ones */
    uint16_t *tokens;     /* (limit) of each, once seen */
    uint32_t limit;
    uint32_t block_tokens;
    uint64_t held_tokens; /* of blocks with users */
    uint64_t idle_tokens;
    uint8_t *everywhere; /* (limit) computed by any node; the caller's; NULL: own blocks only */
};

/* limit 0: no prompt will have blocks. block_tokens is at most 65535. */
bool block_cache_init(struct block_cache *cache, uint32_t limit, uint32_t block_tokens,
                      uint8_t *everywhere, struct err *err);
void block_cache_free(struct block_cache *cache);

/* Tokens of the leading blocks that are computed. */
uint32_t block_cache_match(const struct block_cache *cache, const struct blocks *prompt);
/* Tokens of memory that it would newly hold. */
uint32_t block_cache_need(const struct block_cache *cache, const struct blocks *prompt);
/* request: whose prompt it is, below BLOCK_NOBODY. */
void block_cache_hold(struct block_cache *cache, const struct blocks *prompt, uint32_t request);
void block_cache_let_go(struct block_cache *cache, const struct blocks *prompt, uint32_t request);
/* Is the block at this token of a prompt that the request holds another one's to compute? If nobody
 * is going to, it is the request's from now on. */
bool block_cache_is_coming(struct block_cache *cache, const struct blocks *prompt, uint32_t token,
                           uint32_t request);
/* The prompt's tokens [from, to) have just been computed; it is held. */
void block_cache_compute(struct block_cache *cache, const struct blocks *prompt, uint32_t from,
                         uint32_t to);
/* Gives up idle blocks until no more than this many tokens are. */
void block_cache_shrink(struct block_cache *cache, uint64_t idle_tokens_max);

#endif
