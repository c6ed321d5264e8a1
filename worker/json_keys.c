/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/json_keys.h"

#include <stddef.h>

/* The value of a key; NULL when there is none, when it is null, or after a failure. */
static const json_t *find(const struct json_keys *keys, const char *key)
{
    const json_t *value = json_object_get(keys->object, key);

    return keys->failed || json_is_null(value) ? NULL : value;
}

static uint32_t fail(struct json_keys *keys, const char *key, const char *what)
{
    keys->failed = true;
    err_set(keys->err, ERR_REJECT, "%s: %s %s", keys->path, key, what);
    return 0;
}

uint32_t json_keys_count(struct json_keys *keys, const char *key, uint32_t fallback, uint32_t least,
                         uint32_t most)
{
    const json_t *value = find(keys, key);
    json_int_t number = json_integer_value(value);

    if (!value)
        return fallback;
    if (!json_is_integer(value))
        return fail(keys, key, "is not an integer");
    if (number < (json_int_t)least || number > (json_int_t)most) {
        keys->failed = true;
        err_set(keys->err, ERR_REJECT, "%s: %s is %lld, allowed are %u to %u", keys->path, key,
                (long long)number, least, most);
        return fallback;
    }
    return (uint32_t)number;
}

uint32_t json_keys_count_needed(struct json_keys *keys, const char *key, uint32_t least,
                                uint32_t most)
{
    if (!keys->failed && !find(keys, key))
        return fail(keys, key, "is missing");
    return json_keys_count(keys, key, least, least, most);
}

double json_keys_number(struct json_keys *keys, const char *key, double fallback, double least,
                        double most)
{
    const json_t *value = find(keys, key);
    double number = json_number_value(value);

    if (!value)
        return fallback;
    if (!json_is_number(value)) {
        fail(keys, key, "is not a number");
        return fallback;
    }
    if (!(number >= least && number <= most)) {
        keys->failed = true;
        err_set(keys->err, ERR_REJECT, "%s: %s is %g, allowed are %g to %g", keys->path, key,
                number, least, most);
        return fallback;
    }
    return number;
}

bool json_keys_flag(struct json_keys *keys, const char *key, bool fallback)
{
    const json_t *value = find(keys, key);

    if (!value)
        return fallback;
    if (!json_is_boolean(value))
        return fail(keys, key, "is not true or false");
    return json_is_true(value);
}

const char *json_keys_string(struct json_keys *keys, const char *key)
{
    const json_t *value = find(keys, key);

    if (value && !json_is_string(value))
        fail(keys, key, "is not a string");
    return json_string_value(value);
}
