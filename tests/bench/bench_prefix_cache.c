/* SPDX-License-Identifier: Apache-2.0
 *
 * What the books of the prefix cache cost, without a model: bench_prefix_cache [PAGES]
 *
 * Chains of 64 pages, as prompts of 1,024 tokens have them: computed and left
 * while pages are free, computed by reusing old ones, and found. CPU time of one
 * thread per page.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>

#include "common/check.h"
#include "worker/prefix_cache.h"

enum { CHAIN_PAGES = 64, CHAIN_TOKENS = CHAIN_PAGES * KV_PAGE_TOKENS };

static double now_ns(void)
{
    struct timespec time;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return 1e9 * (double)time.tv_sec + (double)time.tv_nsec;
}

struct times {
    double search_ns;
    double attach_ns;
    double extend_ns;
    double filled_ns;
    double release_ns;
    uint64_t found;
};

/* A sequence comes, runs to the end of its prompt and goes. */
static void run_chain(struct prefix_cache *cache, int32_t number, struct times *times)
{
    static int32_t tokens[CHAIN_TOKENS];
    static uint32_t pages[CHAIN_PAGES];
    struct page_chain chain = {.tokens = tokens, .pages = pages};
    double at[6];

    for (int32_t i = 0; i < CHAIN_TOKENS; i++)
        tokens[i] = number + i;
    at[0] = now_ns();
    prefix_cache_search(cache, &chain, CHAIN_PAGES);
    at[1] = now_ns();
    prefix_cache_attach(cache, &chain, CHAIN_TOKENS);
    at[2] = now_ns();
    CHECK(prefix_cache_extend(cache, &chain, CHAIN_PAGES, CHAIN_TOKENS));
    at[3] = now_ns();
    prefix_cache_filled(cache, &chain, CHAIN_TOKENS);
    at[4] = now_ns();
    prefix_cache_release(cache, &chain);
    at[5] = now_ns();
    times->search_ns += at[1] - at[0];
    times->attach_ns += at[2] - at[1];
    times->extend_ns += at[3] - at[2];
    times->filled_ns += at[4] - at[3];
    times->release_ns += at[5] - at[4];
    times->found += chain.found;
}

static void measure(struct prefix_cache *cache, const char *name, int32_t first, uint32_t chains)
{
    const double pages = (double)chains * CHAIN_PAGES;
    struct times times = {0};

    for (uint32_t i = 0; i < chains; i++)
        run_chain(cache, first + (int32_t)i * 7919, &times);
    printf("%-16s %8.1f %8.1f %8.1f %8.1f %8.1f %9.0f%%\n", name, times.search_ns / pages,
           times.attach_ns / pages, times.extend_ns / pages, times.filled_ns / pages,
           times.release_ns / pages, 100 * (double)times.found / pages);
}

int main(int argc, char **argv)
{
    const uint32_t pages = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 100000;
    bool help = argc > 1 && strcmp(argv[1], "--help") == 0;
    struct prefix_cache cache;
    struct err err;

    if (help || pages < CHAIN_PAGES || (argc > 1 && *argv[1] == '-')) {
        fprintf(help ? stdout : stderr, "usage: bench_prefix_cache [PAGES]\n"
                                        "What the books of a cache cost (100000 pages).\n");
        return help ? EX_OK : EX_USAGE;
    }
    CHECK(prefix_cache_open(&cache, pages, true, &err));
    printf("%u pages, ns per page:\n", pages);
    printf("%-16s %8s %8s %8s %8s %8s %10s\n", "", "search", "attach", "extend", "filled",
           "release", "found");
    measure(&cache, "free pages", 0, pages / CHAIN_PAGES);
    measure(&cache, "found", 0, pages / CHAIN_PAGES);
    measure(&cache, "reused pages", 1, pages / CHAIN_PAGES);
    measure(&cache, "reused again", 2, pages / CHAIN_PAGES);
    prefix_cache_close(&cache);
    return 0;
}
