/* SPDX-License-Identifier: Apache-2.0
 *
 * prefix - how a request begins, as keys for what is known of requests that begin alike.
 *
 * Batch jobs fill templates: a system prompt, then a few fixed words, then the data. The near key
 * covers both; then there is one for the words alone (the last message's first 12 bytes, up to the
 * first digit, since digits are data) and one for the system prompt alone.
 *
 * Like body_scan it is no validator: it looks at the strings behind "content" or "prompt",
 * whatever they belong to, and any bytes are safe.
 */
#ifndef SCHEDULER_PREFIX_H
#define SCHEDULER_PREFIX_H

#include <stdint.h>

#include "schemas/records.h"

struct prefix_keys {
    uint64_t near;   /* 0: no text was found */
    uint64_t words;  /* the same */
    uint64_t system; /* 0: there is one message only */
};

struct prefix_keys prefix_keys(struct str body);

/* A key for something else, such as a tenant or a model; never 0. */
uint64_t prefix_hash(struct str text);
/* The key in another realm, such as for another model; never 0. */
uint64_t prefix_mix(uint64_t key, uint64_t realm);

#endif
