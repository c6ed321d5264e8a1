/* SPDX-License-Identifier: Apache-2.0
 *
 * holders - which workers are likely to have the beginning of a request in their prefix caches.
 *
 * The scheduler sees no cache; it remembers what it sent where. For the blocks of a request's
 * beginning (prefix_chain) a table holds the last few slots that got them, and how much each of
 * these had got by then: what has been pushed out since, by as many tokens as the worker's memory
 * has, counts as forgotten (lru, as workers do it). Blocks that nobody asked for lately make room
 * for others, the end of a beginning before its start.
 *
 * A guess in both directions: it costs a prefill that is longer than expected, never an answer.
 * The table has one size, 10 MB, and nothing is allocated after holders_open(). One thread.
 */
#ifndef SCHEDULER_HOLDERS_H
#define SCHEDULER_HOLDERS_H

#include <stdbool.h>

#include "scheduler/prefix.h"

enum { HOLDERS_MAX = 8 }; /* of a block that are remembered */

struct holders;

struct holders *holders_open(uint32_t slots);
void holders_close(struct holders *holders); /* NULL is allowed */

/* A new worker in this slot: it holds nothing yet, and will hold this many tokens at most. */
void holders_reset(struct holders *holders, uint32_t slot, uint64_t tokens_max);
/* So many tokens that were not in its cache have come into it. */
void holders_grow(struct holders *holders, uint32_t slot, uint64_t tokens);
/* The slot gets a request that begins so. */
void holders_put(struct holders *holders, const struct prefix_chain *chain, uint32_t slot);

struct holder {
    uint32_t slot;
    uint32_t size; /* bytes of the chain's text that it is likely to have */
};

/* Those that are likely to have some of it, the most first; returns how many. */
uint32_t holders_find(const struct holders *holders, const struct prefix_chain *chain,
                      struct holder found[HOLDERS_MAX]);

/* Is the block with this key likely to be there, and where else? */
struct block_places {
    bool here, elsewhere;
};
struct block_places holders_places(const struct holders *holders, uint64_t key, uint32_t slot);

#endif
