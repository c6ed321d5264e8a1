/* SPDX-License-Identifier: Apache-2.0
 *
 * arena - scratch memory that is released all at once.
 *
 * Allocations are 16-byte aligned and never freed one by one. A reset keeps the largest block, so
 * that a loop of equal batches soon allocates nothing. Out of memory ends the process: whoever
 * sizes its work by the outside's bytes checks a limit first. One thread.
 */
#ifndef COMMON_ARENA_H
#define COMMON_ARENA_H

#include <stddef.h>

/* Zero-initialise it; block_size 0 means 64 KiB. */
struct arena {
    struct arena_block *head; /* newest first */
    size_t block_size;
};

void *arena_alloc(struct arena *arena, size_t size); /* uninitialised, never NULL */
void *arena_zalloc(struct arena *arena, size_t count, size_t item_size);
char *arena_strndup(struct arena *arena, const char *data, size_t size); /* adds a NUL */
void arena_reset(struct arena *arena);
void arena_free(struct arena *arena);

#endif
