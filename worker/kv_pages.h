/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_pages - which pages of the KV cache are free.
 *
 * A page holds the entries of KV_PAGE_TOKENS consecutive tokens, for all
 * layers. This module is a stack of free page numbers; who holds the others is
 * worker/prefix_cache.h's business. The memory is the model's (worker/model.h).
 */
#ifndef WORKER_KV_PAGES_H
#define WORKER_KV_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

enum { KV_PAGE_TOKENS = 16 };

struct kv_pages {
    uint32_t *free; /* (count) the first free_count are free */
    uint32_t free_count;
    uint32_t count;
};

/* All count pages are free. */
bool kv_pages_open(struct kv_pages *pages, uint32_t count, struct err *err);
void kv_pages_close(struct kv_pages *pages); /* zeroed is allowed */

/* Pages that hold tokens tokens. */
uint32_t kv_pages_needed(uint64_t tokens);

/* Extends the list, which holds have pages, to want ones: all of them or, when too few are free,
 * none and false. */
bool kv_pages_take(struct kv_pages *pages, uint32_t *list, uint32_t have, uint32_t want);

/* Gives count pages back. */
void kv_pages_give(struct kv_pages *pages, const uint32_t *list, uint32_t count);

#endif
