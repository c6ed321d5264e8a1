/* SPDX-License-Identifier: Apache-2.0
 *
 * The tree of shared pages by hand: who finds what, who holds it, what is
 * reused first. tests/unit/test_prefix_books.c does the same by dice.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "worker/prefix_cache.h"

enum { PAGES = 8, TOKENS = PAGES * KV_PAGE_TOKENS };

/* A chain with room of its own; page i of its tokens says words[i], 16 times. */
struct writer {
    struct page_chain chain;
    int32_t tokens[TOKENS];
    uint32_t pages[PAGES];
    uint32_t known;
};

static struct prefix_cache cache;

static void open_cache(uint32_t pages)
{
    struct err err;

    assert_true(prefix_cache_open(&cache, pages, true, &err));
}

static void begin(struct writer *writer, const char *words)
{
    *writer = (struct writer){.chain = {.tokens = writer->tokens, .pages = writer->pages}};
    for (; words[writer->known / KV_PAGE_TOKENS]; writer->known += KV_PAGE_TOKENS)
        for (uint32_t i = 0; i < KV_PAGE_TOKENS; i++)
            writer->tokens[writer->known + i] = words[writer->known / KV_PAGE_TOKENS];
}

/* Pages that it finds and takes; computes nothing. */
static uint32_t attach(struct writer *writer, const char *words)
{
    begin(writer, words);
    assert_false(
        prefix_cache_search(&cache, &writer->chain, (uint32_t)writer->known / KV_PAGE_TOKENS));
    prefix_cache_attach(&cache, &writer->chain, writer->known);
    return writer->chain.count;
}

static bool extend(struct writer *writer)
{
    return prefix_cache_extend(&cache, &writer->chain, writer->known / KV_PAGE_TOKENS,
                               writer->known);
}

static void compute(struct writer *writer)
{
    assert_true(extend(writer));
    prefix_cache_filled(&cache, &writer->chain, writer->known);
}

static void release(struct writer *writer)
{
    prefix_cache_release(&cache, &writer->chain);
    assert_int_equal(writer->chain.count + writer->chain.listed + writer->chain.ready, 0);
}

/* Writes words into the cache and leaves. */
static void leave(const char *words)
{
    struct writer writer;

    attach(&writer, words);
    compute(&writer);
    release(&writer);
}

static uint32_t found(const char *words)
{
    struct writer writer;

    begin(&writer, words);
    prefix_cache_search(&cache, &writer.chain, writer.known / KV_PAGE_TOKENS);
    return writer.chain.found;
}

static void test_finds_the_longest_beginning(void **state)
{
    struct writer a;
    struct writer b;

    (void)state;
    open_cache(8);
    assert_int_equal(attach(&a, "xyz"), 0);
    compute(&a);
    assert_int_equal(attach(&b, "xyw"), 2);
    assert_int_equal(b.pages[0], a.pages[0]);
    assert_int_equal(b.pages[1], a.pages[1]);
    compute(&b);
    assert_int_not_equal(b.pages[2], a.pages[2]);
    assert_int_equal(cache.nodes[a.pages[1]].refs, 2);
    assert_int_equal(cache.pages.free_count, 4);
    assert_int_equal(found("x"), 1);
    assert_int_equal(found("yz"), 0); /* the same tokens, but not at the beginning */
    assert_int_equal(found("xz"), 0 + 1);
    assert_int_equal(found("xyzz"), 3);

    release(&a);
    assert_int_equal(cache.idle_count, 1); /* z: the rest is b's as well */
    release(&b);
    assert_int_equal(cache.idle_count, 4);
    assert_int_equal(prefix_cache_available(&cache), 8);
    assert_int_equal(found("xyz"), 3);
    assert_int_equal(cache.lookup_tokens, 96);
    assert_int_equal(cache.hit_tokens, 32);
    prefix_cache_close(&cache);
}

static void test_a_page_limit(void **state)
{
    struct writer a;

    (void)state;
    open_cache(8);
    leave("xyz");
    begin(&a, "xyz");
    prefix_cache_search(&cache, &a.chain, 2);
    assert_int_equal(a.chain.found, 2);
    prefix_cache_search(&cache, &a.chain, 3); /* goes on from there */
    assert_int_equal(a.chain.found, 3);
    prefix_cache_close(&cache);
}

static void test_salts_share_nothing(void **state)
{
    struct writer a;
    struct writer b;

    (void)state;
    open_cache(8);
    leave("xy");
    for (int word = 0; word < 2; word++) {
        begin(&a, "xy");
        a.chain.salt.words[word] = 1;
        assert_false(prefix_cache_search(&cache, &a.chain, 2));
        assert_int_equal(a.chain.found, 0);
        compute(&a);
        assert_int_equal(a.chain.listed, 2);
        begin(&b, "xy");
        b.chain.salt.words[word] = 1;
        prefix_cache_search(&cache, &b.chain, 2);
        assert_int_equal(b.chain.found, 2);
        assert_int_equal(b.chain.found_last, a.pages[1]);
        release(&a);
    }
    prefix_cache_close(&cache);
}

