/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/prefix_cache.h"

#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "common/ids.h"

bool prefix_cache_open(struct prefix_cache *cache, uint32_t count, bool enabled, struct err *err)
{
    uint32_t buckets = 1;

    *cache = (struct prefix_cache){.idle_first = PREFIX_NONE, .idle_last = PREFIX_NONE};
    if (!kv_pages_open(&cache->pages, count, err))
        return false;
    if (!enabled)
        return true;
    while (buckets < count && buckets < UINT32_C(1) << 31)
        buckets *= 2;
    cache->bucket_mask = buckets - 1;
    cache->nodes = calloc((size_t)count + 1, sizeof *cache->nodes);
    cache->tokens = calloc((size_t)count + 1, KV_PAGE_TOKENS * sizeof *cache->tokens);
    cache->buckets = malloc(buckets * sizeof *cache->buckets);
    if (!cache->nodes || !cache->tokens || !cache->buckets) {
        prefix_cache_close(cache);
        return err_set(err, ERR_FATAL, "no memory for the prefixes of %u KV pages", count);
    }
    memset(cache->buckets, 0xff, buckets * sizeof *cache->buckets); /* PREFIX_NONE */
    random_bytes(&cache->seed, sizeof cache->seed);
    return true;
}

void prefix_cache_close(struct prefix_cache *cache)
{
    kv_pages_close(&cache->pages);
    free(cache->nodes);
    free(cache->tokens);
    free(cache->buckets);
    *cache = (struct prefix_cache){0};
}

uint32_t prefix_cache_available(const struct prefix_cache *cache)
{
    return cache->pages.free_count + cache->idle_count;
}

/* ---- the tree ---- */

