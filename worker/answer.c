/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/answer.h"

#include "common/check.h"
#include "worker/detok.h"

#include <stdlib.h>
#include <string.h>

struct answer {
    const struct text *pieces;
    struct stop_strings stops;
    struct detok detok;
    int32_t *ids;  /* (ids_capacity) */
    int32_t *ends; /* (ids_capacity) */
    size_t count, ids_capacity;
    char *text; /* (text_capacity) */
    size_t size, text_capacity;
    size_t safe;  /* bytes of text that are no part of a stop string to be */
    size_t whole; /* ids after which no character was incomplete */
    size_t ready;
};

static void *grow(void *array, size_t item_size, size_t needed, size_t *capacity)
{
    if (needed <= *capacity)
        return array;
    *capacity = needed < 64 ? 64 : needed + needed / 2;
    array = realloc(array, *capacity * item_size);
    CHECK(array != NULL);
    return array;
}

static void grow_ids(struct answer *answer)
{
    size_t capacity = answer->ids_capacity;

    answer->ids = grow(answer->ids, sizeof *answer->ids, answer->count + 1, &capacity);
    capacity = answer->ids_capacity;
    answer->ends = grow(answer->ends, sizeof *answer->ends, answer->count + 1, &capacity);
    answer->ids_capacity = capacity;
}

struct answer *answer_open(const struct text *text, const struct stop_strings *stops)
{
    struct answer *answer = calloc(1, sizeof *answer);

    CHECK(answer != NULL);
    answer->pieces = text;
    answer->stops = *stops;
    grow_ids(answer); /* so that no view holds a null pointer */
    answer->text = grow(answer->text, 1, 1, &answer->text_capacity);
    detok_init(&answer->detok, text_strips_first_space(text));
    return answer;
}

void answer_close(struct answer *answer)
{
    if (answer == NULL)
        return;
    free(answer->ids);
    free(answer->ends);
    free(answer->text);
    free(answer);
}

static void append_id(struct answer *answer, int32_t id)
{
    grow_ids(answer);
    answer->ids[answer->count++] = id;
}

/* Look at the text behind `scanned`, cut at a stop string, and see which ids are final now. */
static bool settle(struct answer *answer, size_t scanned)
{
    bool stopped =
        stop_strings_scan(&answer->stops, answer->text, answer->size, scanned, &answer->safe);

    if (stopped) {
        answer->size = answer->safe;
        answer->detok.held_size = 0;
        answer->whole = answer->count;
        for (size_t i = answer->count; i-- > 0 && (size_t)answer->ends[i] > answer->size;)
            answer->ends[i] = (int32_t)answer->size;
    }
    while (answer->ready < answer->whole && (size_t)answer->ends[answer->ready] <= answer->safe)
        answer->ready++;
    return stopped;
}

bool answer_push(struct answer *answer, int32_t id, bool silent)
{
    struct text_piece piece = text_piece(answer->pieces, id);
    size_t scanned = answer->size;

    append_id(answer, id);
    if (!silent && !piece.special) {
        size_t needed = answer->size + DETOK_OUT_SIZE_MAX(piece.size) + DETOK_OUT_SIZE_MAX(0);

        CHECK(needed <= INT32_MAX);
        answer->text = grow(answer->text, 1, needed, &answer->text_capacity);
        answer->size +=
            detok_push(&answer->detok, piece.bytes, piece.size, answer->text + answer->size);
    }
    answer->ends[answer->count - 1] = (int32_t)answer->size;
    if (answer->detok.held_size == 0)
        answer->whole = answer->count;
    return settle(answer, scanned);
}

void answer_finish(struct answer *answer)
{
    if (answer->detok.held_size > 0) {
        answer->size += detok_finish(&answer->detok, answer->text + answer->size);
        answer->ends[answer->count - 1] = (int32_t)answer->size;
    }
    answer->safe = answer->size;
    answer->ready = answer->count;
}

struct answer_view answer_view(const struct answer *answer)
{
    return (struct answer_view){
        .ids = answer->ids,
        .ends = answer->ends,
        .count = answer->count,
        .ready = answer->ready,
        .text = answer->text,
        .size = answer->size,
    };
}
