/* SPDX-License-Identifier: Apache-2.0
 *
 * The books of sequences, pages and prefixes by dice, against a naive model:
 * what a page holds is the hash of everything before it, written by the rows of
 * each step. Whatever is admitted, passed over, preempted, removed or reused,
 * every row attends to its own beginning, no page is in two places, and none
 * gets lost.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "worker/step_plan.h"

enum { PAGES = 24, SEQS = 5, HELD = 12, CONTEXT = 8 * KV_PAGE_TOKENS, STEPS = 4000, SEEDS = 40 };

struct page {
    uint64_t kv[KV_PAGE_TOKENS]; /* hash of salt and tokens, this one included */
    uint32_t idle_since;         /* the operation that made it idle */
    uint64_t serial;             /* as it was before the step */
    bool idle;                   /* the same */
};

static struct sequences sequences;
static struct step_plan plan;
static struct page pages[PAGES];
static uint32_t operation;
static uint64_t dice;
static uint64_t seed;
static struct {
    uint32_t preempted, passed, twins, removed, finished;
} seen;

static uint32_t roll(uint32_t sides)
{
    dice = dice * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(dice >> 33) % sides;
}

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("seed %llu, operation %u, line %d: %s", (unsigned long long)seed, operation,  \
                     __LINE__, #condition);                                                        \
    } while (0)

