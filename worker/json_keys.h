/* SPDX-License-Identifier: Apache-2.0
 *
 * json_keys - numbers and flags out of a JSON object, with bounds.
 *
 * A reader keeps the first failure and answers defaults after it, so that
 * twenty reads stand one below the other and one check follows them.
 */
#ifndef WORKER_JSON_KEYS_H
#define WORKER_JSON_KEYS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

struct json_keys {
    const char *path;     /* of the file, for errors */
    const json_t *object; /* NULL reads as an empty one */
    struct err *err;
    bool failed;
};

/* An absent key and null give fallback; below least or above most is an error that names both. */
uint32_t json_keys_count(struct json_keys *keys, const char *key, uint32_t fallback, uint32_t least,
                         uint32_t most);

/* The same, absent is an error. */
uint32_t json_keys_count_needed(struct json_keys *keys, const char *key, uint32_t least,
                                uint32_t most);
double json_keys_number(struct json_keys *keys, const char *key, double fallback, double least,
                        double most);
bool json_keys_flag(struct json_keys *keys, const char *key, bool fallback);

/* NULL when absent; a string as long as the object lives. */
const char *json_keys_string(struct json_keys *keys, const char *key);

#endif
