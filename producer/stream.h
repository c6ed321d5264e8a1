/* SPDX-License-Identifier: Apache-2.0
 *
 * stream - token chunks of one request, put together.
 *
 * Chunks may come twice and from several attempts; a later attempt says the very same tokens, again
 * from the first. So a chunk counts if its attempt is not older than the current one and if it
 * starts no later than what is already there ends; the part that is there already is cut off. A
 * pure value.
 */
#ifndef PRODUCER_STREAM_H
#define PRODUCER_STREAM_H

#include "schemas/records.h"

/* Zero-initialise it. */
struct stream {
    uint32_t attempt;
    uint32_t next;    /* index of the first id that is missing */
    size_t text_size; /* bytes of text so far */
};

/* What the chunk adds, which may be nothing; points into the chunk. */
struct str stream_accept(struct stream *stream, const struct token_chunk *chunk);
/* What the whole text adds to what has been streamed. */
struct str stream_finish(struct stream *stream, struct str text);

#endif
