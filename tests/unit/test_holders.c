/* SPDX-License-Identifier: Apache-2.0
 *
 * Chains of keys over the beginnings of bodies, and who is likely to hold them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/holders.h"
#include "schemas/codec.h"

/* A body whose text is `count` blocks of the first size, each of one letter. */
static void chain_of(struct prefix_chain *chain, const char *letters, uint64_t realm)
{
    static char body[64 * PREFIX_BLOCK_SIZE + 64];
    size_t size =
        (size_t)snprintf(body, sizeof body, "{\"max_tokens\":%zu,\"prompt\":\"", strlen(letters));

    for (; *letters; letters++, size += PREFIX_BLOCK_SIZE)
        memset(body + size, *letters, PREFIX_BLOCK_SIZE);
    prefix_chain((struct str){body, size}, realm, chain);
}

static void a_chain_follows_the_text(void **state)
{
    struct prefix_chain a, b;

    (void)state;
    chain_of(&a, "abcd", 1);
    chain_of(&b, "abdcc", 1); /* what stands before the text is another number */
    assert_int_equal(a.count, 4);
    assert_int_equal(b.count, 5);
    assert_int_equal(a.ends[3], 4 * PREFIX_BLOCK_SIZE);
    assert_true(a.keys[0] == b.keys[0] && a.keys[1] == b.keys[1]);
    assert_true(a.keys[2] != b.keys[2]);
    assert_true(a.keys[3] != b.keys[3]); /* "d" and "c": and after other blocks, too */
    chain_of(&b, "abcd", 2);
    for (uint32_t i = 0; i < 4; i++)
        assert_true(a.keys[i] != b.keys[i]);
    chain_of(&b, "aaaa", 1);
    assert_true(b.keys[0] != b.keys[1]); /* equal blocks at other places */
}

static void only_whole_blocks_of_a_text(void **state)
{
    static char body[600000];
    struct prefix_chain chain;
    uint32_t size = PREFIX_BLOCK_SIZE;

    (void)state;
    prefix_chain((struct str){NULL, 0}, 1, &chain);
    assert_int_equal(chain.count, 0);
    prefix_chain(str_from("{\"prompt\":\"short\"}"), 1, &chain);
    assert_int_equal(chain.count, 0);
    memset(body, 'x', sizeof body);
    prefix_chain((struct str){body, sizeof body}, 1, &chain);
    assert_int_equal(chain.count, 0); /* no text */
    memcpy(body, "{\"prompt\":\"", 11);
    prefix_chain((struct str){body, 11 + 17 * PREFIX_BLOCK_SIZE}, 1, &chain);
    assert_int_equal(chain.count, 16); /* the next one would be twice as long */
    prefix_chain((struct str){body, sizeof body}, 1, &chain);
    assert_int_equal(chain.count, PREFIX_BLOCKS_MAX);
    for (uint32_t i = 0, end = 0; i < chain.count; i++) {
        end += size;
        assert_int_equal(chain.ends[i], end);
        size *= i % PREFIX_BLOCKS_OF_A_SIZE == PREFIX_BLOCKS_OF_A_SIZE - 1 ? 2 : 1;
    }
}

static void the_longest_beginning_comes_first(void **state)
{
    struct holders *holders = holders_open(4);
    struct prefix_chain chain;
    struct holder found[HOLDERS_MAX];

    (void)state;
    for (uint32_t slot = 0; slot < 4; slot++)
        holders_reset(holders, slot, 100000);
    chain_of(&chain, "abcd", 1);
    assert_int_equal(holders_find(holders, &chain, found), 0);
    holders_put(holders, &chain, 2);
    chain_of(&chain, "abx", 1);
    holders_put(holders, &chain, 0);
    chain_of(&chain, "axxx", 1);
    holders_put(holders, &chain, 3);
    chain_of(&chain, "abcz", 1);
    assert_int_equal(holders_find(holders, &chain, found), 3);
    assert_int_equal(found[0].slot, 2);
    assert_int_equal(found[0].size, 3 * PREFIX_BLOCK_SIZE);
    assert_int_equal(found[1].slot, 0);
    assert_int_equal(found[1].size, 2 * PREFIX_BLOCK_SIZE);
    assert_int_equal(found[2].slot, 3);
    assert_int_equal(found[2].size, PREFIX_BLOCK_SIZE);
    chain_of(&chain, "abcd", 2); /* another tenant's */
    assert_int_equal(holders_find(holders, &chain, found), 0);
    holders_close(holders);
}