/* Multiplication by an odd number spreads to the high bits, the shift brings them back. */
static uint64_t mix(uint64_t value, uint64_t word)
{
    value = (value ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return value ^ value >> 32;
}

static uint32_t hash_of(const struct prefix_cache *cache, uint32_t parent, struct prefix_salt salt,
                        const int32_t *tokens)
{
    uint64_t words[KV_PAGE_TOKENS / 2];
    uint64_t value = mix(mix(mix(cache->seed, parent), salt.words[0]), salt.words[1]);

    memcpy(words, tokens, sizeof words);
    for (uint32_t i = 0; i < KV_PAGE_TOKENS / 2; i++)
        value = mix(value, words[i]);
    return (uint32_t)value;
}

static int32_t *tokens_of(const struct prefix_cache *cache, uint32_t page)
{
    return cache->tokens + (size_t)page * KV_PAGE_TOKENS;
}

/* The listed page that holds these tokens behind parent, or PREFIX_NONE. */
static uint32_t find(const struct prefix_cache *cache, uint32_t hash, uint32_t parent,
                     struct prefix_salt salt, const int32_t *tokens)
{
    uint32_t page = cache->buckets[hash & cache->bucket_mask];

    for (; page != PREFIX_NONE; page = cache->nodes[page].bucket_next) {
        const struct prefix_page *node = &cache->nodes[page];

        if (node->hash == hash && node->parent == parent && node->salt.words[0] == salt.words[0] &&
            node->salt.words[1] == salt.words[1] &&
            memcmp(tokens_of(cache, page), tokens, KV_PAGE_TOKENS * sizeof *tokens) == 0)
            return page;
    }
    return PREFIX_NONE;
}

static void unlist(struct prefix_cache *cache, uint32_t page)
{
    struct prefix_page *node = &cache->nodes[page];
    uint32_t *link = &cache->buckets[node->hash & cache->bucket_mask];

    while (*link != page) {
        CHECK(*link != PREFIX_NONE);
        link = &cache->nodes[*link].bucket_next;
    }
    *link = node->bucket_next;
    node->serial = 0;
    cache->listed_count--;
}

/* ---- holding and letting go ---- */

static void idle_remove(struct prefix_cache *cache, uint32_t page)
{
    const struct prefix_page *node = &cache->nodes[page];

    if (node->idle_prev == PREFIX_NONE)
        cache->idle_first = node->idle_next;
    else
        cache->nodes[node->idle_prev].idle_next = node->idle_next;
    if (node->idle_next == PREFIX_NONE)
        cache->idle_last = node->idle_prev;
    else
        cache->nodes[node->idle_next].idle_prev = node->idle_prev;
    cache->idle_count--;
}

static void idle_append(struct prefix_cache *cache, uint32_t page)
{
    struct prefix_page *node = &cache->nodes[page];

    node->idle_prev = cache->idle_last;
    node->idle_next = PREFIX_NONE;
    if (cache->idle_last == PREFIX_NONE)
        cache->idle_first = page;
    else
        cache->nodes[cache->idle_last].idle_next = page;
    cache->idle_last = page;
    cache->idle_count++;
}

static void hold(struct prefix_cache *cache, uint32_t page)
{
    if (cache->nodes[page].refs++ == 0)
        idle_remove(cache, page);
}

static void let_go(struct prefix_cache *cache, uint32_t page)
{
    CHECK(cache->nodes[page].refs > 0);

    if (--cache->nodes[page].refs == 0)
        idle_append(cache, page);
}

static void evict(struct prefix_cache *cache)
{
    const uint32_t page = cache->idle_first;

    CHECK(page != PREFIX_NONE);
    idle_remove(cache, page);
    unlist(cache, page);
    kv_pages_give(&cache->pages, &page, 1);
    cache->evictions++;
}

/* ---- chains ---- */

/* Lists the chain's next page, unless an equal one is listed: if that is ready and so is this one,
 * the chain gets it in place of its own. False: the page stays private. */
static bool list(struct prefix_cache *cache, struct page_chain *chain, bool ready)
{
    const uint32_t at = chain->listed;
    const int32_t *tokens = chain->tokens + (size_t)at * KV_PAGE_TOKENS;
    const uint32_t parent = at == 0 ? PREFIX_NONE : chain->pages[at - 1];
    const uint32_t page = chain->pages[at];
    struct prefix_page *node;
    uint32_t hash;
    uint32_t twin;

    if (!cache->nodes)
        return false;
    hash = hash_of(cache, parent, chain->salt, tokens);
    twin = find(cache, hash, parent, chain->salt, tokens);
    if (twin != PREFIX_NONE) {
        if (!ready || !cache->nodes[twin].ready)
            return false;
        hold(cache, twin);
        kv_pages_give(&cache->pages, &page, 1);
        chain->pages[at] = twin;
        chain->listed++;
        return true;
    }
    node = &cache->nodes[page];
    *node = (struct prefix_page){
        .serial = ++cache->serial,
        .salt = chain->salt,
        .parent = parent,
        .hash = hash,
        .refs = 1,
        .bucket_next = cache->buckets[hash & cache->bucket_mask],
        .ready = ready,
    };
    cache->buckets[hash & cache->bucket_mask] = page;
    memcpy(tokens_of(cache, page), tokens, KV_PAGE_TOKENS * sizeof *tokens);
    cache->listed_count++;
    chain->listed++;
    return true;
}

bool prefix_cache_search(const struct prefix_cache *cache, struct page_chain *chain,
                         uint32_t page_limit)
{
    if (!cache->nodes)
        return false;
    /* As long as the last page is where it was, so are those before it. */
    if (chain->found > 0 && cache->nodes[chain->found_last].serial != chain->found_serial)
        chain->found = 0;
    while (chain->found < page_limit) {
        const int32_t *tokens = chain->tokens + (size_t)chain->found * KV_PAGE_TOKENS;
        const uint32_t parent = chain->found == 0 ? PREFIX_NONE : chain->found_last;
        const uint32_t hash = hash_of(cache, parent, chain->salt, tokens);
        const uint32_t page = find(cache, hash, parent, chain->salt, tokens);

        if (page == PREFIX_NONE)
            return false;
        if (!cache->nodes[page].ready)
            return true;
        chain->found++;
        chain->found_last = page;
        chain->found_serial = cache->nodes[page].serial;
    }
    return false;
}

uint32_t prefix_cache_found_idle(const struct prefix_cache *cache, const struct page_chain *chain)
{
    uint32_t page = chain->found_last;
    uint32_t idle = 0;

    /* Whoever holds a page holds those before it, so the idle ones are the last. */
    while (idle < chain->found && cache->nodes[page].refs == 0) {
        page = cache->nodes[page].parent;
        idle++;
    }
    return idle;
}

void prefix_cache_attach(struct prefix_cache *cache, struct page_chain *chain, uint32_t known)
{
    uint32_t page = chain->found_last;

    CHECK(chain->count == 0);
    if (!cache->nodes)
        return;
    for (uint32_t i = chain->found; i > 0; i--) {
        chain->pages[i - 1] = page;
        hold(cache, page);
        page = cache->nodes[page].parent;
    }
    chain->count = chain->found;
    chain->listed = chain->found;
    chain->ready = chain->found;
    cache->lookup_tokens += known;
    cache->hit_tokens += (int64_t)chain->found * KV_PAGE_TOKENS;
}

bool prefix_cache_extend(struct prefix_cache *cache, struct page_chain *chain, uint32_t want,
                         uint32_t known)
{
    if (want > chain->count) {
        if (want - chain->count > prefix_cache_available(cache))
            return false;
        while (cache->pages.free_count < want - chain->count)
            evict(cache);
        CHECK(kv_pages_take(&cache->pages, chain->pages, chain->count, want));
        chain->count = want;
    }
    while (chain->listed < chain->count && known / KV_PAGE_TOKENS > chain->listed)
        if (!list(cache, chain, false))
            break;
    return true;
}

void prefix_cache_filled(struct prefix_cache *cache, struct page_chain *chain, uint32_t fed)
{
    CHECK(fed <= (uint64_t)chain->count * KV_PAGE_TOKENS);

    while (chain->ready < fed / KV_PAGE_TOKENS) {
        if (chain->ready < chain->listed)
            cache->nodes[chain->pages[chain->ready]].ready = true;
        else if (!list(cache, chain, true))
            break; /* another sequence is at the same page; it is looked for again later */
        chain->ready++;
    }
}

void prefix_cache_release(struct prefix_cache *cache, struct page_chain *chain)
{
    while (chain->count > 0) {
        const uint32_t page = chain->pages[--chain->count];

        if (chain->count < chain->ready) {
            let_go(cache, page);
            continue;
        }
        if (chain->count < chain->listed)
            unlist(cache, page);
        kv_pages_give(&cache->pages, &page, 1);
    }
    chain->listed = 0;
    chain->ready = 0;
}
