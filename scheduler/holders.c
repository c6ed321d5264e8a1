/* SPDX-License-Identifier: Apache-2.0
 *
 * The table is set-associative: a key has one set of four entries, and the entry that was used
 * longest ago is replaced. That needs no list and forgets nearly as lru would.
 */
#include "scheduler/holders.h"

#include <stdlib.h>
#include <string.h>

#include "common/check.h"

/* 131,072 entries: the beginnings, 8 kB each, of 2,700 templates, or 60 MB of long prompts. */
enum { SETS = 1 << 15, WAYS = 4, PAGE_TOKENS = 16 };

struct block_holder {
    uint32_t slot;
    uint32_t page; /* the slot's counter when it got the block */
};

struct entry {
    uint64_t key;                             /* 0: empty */
    uint32_t used;                            /* by holders->uses; wraps, differences count */
    uint32_t count;                           /* of holders */
    struct block_holder holders[HOLDERS_MAX]; /* the latest first */
};

struct slot_cache {
    uint32_t page; /* pages that have come into it; wraps, differences count */
    uint32_t pages_max;
    uint32_t rest; /* tokens of the next page */
};

struct holders {
    struct entry (*sets)[WAYS]; /* (SETS) */
    struct slot_cache *slots;
    uint32_t slots_count;
    uint32_t uses;
};

struct holders *holders_open(uint32_t slots)
{
    struct holders *holders = calloc(1, sizeof *holders);

    CHECK(holders);
    holders->sets = calloc(SETS, sizeof *holders->sets);
    holders->slots = calloc(slots, sizeof *holders->slots);
    CHECK(holders->sets);
    CHECK(holders->slots);
    holders->slots_count = slots;
    return holders;
}

void holders_close(struct holders *holders)
{
    if (!holders)
        return;
    free(holders->sets);
    free(holders->slots);
    free(holders);
}

void holders_reset(struct holders *holders, uint32_t slot, uint64_t tokens_max)
{
    struct slot_cache *cache = &holders->slots[slot];
    uint64_t pages = tokens_max / PAGE_TOKENS;

    CHECK(slot < holders->slots_count);
    /* Whatever the predecessor got is older than its memory and so forgotten. */
    cache->page += cache->pages_max + 1;
    cache->pages_max = pages < UINT32_MAX / 4 ? (uint32_t)pages : UINT32_MAX / 4;
}

void holders_grow(struct holders *holders, uint32_t slot, uint64_t tokens)
{
    struct slot_cache *cache = &holders->slots[slot];

    CHECK(slot < holders->slots_count);
    tokens += cache->rest;
    cache->page += (uint32_t)(tokens / PAGE_TOKENS);
    cache->rest = (uint32_t)(tokens % PAGE_TOKENS);
}

static bool still_there(const struct holders *holders, const struct block_holder *holder)
{
    const struct slot_cache *cache = &holders->slots[holder->slot];

    return cache->page - holder->page <= cache->pages_max;
}

static struct entry *set_of(const struct holders *holders, uint64_t key)
{
    return holders->sets[key % SETS];
}

static struct entry *find(const struct holders *holders, uint64_t key)
{
    struct entry *set = set_of(holders, key);

    for (uint32_t way = 0; way < WAYS; way++)
        if (set[way].key == key)
            return &set[way];
    return NULL;
}

static struct entry *find_or_replace(struct holders *holders, uint64_t key)
{
    struct entry *entry = find(holders, key), *set = set_of(holders, key);

    if (entry)
        return entry;
    entry = set;
    for (uint32_t way = 1; way < WAYS; way++)
        if (entry->key &&
            (!set[way].key || holders->uses - set[way].used > holders->uses - entry->used))
            entry = &set[way];
    *entry = (struct entry){.key = key};
    return entry;
}

static void put_first(struct entry *entry, struct block_holder holder)
{
    uint32_t at = 0;

    while (at < entry->count && entry->holders[at].slot != holder.slot)
        at++;
    if (at == entry->count && entry->count < HOLDERS_MAX)
        entry->count++;
    at = at < HOLDERS_MAX ? at : HOLDERS_MAX - 1;
    memmove(entry->holders + 1, entry->holders, at * sizeof holder);
    entry->holders[0] = holder;
}

void holders_put(struct holders *holders, const struct prefix_chain *chain, uint32_t slot)
{
    const struct block_holder holder = {slot, holders->slots[slot].page};

    CHECK(slot < holders->slots_count);
    /* From the end, so that the beginning is the most recently used. */
    for (uint32_t i = chain->count; i-- > 0;) {
        struct entry *entry = find_or_replace(holders, chain->keys[i]);
        entry->used = ++holders->uses;
        put_first(entry, holder);
    }
}

static uint32_t add(const struct holders *holders, const struct entry *entry, uint32_t size,
                    struct holder found[HOLDERS_MAX], uint32_t count)
{
    for (uint32_t i = 0; i < entry->count && count < HOLDERS_MAX; i++) {
        const struct block_holder *holder = &entry->holders[i];
        uint32_t at = 0;
        while (at < count && found[at].slot != holder->slot)
            at++;
        if (at == count && still_there(holders, holder))
            found[count++] = (struct holder){holder->slot, size};
    }
    return count;
}

uint32_t holders_find(const struct holders *holders, const struct prefix_chain *chain,
                      struct holder found[HOLDERS_MAX])
{
    const struct entry *entries[PREFIX_BLOCKS_MAX];
    uint32_t known = 0, count = 0;

    while (known < chain->count && (entries[known] = find(holders, chain->keys[known])))
        known++;
    while (known-- > 0 && count < HOLDERS_MAX)
        count = add(holders, entries[known], chain->ends[known], found, count);
    return count;
}

struct block_places holders_places(const struct holders *holders, uint64_t key, uint32_t slot)
{
    const struct entry *entry = find(holders, key);
    struct block_places places = {0};

    for (uint32_t i = 0; entry && i < entry->count; i++) {
        bool here = entry->holders[i].slot == slot;
        bool there = still_there(holders, &entry->holders[i]);
        places.here |= here && there;
        places.elsewhere |= !here && there;
    }
    return places;
}
