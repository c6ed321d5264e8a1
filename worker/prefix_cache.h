/* SPDX-License-Identifier: Apache-2.0
 *
 * prefix_cache - which pages of the KV cache hold what, and who uses them.
 *
 * Batch jobs fill templates: their prompts begin alike. A full page is listed
 * in a tree: it is the child of the page before it and holds KV_PAGE_TOKENS
 * token ids, and the first pages of a tree belong to a salt (whoever may share).
 * A new sequence walks down from its salt and begins with the pages it finds,
 * which are computed already. A hash finds the child, but what is compared is
 * the parent, the salt and every id: a collision costs time, never a token.
 *
 *     free -> private -> coming -> ready, held -> ready, idle -> free
 *
 * A page is private while its sequence does not know all of its tokens, coming
 * (listed, not to be read) while it is computed, then ready: any number of
 * sequences hold it. When the last one lets go it stays, idle, until a page is
 * wanted and none is free: then the idle page that was let go first is reused.
 * A chain is let go from its end, so a page is always older than its parent, and
 * no page goes before its children. Two sequences may still compute the same
 * page at once; the one that is ready later gets the other's instead.
 *
 * Sharing is exact because numerics are batch-invariant: whoever computes a page
 * writes the same bits (tests/golden/test_invariance.c). Only full pages are
 * shared and a sequence writes behind its last full page, so no page is written
 * while others read it.
 *
 * Nothing is allocated after prefix_cache_open(); a page costs O(1) whenever it
 * is found, taken, listed or let go. One thread, the engine's.
 */
#ifndef WORKER_PREFIX_CACHE_H
#define WORKER_PREFIX_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "worker/kv_pages.h"

/* Equal salts share. Wide enough for a hash: 2^-128 is no probability that counts. */
struct prefix_salt {
    uint64_t words[2];
};

/* The pages of one sequence. ready <= listed <= count; zeroed but for tokens and pages at first. */
struct page_chain {
    const int32_t *tokens; /* the sequence's, at least KV_PAGE_TOKENS for each listed page */
    uint32_t *pages;       /* (pages of a context) the first count are held */
    struct prefix_salt salt;
    uint32_t count;
    uint32_t listed; /* of them are in the tree */
    uint32_t ready;  /* of those are computed */
    /* Where the last search ended, so that the next one goes on from there. */
    uint32_t found; /* pages */
    uint32_t found_last;
    uint64_t found_serial;
};

struct prefix_page {
    uint64_t serial; /* of its listing; 0: not listed */
    struct prefix_salt salt;
    uint32_t parent; /* PREFIX_NONE: a first page */
    uint32_t hash;
    uint32_t refs;                 /* sequences that hold it */
    uint32_t bucket_next;          /* PREFIX_NONE: the last */
    uint32_t idle_prev, idle_next; /* PREFIX_NONE: the first, the last */
    bool ready;
};

enum { PREFIX_NONE = UINT32_MAX };

struct prefix_cache {
    struct kv_pages pages;     /* the free ones */
    struct prefix_page *nodes; /* (pages.count); NULL: nothing is ever listed */
    int32_t *tokens;           /* (pages.count, KV_PAGE_TOKENS) of listed pages */
    uint32_t *buckets;         /* (bucket_mask + 1) */
    uint32_t bucket_mask;
    uint32_t idle_first; /* the next to be reused */
    uint32_t idle_last;
    uint32_t idle_count;
    uint32_t listed_count;
    uint64_t serial;
    uint64_t seed; /* of the hash: random, so that nobody can aim at one bucket */
    /* Totals. */
    int64_t lookup_tokens; /* known to sequences when they were admitted */
    int64_t hit_tokens;    /* of them, found */
    int64_t evictions;     /* idle pages that were reused */
};

/* All count pages are free. Disabled: the pages are only handed out and taken back. */
bool prefix_cache_open(struct prefix_cache *cache, uint32_t count, bool enabled, struct err *err);
void prefix_cache_close(struct prefix_cache *cache); /* zeroed is allowed */

/* Pages that can be had: free ones and idle ones. The others are held by sequences. */
uint32_t prefix_cache_available(const struct prefix_cache *cache);

/* Looks for the beginning of the chain's tokens, page_limit pages at most: chain->found. True: the
 * page behind what was found is coming, it pays to wait for it. Holds nothing. */
bool prefix_cache_search(const struct prefix_cache *cache, struct page_chain *chain,
                         uint32_t page_limit);
/* How many of the pages that were just found are idle: holding them takes them from the available
 * ones. */
uint32_t prefix_cache_found_idle(const struct prefix_cache *cache, const struct page_chain *chain);

/* An empty chain begins with the pages that a search just found; known tokens are what it was
 * searched for, for the totals. */
void prefix_cache_attach(struct prefix_cache *cache, struct page_chain *chain, uint32_t known);

/* Extends the chain to want pages, reusing idle ones; false, and nothing changed, when too few are
 * available. Pages whose tokens are all among the first known are listed as coming. */
bool prefix_cache_extend(struct prefix_cache *cache, struct page_chain *chain, uint32_t want,
                         uint32_t known);

/* The first fed tokens are computed: their full pages are ready, or replaced by equal ones that
 * were ready before. */
void prefix_cache_filled(struct prefix_cache *cache, struct page_chain *chain, uint32_t fed);

/* Lets all pages go: ready ones stay, idle, if nobody else holds them. */
void prefix_cache_release(struct prefix_cache *cache, struct page_chain *chain);

#endif
