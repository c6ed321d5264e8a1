/* SPDX-License-Identifier: Apache-2.0 */
#include "common/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <string.h>

#include "common/check.h"

struct arena_block {
    struct arena_block *next; /* older */
    size_t used;
    size_t capacity;
    alignas(16) unsigned char data[];
};

static const size_t BLOCK_SIZE_DEFAULT = 64 * 1024;

static void add_block(struct arena *arena, size_t size_min)
{
    size_t capacity = arena->block_size ? arena->block_size : BLOCK_SIZE_DEFAULT;
    struct arena_block *block;

    if (capacity < size_min)
        capacity = size_min;
    block = malloc(sizeof *block + capacity);
    CHECK(block);
    *block = (struct arena_block){.next = arena->head, .capacity = capacity};
    arena->head = block;
}

void *arena_alloc(struct arena *arena, size_t size)
{
    void *memory;

    CHECK(size <= SIZE_MAX / 2);
    size = (size + 15) & ~(size_t)15;
    if (!arena->head || arena->head->capacity - arena->head->used < size)
        add_block(arena, size);
    memory = arena->head->data + arena->head->used;
    arena->head->used += size;
    return memory;
}

void *arena_zalloc(struct arena *arena, size_t count, size_t item_size)
{
    CHECK(item_size == 0 || count <= SIZE_MAX / 2 / item_size);
    return memset(arena_alloc(arena, count * item_size), 0, count * item_size);
}

char *arena_strndup(struct arena *arena, const char *data, size_t size)
{
    char *text = arena_alloc(arena, size + 1);

    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

void arena_reset(struct arena *arena)
{
    struct arena_block *largest = NULL;

    for (struct arena_block *block = arena->head, *next; block; block = next) {
        next = block->next;
        if (!largest || block->capacity > largest->capacity) {
            free(largest);
            largest = block;
        } else {
            free(block);
        }
    }
    if (largest) {
        largest->next = NULL;
        largest->used = 0;
    }
    arena->head = largest;
}

void arena_free(struct arena *arena)
{
    arena_reset(arena);
    free(arena->head);
    arena->head = NULL;
}
