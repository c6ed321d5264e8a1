/* SPDX-License-Identifier: Apache-2.0
 *
 * prefix - how a request begins, as keys for what is known of requests that begin alike.
 *
 * Batch jobs fill templates: a system prompt, then a few fixed words, then the data. The near key
 * covers both; then there is one for the words alone (the last message's first 12 bytes, up to the
 * first digit, since digits are data) and one for the system prompt alone.
 *
 * A chain is finer: keys of all leading blocks of the prompt, each over all that comes before it,
 * so that requests that begin alike have equal keys as far as they do. Blocks grow with the
 * distance from the beginning, 128 bytes at first, so that a few keys find the end of what two
 * requests share within an eighth of it.
 *
 * Like body_scan it is no validator: it looks at the strings behind "content" or "prompt",
 * whatever they belong to, and any bytes are safe.
 */
#ifndef SCHEDULER_PREFIX_H
#define SCHEDULER_PREFIX_H

#include <stdint.h>

#include "schemas/records.h"

struct prefix_keys {
    uint64_t words;  /* 0: no text was found */
    uint64_t system; /* 0: there is one message only */
};

struct prefix_keys prefix_keys(struct str body);
/* Of both together; 0: no text was found. */
uint64_t prefix_near(const struct prefix_keys *keys);

enum {
    PREFIX_BLOCK_SIZE = 128,
    PREFIX_BLOCKS_OF_A_SIZE = 16, /* then twice the size */
    PREFIX_BLOCKS_MAX = 112,      /* 254 kB */
};

struct prefix_chain {
    uint64_t keys[PREFIX_BLOCKS_MAX];
    uint32_t ends[PREFIX_BLOCKS_MAX]; /* bytes from the first text's beginning */
    uint32_t count;                   /* whole blocks only; 0: no text, or less than one block */
};

/* Of the body's bytes from its first text on, whatever stands before it; realm: of whom and which
 * model's. Equal keys are a good guess that the bytes are equal, not a proof. */
void prefix_chain(struct str body, uint64_t realm, struct prefix_chain *chain);

/* A key for something else, such as a tenant or a model; never 0. */
uint64_t prefix_hash(struct str text);
/* The key in another realm, such as for another model; never 0. */
uint64_t prefix_mix(uint64_t key, uint64_t realm);

#endif