/* What is stored is compared: here a page with the right hash and one wrong id, salt or parent. */
static void test_a_collision_is_no_hit(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < KV_PAGE_TOKENS; i++) {
        open_cache(8);
        leave("x");
        assert_int_equal(found("x"), 1);
        cache.tokens[i] ^= 1;
        assert_int_equal(found("x"), 0);
        prefix_cache_close(&cache);
    }
    open_cache(8);
    leave("x");
    cache.nodes[0].salt.words[0] ^= 1;
    assert_int_equal(found("x"), 0);
    cache.nodes[0].salt.words[0] ^= 1;
    cache.nodes[0].salt.words[1] ^= 1;
    assert_int_equal(found("x"), 0);
    cache.nodes[0].salt.words[1] ^= 1;
    cache.nodes[0].parent = 5;
    assert_int_equal(found("x"), 0);
    cache.nodes[0].parent = PREFIX_NONE;
    assert_int_equal(found("x"), 1);
    prefix_cache_close(&cache);
}

/* Every page in one bucket: the list there is walked and mended. */
static void test_one_bucket(void **state)
{
    struct writer a;

    (void)state;
    open_cache(6);
    cache.bucket_mask = 0;
    leave("xyz");
    leave("abc");
    assert_int_equal(found("xyz"), 3);
    assert_int_equal(found("abc"), 3);
    attach(&a, "m");
    compute(&a); /* in the place of z */
    assert_int_equal(found("xyz"), 2);
    assert_int_equal(found("abc"), 3);
    assert_int_equal(found("m"), 1);
    prefix_cache_close(&cache);
}

static void test_coming_pages_are_waited_for(void **state)
{
    struct writer a;
    struct writer b;

    (void)state;
    open_cache(8);
    attach(&a, "xyz");
    assert_true(extend(&a));
    begin(&b, "xyw");
    assert_true(prefix_cache_search(&cache, &b.chain, 3));
    assert_int_equal(b.chain.found, 0);
    prefix_cache_filled(&cache, &a.chain, 31); /* one page, and most of another */
    assert_true(prefix_cache_search(&cache, &b.chain, 3));
    assert_int_equal(b.chain.found, 1);
    prefix_cache_filled(&cache, &a.chain, 32);
    assert_false(prefix_cache_search(&cache, &b.chain, 3)); /* w is nobody's */
    assert_int_equal(b.chain.found, 2);

    /* a goes before z is there: whoever waits for it need not any more. */
    begin(&b, "xyz");
    assert_true(prefix_cache_search(&cache, &b.chain, 3));
    release(&a);
    assert_false(prefix_cache_search(&cache, &b.chain, 3));
    assert_int_equal(b.chain.found, 2);
    assert_int_equal(cache.listed_count, 2);
    assert_int_equal(cache.pages.free_count, 6);
    prefix_cache_close(&cache);
}

/* Tokens are known one by one: the page is listed when the last one is. */
static void test_pages_of_answers(void **state)
{
    struct writer a;

    (void)state;
    open_cache(8);
    begin(&a, "xy");
    assert_true(prefix_cache_extend(&cache, &a.chain, 1, 15));
    assert_int_equal(a.chain.listed, 0);
    prefix_cache_filled(&cache, &a.chain, 15);
    assert_true(prefix_cache_extend(&cache, &a.chain, 1, 16));
    assert_int_equal(a.chain.listed, 1);
    assert_int_equal(a.chain.ready, 0);
    prefix_cache_filled(&cache, &a.chain, 16);
    assert_int_equal(a.chain.ready, 1);
    assert_true(prefix_cache_extend(&cache, &a.chain, 2, 17));
    release(&a);
    assert_int_equal(found("xy"), 1);
    assert_int_equal(cache.pages.free_count, 7);
    prefix_cache_close(&cache);
}

/* Two come to the same page while neither is ready: the later one gets the other's. */
static void test_twins(void **state)
{
    struct writer a;
    struct writer b;

    (void)state;
    open_cache(8);
    attach(&a, "xy");
    begin(&b, "xyz");
    assert_true(extend(&a));
    assert_true(extend(&b)); /* x and y are a's already, z has no listed parent */
    assert_int_equal(b.chain.listed, 0);
    prefix_cache_filled(&cache, &b.chain, 48);
    assert_int_equal(b.chain.ready, 0); /* a is still at it */
    assert_int_equal(cache.pages.free_count, 3);
    prefix_cache_filled(&cache, &a.chain, 32);
    prefix_cache_filled(&cache, &b.chain, 48);
    assert_int_equal(b.chain.ready, 3);
    assert_int_equal(b.pages[0], a.pages[0]);
    assert_int_equal(b.pages[1], a.pages[1]);
    assert_int_equal(cache.nodes[b.pages[1]].refs, 2);
    assert_int_equal(cache.nodes[b.pages[2]].parent, a.pages[1]);
    assert_int_equal(cache.pages.free_count, 5);
    release(&a);
    release(&b);
    assert_int_equal(cache.idle_count, 3);
    prefix_cache_close(&cache);
}

