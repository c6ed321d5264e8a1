/* SPDX-License-Identifier: Apache-2.0
 *
 * The prefix cache of a simulated worker, in blocks of 10 tokens.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "scheduler/sim/block_cache.h"
#include "scheduler/sim/random.h"

enum { IDS = 64, BLOCK = 10 };

static struct blocks prompt_of(const uint32_t *ids, uint32_t tokens)
{
    return (struct blocks){ids, (tokens + BLOCK - 1) / BLOCK, tokens};
}

static void open_cache(struct block_cache *cache)
{
    assert_true(block_cache_init(cache, IDS, BLOCK, NULL, &(struct err){0}));
}

static void held_once_and_found_later(void **state)
{
    static const uint32_t ids[] = {1, 2, 3}, others[] = {1, 2, 4};
    const struct blocks a = prompt_of(ids, 25), b = prompt_of(others, 30);
    struct block_cache cache;

    (void)state;
    open_cache(&cache);
    assert_int_equal(block_cache_need(&cache, &a), 25);
    block_cache_hold(&cache, &a, 1);
    assert_int_equal(cache.held_tokens, 25);
    assert_int_equal(block_cache_need(&cache, &b), 10);
    /* 19 tokens are one block and a part of the second. */
    block_cache_compute(&cache, &a, 0, 19);
    assert_int_equal(block_cache_match(&cache, &b), 10);
    block_cache_compute(&cache, &a, 19, 25);
    assert_int_equal(block_cache_match(&cache, &b), 20);
    assert_int_equal(block_cache_match(&cache, &a), 25);
    block_cache_hold(&cache, &b, 2);
    assert_int_equal(cache.held_tokens, 35);
    block_cache_let_go(&cache, &a, 1);
    assert_int_equal(cache.held_tokens, 30);
    assert_int_equal(cache.idle_tokens, 5);
    /* Its third block was never computed and leaves nothing. */
    block_cache_let_go(&cache, &b, 2);
    assert_int_equal(cache.held_tokens, 0);
    assert_int_equal(cache.idle_tokens, 25);
    assert_int_equal(block_cache_match(&cache, &a), 25);
    block_cache_free(&cache);
}

/* Who held a block first computes it, and others wait; when it leaves, the next one does it. */
static void others_wait_for_the_first(void **state)
{
    static const uint32_t ids[] = {1, 2};
    const struct blocks a = prompt_of(ids, 20);
    struct block_cache cache;

    (void)state;
    open_cache(&cache);
    block_cache_hold(&cache, &a, 1);
    block_cache_hold(&cache, &a, 2);
    block_cache_hold(&cache, &a, 3);
    assert_false(block_cache_is_coming(&cache, &a, 0, 1));
    assert_true(block_cache_is_coming(&cache, &a, 0, 2));
    block_cache_compute(&cache, &a, 0, 10);
    assert_false(block_cache_is_coming(&cache, &a, 0, 2));
    assert_true(block_cache_is_coming(&cache, &a, 10, 2));
    block_cache_let_go(&cache, &a, 1);
    assert_false(block_cache_is_coming(&cache, &a, 10, 3));
    assert_true(block_cache_is_coming(&cache, &a, 10, 2));
    assert_false(block_cache_is_coming(&cache, &a, 20, 2)); /* behind its end */
    block_cache_free(&cache);
}

