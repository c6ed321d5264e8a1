/* SPDX-License-Identifier: Apache-2.0
 *
 * answer - the ids of one answer and the text that they make, as they arrive.
 *
 * Joins the pieces of a text (worker/text), whole characters (worker/detok) and
 * stop strings (worker/stop_strings), and knows which ids may be streamed:
 * those whose text no later id can change. What is streamed, one part after
 * another, is byte for byte the whole text at the end.
 *
 * One thread at a time.
 */
#ifndef WORKER_ANSWER_H
#define WORKER_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/stop_strings.h"
#include "worker/text/text.h"

struct answer;

/* Borrowed from the answer until its next call. */
struct answer_view {
    const int32_t *ids;  /* (count) as generated, end mark and stop string included */
    const int32_t *ends; /* (count) end of each id's text, bytes from the start of text */
    size_t count;
    size_t ready;     /* the first `ready` ids and their text are final */
    const char *text; /* (size) UTF-8; ends before the stop string */
    size_t size;
};

/* text and the bytes of stops must outlive the answer. Never NULL. */
struct answer *answer_open(const struct text *text, const struct stop_strings *stops);
void answer_close(struct answer *answer); /* NULL is allowed */

/* Append an id; silent ones (the end mark) add no text. True when a stop string is complete: the
 * answer is over. */
bool answer_push(struct answer *answer, int32_t id, bool silent);

/* No more ids come: what was held back becomes text, an incomplete character one U+FFFD. */
void answer_finish(struct answer *answer);

struct answer_view answer_view(const struct answer *answer);

#endif
