/* SPDX-License-Identifier: Apache-2.0
 *
 * stop_strings - where an answer ends because a stop string was said.
 *
 * A stop string may be spread over tokens, so text that could still become one
 * must not be published yet; the scan says how much is safe.
 *
 * Pure functions; any thread.
 */
#ifndef WORKER_STOP_STRINGS_H
#define WORKER_STOP_STRINGS_H

#include <stdbool.h>
#include <stddef.h>

#include "schemas/records.h"

enum {
    STOP_STRINGS_MAX = 4,        /* OpenAI's limit */
    STOP_STRINGS_SIZE_MAX = 256, /* bytes of one: bounds the work per token */
};

/* Borrowed text, each of 1 to STOP_STRINGS_SIZE_MAX bytes. */
struct stop_strings {
    struct str items[STOP_STRINGS_MAX];
    size_t count;
};

/* text (size) grew from its first `scanned` bytes, in which an earlier call found nothing. True if
 * a stop string is in it now: *safe is where the earliest one starts, and the answer ends there.
 * Else *safe is the size of the part that no later text can turn into a stop string. */
bool stop_strings_scan(const struct stop_strings *stops, const char *text, size_t size,
                       size_t scanned, size_t *safe);

#endif