/* Two prompts; the older one goes first, and each from its end. */
static void the_oldest_end_goes_first(void **state)
{
    static const uint32_t first[] = {1, 2}, second[] = {3, 4};
    const struct blocks a = prompt_of(first, 20), b = prompt_of(second, 20);
    struct block_cache cache;

    (void)state;
    open_cache(&cache);
    block_cache_hold(&cache, &a, 1);
    block_cache_compute(&cache, &a, 0, 20);
    block_cache_hold(&cache, &b, 2);
    block_cache_compute(&cache, &b, 0, 20);
    block_cache_let_go(&cache, &a, 1);
    block_cache_let_go(&cache, &b, 2);
    block_cache_shrink(&cache, 39);
    assert_int_equal(block_cache_match(&cache, &a), 10);
    assert_int_equal(cache.idle_tokens, 30);
    /* Used again, the first is the younger one. */
    block_cache_hold(&cache, &a, 1);
    block_cache_shrink(&cache, 10);
    assert_int_equal(block_cache_match(&cache, &a), 10); /* held: not to be given up */
    assert_int_equal(block_cache_match(&cache, &b), 10);
    block_cache_let_go(&cache, &a, 1);
    block_cache_shrink(&cache, 10);
    assert_int_equal(block_cache_match(&cache, &b), 0);
    assert_int_equal(block_cache_match(&cache, &a), 10);
    block_cache_free(&cache);
}

static void everywhere_needs_no_memory(void **state)
{
    static const uint32_t ids[] = {1, 2};
    const struct blocks a = prompt_of(ids, 20);
    uint8_t everywhere[IDS] = {0};
    struct block_cache here, there;

    (void)state;
    assert_true(block_cache_init(&here, IDS, BLOCK, everywhere, &(struct err){0}));
    assert_true(block_cache_init(&there, IDS, BLOCK, everywhere, &(struct err){0}));
    block_cache_hold(&here, &a, 1);
    block_cache_compute(&here, &a, 0, 20);
    block_cache_let_go(&here, &a, 1);
    block_cache_shrink(&here, 0);
    assert_int_equal(block_cache_match(&there, &a), 20);
    assert_int_equal(block_cache_match(&here, &a), 20);
    assert_int_equal(here.idle_tokens + there.held_tokens, 0);
    block_cache_free(&here);
    block_cache_free(&there);
}

/* Prompts of a tree (block i is followed by 2 i or 2 i + 1) held and let go at random: the books
 * must be those of a count over all blocks. */
static void books_stay_right(void **state)
{
    enum { PROMPTS = 8, ROUNDS = 20000, DEPTH = 5 };
    uint32_t ids[PROMPTS][DEPTH];
    struct blocks prompts[PROMPTS] = {0};
    struct random random = {5};
    struct block_cache cache;

    (void)state;
    open_cache(&cache);
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t at = (uint32_t)random_u64(&random) % PROMPTS, count = 1, held = 0, idle = 0;
        if (prompts[at].count > 0) {
            block_cache_let_go(&cache, &prompts[at], at);
            prompts[at].count = 0;
        } else {
            ids[at][0] = 1;
            for (; count < DEPTH && random_u64(&random) % 4; count++)
                ids[at][count] = 2 * ids[at][count - 1] + (uint32_t)(random_u64(&random) % 2);
            prompts[at] = prompt_of(ids[at], count * BLOCK);
            block_cache_hold(&cache, &prompts[at], at);
            block_cache_compute(&cache, &prompts[at], block_cache_match(&cache, &prompts[at]),
                                (uint32_t)random_u64(&random) % (count + 1) * BLOCK);
        }
        block_cache_shrink(&cache, random_u64(&random) % 200);
        for (uint32_t id = 0; id < IDS; id++) {
            uint32_t users = 0;
            for (uint32_t p = 0; p < PROMPTS; p++)
                for (uint32_t i = 0; i < prompts[p].count; i++)
                    users += ids[p][i] == id;
            assert_int_equal(cache.blocks[id].users, users);
            held += users > 0 ? BLOCK : 0;
            idle += users == 0 && cache.blocks[id].computed ? BLOCK : 0;
        }
        assert_int_equal(cache.held_tokens, held);
        assert_int_equal(cache.idle_tokens, idle);
    }
    block_cache_free(&cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(held_once_and_found_later), cmocka_unit_test(others_wait_for_the_first),
        cmocka_unit_test(the_oldest_end_goes_first), cmocka_unit_test(everywhere_needs_no_memory),
        cmocka_unit_test(books_stay_right),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
