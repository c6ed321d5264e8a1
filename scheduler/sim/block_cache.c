/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/block_cache.h"

#include <stdlib.h>

#include "common/check.h"

bool block_cache_init(struct block_cache *cache, uint32_t limit, uint32_t block_tokens,
                      uint8_t *everywhere, struct err *err)
{
    *cache = (struct block_cache){.blocks = calloc((size_t)limit + 1, sizeof *cache->blocks),
                                  .tokens = calloc((size_t)limit + 1, sizeof *cache->tokens),
                                  .limit = limit,
                                  .block_tokens = block_tokens,
                                  .everywhere = everywhere};
    if (!cache->blocks || !cache->tokens)
        return err_set(err, ERR_FATAL, "simulated worker: out of memory for %u blocks", limit);
    cache->blocks[limit].prev = cache->blocks[limit].next = limit;
    return true;
}

void block_cache_free(struct block_cache *cache)
{
    free(cache->blocks);
    free(cache->tokens);
    *cache = (struct block_cache){0};
}

static uint16_t size_at(const struct block_cache *cache, const struct blocks *prompt, uint32_t i)
{
    uint32_t before = i * cache->block_tokens, rest = prompt->tokens - before;

    return (uint16_t)(rest < cache->block_tokens ? rest : cache->block_tokens);
}

uint32_t block_cache_match(const struct block_cache *cache, const struct blocks *prompt)
{
    uint32_t i = 0;

    while (i < prompt->count && (cache->everywhere ? cache->everywhere[prompt->ids[i]]
                                                   : cache->blocks[prompt->ids[i]].computed))
        i++;
    return i < prompt->count ? i * cache->block_tokens : prompt->tokens;
}

uint32_t block_cache_need(const struct block_cache *cache, const struct blocks *prompt)
{
    uint32_t tokens = 0;

    for (uint32_t i = 0; i < prompt->count; i++)
        if (cache->blocks[prompt->ids[i]].users == 0)
            tokens += size_at(cache, prompt, i);
    return tokens;
}

static void unlink_idle(struct block_cache *cache, uint32_t id)
{
    struct block *block = &cache->blocks[id];

    cache->blocks[block->prev].next = block->next;
    cache->blocks[block->next].prev = block->prev;
    cache->idle_tokens -= cache->tokens[id];
}

static void link_idle(struct block_cache *cache, uint32_t id)
{
    struct block *block = &cache->blocks[id], *head = &cache->blocks[cache->limit];

    block->prev = head->prev;
    block->next = cache->limit;
    cache->blocks[head->prev].next = id;
    head->prev = id;
    cache->idle_tokens += cache->tokens[id];
}

void block_cache_hold(struct block_cache *cache, const struct blocks *prompt, uint32_t request)
{
    for (uint32_t i = 0; i < prompt->count; i++) {
        uint32_t id = prompt->ids[i];
        struct block *block = &cache->blocks[id];
        if (block->users++ > 0)
            continue;
        if (block->computed)
            unlink_idle(cache, id);
        block->owner = request;
        cache->tokens[id] = size_at(cache, prompt, i);
        cache->held_tokens += cache->tokens[id];
    }
}

/* From the end, so that the beginning is the most recently used. */
void block_cache_let_go(struct block_cache *cache, const struct blocks *prompt, uint32_t request)
{
    for (uint32_t i = prompt->count; i-- > 0;) {
        uint32_t id = prompt->ids[i];
        struct block *block = &cache->blocks[id];
        CHECK(block->users > 0);
        if (block->owner == request)
            block->owner = BLOCK_NOBODY;
        if (--block->users > 0)
            continue;
        cache->held_tokens -= cache->tokens[id];
        if (block->computed)
            link_idle(cache, id);
    }
}

bool block_cache_is_coming(struct block_cache *cache, const struct blocks *prompt, uint32_t token,
                           uint32_t request)
{
    struct block *block;

    if (token >= prompt->tokens)
        return false;
    block = &cache->blocks[prompt->ids[token / cache->block_tokens]];
    if (block->computed)
        return false;
    if (block->owner == BLOCK_NOBODY)
        block->owner = request;
    return block->owner != request;
}

void block_cache_compute(struct block_cache *cache, const struct blocks *prompt, uint32_t from,
                         uint32_t to)
{
    if (prompt->count == 0)
        return;
    for (uint32_t i = from / cache->block_tokens; i < prompt->count; i++) {
        if (i * cache->block_tokens + size_at(cache, prompt, i) > to)
            return;
        cache->blocks[prompt->ids[i]].computed = 1;
        if (cache->everywhere)
            cache->everywhere[prompt->ids[i]] = 1;
    }
}

void block_cache_shrink(struct block_cache *cache, uint64_t idle_tokens_max)
{
    while (cache->idle_tokens > idle_tokens_max) {
        uint32_t id = cache->blocks[cache->limit].next;
        unlink_idle(cache, id);
        cache->blocks[id].computed = 0;
    }
}