static uint64_t hash_step(uint64_t hash, int32_t token)
{
    hash = (hash ^ (uint32_t)token) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

/* Of the first count tokens. */
static uint64_t hash_of(const struct sequence *sequence, uint32_t count)
{
    uint64_t hash = 77 + sequence->chain.salt.words[1];

    for (uint32_t i = 0; i < count; i++)
        hash = hash_step(hash, sequence->tokens[i]);
    return hash;
}

/* Few templates, few variants of each page, two tenants: equal beginnings of every length. */
static void add(uint64_t tag)
{
    struct sequence *sequence = sequences_take(&sequences);
    const uint32_t template = roll(3);
    const uint32_t like = roll(6);

    if (!sequence)
        return;
    sequence->tag = tag;
    sequence->prompt_count = 1 + roll(10) * KV_PAGE_TOKENS / 2;
    sequence->known = sequence->prompt_count;
    sequence->known_max = sequence->known + 1 + roll(CONTEXT - sequence->known - 1);
    sequence->sampled = 0;
    sequence->fed = 0;
    sequence->cached = 0;
    sequence->first_step_us = 0;
    sequence->chain.found = 0;
    sequence->chain.salt = (struct prefix_salt){{0, roll(8) == 0}};
    for (uint32_t i = 0; i < sequence->known; i++)
        sequence->tokens[i] = (int32_t)(i / KV_PAGE_TOKENS > like ? roll(50) : 100 * template + i);
    sequences_move(&sequences, sequence, SEQUENCE_WAITING);
}

/* The next of the naive model's tokens: those who know the same say the same, mostly. */
static int32_t say(const struct sequence *sequence)
{
    return roll(40) == 0 ? (int32_t)roll(50) : (int32_t)(hash_of(sequence, sequence->known) % 3);
}

/* Is some ready page there that holds the first count tokens? */
static bool has_ready(const struct sequence *sequence, uint32_t count)
{
    const uint64_t hash = hash_of(sequence, count);

    for (uint32_t p = 0; p < PAGES; p++) {
        const struct prefix_page *node = &sequences.cache.nodes[p];

        if (node->serial > 0 && node->serial == pages[p].serial && node->ready &&
            pages[p].kv[KV_PAGE_TOKENS - 1] == hash)
            return true;
    }
    return false;
}

static void remember(void)
{
    for (uint32_t p = 0; p < PAGES; p++) {
        const struct prefix_page *node = &sequences.cache.nodes[p];
        bool idle = node->serial > 0 && node->refs == 0;

        if (idle && (!pages[p].idle || pages[p].serial != node->serial))
            pages[p].idle_since = operation;
        pages[p].idle = idle;
        pages[p].serial = node->serial;
    }
}

/* Rows read what is before them and write themselves; nobody else looks at a written page. */
static void run_rows(void)
{
    uint32_t writers[PAGES] = {0};
    uint32_t holders[PAGES] = {0};

    for (uint32_t i = 0; i < plan.n_seqs; i++) {
        const struct sequence *sequence = plan.seqs[i];
        const uint32_t *table = plan.pages + i * plan.pages_stride;
        const uint32_t end = plan.first_position[i] + plan.seq_rows[i];
        uint64_t hash = hash_of(sequence, 0);

        REQUIRE(plan.first_position[i] < sequence->known);
        for (uint32_t k = 0; k < end; k++) {
            uint64_t *kv = &pages[table[k / KV_PAGE_TOKENS]].kv[k % KV_PAGE_TOKENS];

            hash = hash_step(hash, sequence->tokens[k]);
            if (k < plan.first_position[i])
                REQUIRE(*kv == hash);
            else
                *kv = hash;
            if (k == end - 1 || k % KV_PAGE_TOKENS == KV_PAGE_TOKENS - 1) {
                holders[table[k / KV_PAGE_TOKENS]]++;
                writers[table[k / KV_PAGE_TOKENS]] += k >= plan.first_position[i];
            }
        }
    }
    for (uint32_t p = 0; p < PAGES; p++)
        REQUIRE(writers[p] == 0 || holders[p] == 1);
}

/* Of those admitted now: they began behind the longest chain that was there. */
static void check_admissions(const bool *was_running)
{
    for (uint32_t i = 0; i < sequences.running_count; i++) {
        const struct sequence *sequence = sequences.running[i];
        const uint32_t next = sequence->fed + KV_PAGE_TOKENS;

        if (was_running[sequence - sequences.pool])
            continue;
        REQUIRE(sequence->fed % KV_PAGE_TOKENS == 0);
        REQUIRE(next >= sequence->known || !has_ready(sequence, next));
    }
}

static uint32_t count_holders(uint32_t page, uint32_t *private)
{
    uint32_t holders = 0;

    for (uint32_t i = 0; i < sequences.running_count; i++) {
        const struct page_chain *chain = &sequences.running[i]->chain;

        for (uint32_t k = 0; k < chain->count; k++) {
            holders += chain->pages[k] == page;
            *private += chain->pages[k] == page && k >= chain->listed;
        }
    }
    return holders;
}

static void check_page(uint32_t page, uint32_t free)
{
    const struct prefix_page *node = &sequences.cache.nodes[page];
    const uint32_t parent = node->parent;
    uint32_t private = 0;
    const uint32_t holders = count_holders(page, &private);

    if (node->serial == 0) {
        REQUIRE(free + holders == 1 && private == holders);
        return;
    }
    REQUIRE(free == 0 && private == 0);
    REQUIRE(node->refs == holders);
    REQUIRE(node->ready || holders == 1);
    REQUIRE(parent == PREFIX_NONE || (sequences.cache.nodes[parent].serial > 0 &&
                                      sequences.cache.nodes[parent].serial < node->serial &&
                                      sequences.cache.nodes[parent].refs >= node->refs));
    if (node->ready) {
        uint64_t hash =
            parent == PREFIX_NONE ? 77 + node->salt.words[1] : pages[parent].kv[KV_PAGE_TOKENS - 1];

        for (uint32_t i = 0; i < KV_PAGE_TOKENS; i++) {
            hash = hash_step(hash, sequences.cache.tokens[page * KV_PAGE_TOKENS + i]);
            REQUIRE(pages[page].kv[i] == hash);
        }
    }
}

static void check_books(void)
{
    const struct prefix_cache *cache = &sequences.cache;
    uint32_t free[PAGES] = {0};
    uint32_t idle = 0;
    uint32_t listed = 0;
    uint32_t since = 0;

    for (uint32_t i = 0; i < cache->pages.free_count; i++)
        free[cache->pages.free[i]]++;
    for (uint32_t p = 0; p < PAGES; p++) {
        check_page(p, free[p]);
        idle += cache->nodes[p].serial > 0 && cache->nodes[p].refs == 0;
        listed += cache->nodes[p].serial > 0;
    }
    REQUIRE(idle == cache->idle_count && listed == cache->listed_count);
    remember();
    for (uint32_t p = cache->idle_first; p != PREFIX_NONE; p = cache->nodes[p].idle_next) {
        REQUIRE(pages[p].idle_since >= since);
        since = pages[p].idle_since;
        idle--;
    }
    REQUIRE(idle == 0);
}

/* What was reused was idle for longer than any page that still is. */
static void check_evictions(void)
{
    uint32_t newest = 0;
    uint32_t oldest = UINT32_MAX;

    for (uint32_t p = 0; p < PAGES; p++) {
        const struct prefix_page *node = &sequences.cache.nodes[p];

        if (!pages[p].idle)
            continue;
        if (node->serial != pages[p].serial)
            newest = pages[p].idle_since > newest ? pages[p].idle_since : newest;
        else if (node->refs == 0)
            oldest = pages[p].idle_since < oldest ? pages[p].idle_since : oldest;
    }
    REQUIRE(newest <= oldest);
}

static void end_step(void)
{
    for (uint32_t i = 0; i < plan.n_seqs; i++) {
        struct sequence *sequence = plan.seqs[i];
        uint32_t before[CONTEXT / KV_PAGE_TOKENS];

        memcpy(before, sequence->chain.pages, sizeof before);
        sequences_feed(&sequences, sequence);
        for (uint32_t k = 0; k < sequence->chain.count; k++)
            seen.twins += before[k] != sequence->chain.pages[k];
        sequence->first_step_us = 1;
    }
    remember(); /* a twin may have been idle */
    for (uint32_t i = 0; i < plan.n_logits; i++) {
        struct sequence *sequence = plan.sampled[i];

        sequence->tokens[sequence->known] = say(sequence);
        sequence->known++;
        sequence->sampled++;
        if (sequence->known < sequence->known_max)
            continue;
        sequences_move(&sequences, sequence, SEQUENCE_FINISHED);
        sequences_move(&sequences, sequence, SEQUENCE_FREE);
        seen.finished++;
    }
}

static void step(uint32_t batch)
{
    bool was_running[HELD] = {false};
    uint32_t preempted;

    for (uint32_t i = 0; i < sequences.running_count; i++)
        was_running[sequences.running[i] - sequences.pool] = true;
    preempted = step_plan_make(&plan, &sequences, (struct step_sizes){.batch = batch});
    seen.preempted += preempted;
    if (preempted == 0)
        check_evictions();
    remember(); /* who is held now may be idle again after the step */
    for (uint32_t i = 0; i < sequences.waiting_count; i++)
        seen.passed += prefix_cache_search(&sequences.cache, &sequences.waiting[i]->chain,
                                           (sequences.waiting[i]->known - 1) / KV_PAGE_TOKENS);
    check_admissions(was_running);
    REQUIRE(plan.n_rows > 0 || sequences.running_count + sequences.waiting_count == 0);
    run_rows();
    end_step();
}

static void drain(void)
{
    for (uint32_t i = 0; sequences.running_count + sequences.waiting_count > 0; i++) {
        REQUIRE(i < HELD * CONTEXT); /* everybody ends some day */
        operation++;
        step(SEQS);
        check_books();
    }
    REQUIRE(prefix_cache_available(&sequences.cache) == PAGES);
}

static void run(void)
{
    uint64_t tag = 0;

    for (uint32_t i = 0; i < STEPS; i++) {
        const uint32_t kind = roll(16);

        operation++;
        if (kind < 3)
            for (uint32_t k = roll(4); k < 4; k++)
                add(++tag);
        if (kind == 3) {
            struct sequence *sequence = &sequences.pool[roll(HELD)];

            seen.removed += sequence->state != SEQUENCE_FREE;
            if (sequence->state != SEQUENCE_FREE)
                sequences_move(&sequences, sequence, SEQUENCE_FREE);
        }
        if (kind > 3)
            step(roll(4) == 0 ? 1 + roll(SEQS) : SEQS);
        check_books();
    }
    drain();
}

static void test_books(void **state)
{
    const struct step_limits limits = {
        .seqs_max = SEQS, .chunk_tokens = 40, .context_max = CONTEXT};
    struct err err;

    (void)state;
    for (seed = 1; seed <= SEEDS; seed++) {
        const struct sequences_shape shape = {
            .count = HELD, .context_max = CONTEXT, .pages = PAGES, .prefix_cache = true};

        dice = seed;
        operation = 0;
        memset(pages, 0, sizeof pages);
        memset(&seen, 0, sizeof seen);
        assert_true(sequences_open(&sequences, shape, &err));
        assert_true(step_plan_open(&plan, limits, &err));
        run();
        /* The dice must have come to all of it. */
        REQUIRE(seen.finished > 100 && seen.removed > 20 && seen.preempted > 0 && seen.passed > 0);
        REQUIRE(seen.twins > 0 && sequences.cache.hit_tokens > 0 && sequences.cache.evictions > 0);
        step_plan_close(&plan);
        sequences_close(&sequences);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_books)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