/* A memory of 1,600 tokens: after so many others the oldest are gone; what was sent again stays. */
static void a_worker_forgets(void **state)
{
    struct holders *holders = holders_open(2);
    struct prefix_chain a, b;
    struct holder found[HOLDERS_MAX];

    (void)state;
    holders_reset(holders, 0, 1600);
    holders_reset(holders, 1, 1600);
    chain_of(&a, "aa", 1);
    chain_of(&b, "bb", 1);
    holders_put(holders, &a, 0);
    holders_put(holders, &b, 0);
    holders_grow(holders, 0, 1000);
    holders_put(holders, &b, 0);
    for (int i = 0; i < 60; i++)
        holders_grow(holders, 0, 10); /* parts of pages add up */
    assert_int_equal(holders_find(holders, &a, found), 1);
    holders_grow(holders, 0, 16);
    assert_int_equal(holders_find(holders, &a, found), 0);
    assert_int_equal(holders_find(holders, &b, found), 1);
    holders_reset(holders, 0, 1600); /* a new worker */
    assert_int_equal(holders_find(holders, &b, found), 0);
    holders_put(holders, &a, 1);
    holders_grow(holders, 0, 100000); /* another slot's matter */
    assert_int_equal(holders_find(holders, &a, found), 1);
    assert_int_equal(found[0].slot, 1);
    holders_close(holders);
}

/* More holders than a block remembers: the latest ones are known. */
static void the_latest_holders_are_known(void **state)
{
    struct holders *holders = holders_open(20);
    struct prefix_chain chain;
    struct holder found[HOLDERS_MAX];

    (void)state;
    chain_of(&chain, "ab", 1);
    for (uint32_t slot = 0; slot < 20; slot++) {
        holders_reset(holders, slot, 1000);
        holders_put(holders, &chain, slot);
    }
    holders_put(holders, &chain, 15);
    assert_int_equal(holders_find(holders, &chain, found), HOLDERS_MAX);
    assert_int_equal(found[0].slot, 15);
    assert_int_equal(found[1].slot, 19);
    assert_int_equal(found[HOLDERS_MAX - 1].slot, 12);
    holders_close(holders);
}

/* A million beginnings pass through; one that is asked for now and then stays known, and of the
 * others the latest are. */
static void a_full_table_keeps_what_is_used(void **state)
{
    struct holders *holders = holders_open(1);
    struct prefix_chain hot, other = {.count = 1, .ends = {PREFIX_BLOCK_SIZE}};
    struct holder found[HOLDERS_MAX];
    uint32_t known = 0;

    (void)state;
    holders_reset(holders, 0, 1000);
    chain_of(&hot, "hot", 1);
    for (uint64_t i = 1; i <= 1000000; i++) {
        other.keys[0] = prefix_mix(i, 3);
        holders_put(holders, &other, 0);
        if (i % 10000 == 0) {
            assert_int_equal(i > 10000 ? holders_find(holders, &hot, found) : 1, 1);
            holders_put(holders, &hot, 0);
        }
    }
    for (uint64_t i = 950001; i <= 1000000; i++) {
        other.keys[0] = prefix_mix(i, 3);
        known += holders_find(holders, &other, found);
    }
    assert_true(known > 45000);
    holders_close(holders);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_follows_the_text),
        cmocka_unit_test(only_whole_blocks_of_a_text),
        cmocka_unit_test(the_longest_beginning_comes_first),
        cmocka_unit_test(a_worker_forgets),
        cmocka_unit_test(the_latest_holders_are_known),
        cmocka_unit_test(a_full_table_keeps_what_is_used),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