/* The other one never gets ready: what is private is listed after all, or goes. */
static void test_a_lost_twin(void **state)
{
    struct writer a;
    struct writer b;

    (void)state;
    open_cache(8);
    attach(&a, "x");
    begin(&b, "xy");
    assert_true(extend(&a));
    compute(&b);
    assert_int_equal(b.chain.listed, 0);
    release(&a);
    prefix_cache_filled(&cache, &b.chain, 32);
    assert_int_equal(b.chain.ready, 2);
    assert_int_equal(found("xy"), 2);
    release(&b);
    assert_int_equal(prefix_cache_available(&cache), 8);
    prefix_cache_close(&cache);

    open_cache(8);
    attach(&a, "x");
    begin(&b, "xy");
    assert_true(extend(&a));
    compute(&b);
    release(&b);
    assert_int_equal(cache.pages.free_count, 7);
    release(&a);
    assert_int_equal(cache.pages.free_count, 8);
    prefix_cache_close(&cache);
}

static void test_reuses_the_oldest_leaf(void **state)
{
    struct writer a;
    struct writer b;

    (void)state;
    open_cache(5);
    leave("xy");
    leave("ab");
    leave("xy"); /* used again */
    attach(&a, "pq");
    compute(&a); /* the free page, then b */
    assert_int_equal(cache.evictions, 1);
    assert_int_equal(found("ab"), 1);
    assert_int_equal(found("xy"), 2);

    assert_int_equal(attach(&b, "xyz"), 2); /* holds x and y: a is the only idle one */
    assert_int_equal(prefix_cache_available(&cache), 1);
    compute(&b);
    assert_int_equal(found("a"), 0);
    assert_int_equal(cache.evictions, 2);
    begin(&a, "mn");
    assert_false(extend(&a));
    assert_int_equal(a.chain.count, 0);
    prefix_cache_close(&cache);
}

/* Idle pages that a newcomer finds are not to be had for its other pages. */
static void test_found_and_idle(void **state)
{
    struct writer a;
    struct writer b;

    (void)state;
    open_cache(4);
    leave("xyz");
    assert_int_equal(attach(&a, "x"), 1);
    begin(&b, "xyz");
    assert_int_equal(prefix_cache_found_idle(&cache, &b.chain), 0);
    prefix_cache_search(&cache, &b.chain, 3);
    assert_int_equal(prefix_cache_found_idle(&cache, &b.chain), 2);
    prefix_cache_close(&cache);
}

/* A search does not go on behind a page that has become another one. */
static void test_a_search_starts_again(void **state)
{
    struct writer a;
    struct writer b;

    (void)state;
    open_cache(2);
    leave("xy");
    begin(&b, "xyz");
    prefix_cache_search(&cache, &b.chain, 3);
    assert_int_equal(b.chain.found, 2);
    attach(&a, "m");
    compute(&a); /* m in the place of y */
    assert_int_equal(a.pages[0], b.chain.found_last);
    prefix_cache_search(&cache, &b.chain, 3);
    assert_int_equal(b.chain.found, 1);
    prefix_cache_close(&cache);
}

static void test_disabled(void **state)
{
    struct writer a;
    struct err err;

    (void)state;
    assert_true(prefix_cache_open(&cache, 4, false, &err));
    attach(&a, "xyz");
    compute(&a);
    assert_int_equal(cache.pages.free_count, 1);
    release(&a);
    assert_int_equal(cache.pages.free_count, 4);
    assert_int_equal(attach(&a, "xyz"), 0);
    assert_int_equal(prefix_cache_found_idle(&cache, &a.chain), 0);
    assert_int_equal(cache.lookup_tokens, 0);
    prefix_cache_close(&cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_the_longest_beginning),
        cmocka_unit_test(test_a_page_limit),
        cmocka_unit_test(test_salts_share_nothing),
        cmocka_unit_test(test_a_collision_is_no_hit),
        cmocka_unit_test(test_one_bucket),
        cmocka_unit_test(test_coming_pages_are_waited_for),
        cmocka_unit_test(test_pages_of_answers),
        cmocka_unit_test(test_twins),
        cmocka_unit_test(test_a_lost_twin),
        cmocka_unit_test(test_reuses_the_oldest_leaf),
        cmocka_unit_test(test_found_and_idle),
        cmocka_unit_test(test_a_search_starts_again),
        cmocka_unit_test(test_disabled),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
