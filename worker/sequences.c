/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/sequences.h"

#include <stdlib.h>
#include <string.h>

#include "common/check.h"

bool sequences_open(struct sequences *sequences, struct sequences_shape shape, struct err *err)
{
    const uint32_t count = shape.count;
    const uint32_t context_max = shape.context_max;
    const size_t pages_max = kv_pages_needed(context_max);

    *sequences = (struct sequences){.pool_count = count};
    if (!prefix_cache_open(&sequences->cache, shape.pages, shape.prefix_cache, err))
        return false;
    sequences->pool = calloc(count, sizeof *sequences->pool);
    sequences->running = calloc(count, sizeof(struct sequence *));
    sequences->waiting = calloc(count, sizeof(struct sequence *));
    sequences->tokens = calloc((size_t)count * context_max, sizeof *sequences->tokens);
    sequences->page_lists = calloc(count * pages_max, sizeof *sequences->page_lists);
    sequences->expert_counts =
        calloc((size_t)count * shape.profile_cells + 1, sizeof *sequences->expert_counts);
    if (!sequences->pool || !sequences->running || !sequences->waiting || !sequences->tokens ||
        !sequences->page_lists || !sequences->expert_counts) {
        sequences_close(sequences);
        return err_set(err, ERR_FATAL, "no memory for %u sequences of %u tokens", count,
                       context_max);
    }
    for (uint32_t i = 0; i < count; i++) {
        sequences->pool[i].tokens = sequences->tokens + (size_t)i * context_max;
        sequences->pool[i].chain.tokens = sequences->pool[i].tokens;
        sequences->pool[i].chain.pages = sequences->page_lists + i * pages_max;
        sequences->pool[i].expert_counts =
            sequences->expert_counts + (size_t)i * shape.profile_cells;
    }
    return true;
}

void sequences_close(struct sequences *sequences)
{
    prefix_cache_close(&sequences->cache);
    free(sequences->pool);
    free(sequences->running);
    free(sequences->waiting);
    free(sequences->tokens);
    free(sequences->page_lists);
    free(sequences->expert_counts);
    *sequences = (struct sequences){0};
}

struct sequence *sequences_find(const struct sequences *sequences, uint64_t tag)
{
    for (uint32_t i = 0; i < sequences->pool_count; i++) {
        struct sequence *sequence = &sequences->pool[i];

        if (sequence->state != SEQUENCE_FREE && sequence->tag == tag)
            return sequence;
    }
    return NULL;
}

struct sequence *sequences_take(struct sequences *sequences)
{
    for (uint32_t i = 0; i < sequences->pool_count; i++)
        if (sequences->pool[i].state == SEQUENCE_FREE)
            return &sequences->pool[i];
    return NULL;
}

static void list_remove(struct sequence **list, uint32_t *count, const struct sequence *sequence)
{
    uint32_t i = 0;

    while (i < *count && list[i] != sequence)
        i++;
    CHECK(i < *count);
    (*count)--;
    memmove(list + i, list + i + 1, (*count - i) * sizeof *list);
}

static void list_insert(struct sequence **list, uint32_t *count, uint32_t at,
                        struct sequence *sequence)
{
    memmove(list + at + 1, list + at, (*count - at) * sizeof *list);
    list[at] = sequence;
    (*count)++;
}

/* Urgent ones pass those that are not and have not begun. */
static uint32_t waiting_place(const struct sequences *s, const struct sequence *sequence)
{
    uint32_t place = s->waiting_count;

    while (sequence->urgent && place > 0 && !s->waiting[place - 1]->urgent &&
           s->waiting[place - 1]->first_step_us == 0)
        place--;
    return place;
}

void sequences_move(struct sequences *s, struct sequence *sequence, enum sequence_state state)
{
    const bool preempted = sequence->state == SEQUENCE_RUNNING && state == SEQUENCE_WAITING;

    if (sequence->state == SEQUENCE_WAITING)
        list_remove(s->waiting, &s->waiting_count, sequence);
    if (sequence->state == SEQUENCE_RUNNING) {
        list_remove(s->running, &s->running_count, sequence);
        prefix_cache_release(&s->cache, &sequence->chain);
        sequence->fed = 0;
        sequence->rows = 0;
    }
    sequence->state = state;
    switch (state) {
    case SEQUENCE_WAITING:
        list_insert(s->waiting, &s->waiting_count, preempted ? 0 : waiting_place(s, sequence),
                    sequence);
        break;
    case SEQUENCE_RUNNING:
        list_insert(s->running, &s->running_count, s->running_count, sequence);
        break;
    case SEQUENCE_FINISHED:
    case SEQUENCE_FREE:
        break;
    }
}

void sequences_feed(struct sequences *sequences, struct sequence *sequence)
{
    sequence->fed += sequence->rows;
    prefix_cache_filled(&sequences->cache, &sequence->chain, sequence->fed);
}
