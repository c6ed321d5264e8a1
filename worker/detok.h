/* SPDX-License-Identifier: Apache-2.0
 *
 * detok - token bytes to valid UTF-8, piece by piece.
 *
 * A character may be spread over several tokens. Its bytes are held until the
 * last one arrives; bytes that can never become a character are replaced by
 * U+FFFD, one for each maximal part, as the Unicode standard (3.9, table 3-8)
 * and the tokenizers crate do. So the concatenated output is valid after every
 * push and equal to decoding everything at once.
 *
 * A plain value without a destructor; one thread at a time.
 */
#ifndef WORKER_DETOK_H
#define WORKER_DETOK_H

#include <stdbool.h>
#include <stddef.h>

struct detok {
    bool strip_space; /* drop a space if it is the very first byte */
    unsigned char held[3];
    size_t held_size; /* bytes of an incomplete character, at most 3 */
};

/* strip_first_space: see text_strips_first_space(). */
void detok_init(struct detok *detok, bool strip_first_space);

/* Most bytes that detok_push() of size bytes writes: each may become U+FFFD. */
#define DETOK_OUT_SIZE_MAX(size) (3 * ((size) + 3))

/* Take the bytes (size) of one token; write complete characters to out, which
 * has DETOK_OUT_SIZE_MAX(size) bytes. Gives the number written. */
size_t detok_push(struct detok *detok, const char *bytes, size_t size, char *out);

/* The end of the output: an incomplete character becomes one U+FFFD. out has
 * DETOK_OUT_SIZE_MAX(0) bytes. Gives the number written. */
size_t detok_finish(struct detok *detok, char *out);

#endif
