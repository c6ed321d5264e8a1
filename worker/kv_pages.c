/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/kv_pages.h"

#include <stdlib.h>

#include "common/check.h"

bool kv_pages_open(struct kv_pages *pages, uint32_t count, struct err *err)
{
    *pages = (struct kv_pages){.count = count, .free_count = count};
    pages->free = calloc(count ? count : 1, sizeof *pages->free);
    if (!pages->free)
        return err_set(err, ERR_FATAL, "no memory for a list of %u KV pages", count);
    /* Low numbers on top: a small load touches a small part of the cache. */
    for (uint32_t i = 0; i < count; i++)
        pages->free[i] = count - 1 - i;
    return true;
}

void kv_pages_close(struct kv_pages *pages)
{
    free(pages->free);
    *pages = (struct kv_pages){0};
}

uint32_t kv_pages_needed(uint64_t tokens)
{
    return (uint32_t)((tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS);
}

bool kv_pages_take(struct kv_pages *pages, uint32_t *list, uint32_t have, uint32_t want)
{
    if (want <= have)
        return true;
    if (want - have > pages->free_count)
        return false;
    for (uint32_t i = have; i < want; i++)
        list[i] = pages->free[--pages->free_count];
    return true;
}

void kv_pages_give(struct kv_pages *pages, const uint32_t *list, uint32_t count)
{
    CHECK(count <= pages->count - pages->free_count);

    for (uint32_t i = count; i > 0; i--)
        pages->free[pages->free_count++] = list[i - 1];
}
