/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/body_scan.h"

#include <stdbool.h>
#include <string.h>

size_t body_string_end(struct str body, size_t start)
{
    for (size_t i = start; i < body.size; i++) {
        const char *quote = memchr(body.data + i, '"', body.size - i);
        size_t backslashes = 0;

        if (!quote)
            break;
        i = (size_t)(quote - body.data);
        while (i - backslashes > start && body.data[i - backslashes - 1] == '\\')
            backslashes++;
        if (backslashes % 2 == 0)
            return i;
    }
    return body.size;
}

/* i stands on the opening quote; returns the index behind the closing one, or size. */
static size_t skip_string(struct str body, size_t i)
{
    size_t end = body_string_end(body, i + 1);

    return end < body.size ? end + 1 : end;
}

size_t body_skip_space(struct str body, size_t i)
{
    while (i < body.size && memchr(" \t\r\n", body.data[i], 4))
        i++;
    return i;
}

/* Digits from i on; false where there are none. Numbers too large for us saturate. */
static bool read_number(struct str body, size_t i, uint32_t *number)
{
    uint64_t value = 0;
    size_t start = i;

    for (; i < body.size && body.data[i] >= '0' && body.data[i] <= '9'; i++)
        if (value <= UINT32_MAX)
            value = value * 10 + (uint64_t)(body.data[i] - '0');
    *number = value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
    return i > start;
}

static bool key_is(struct str body, size_t start, size_t end, const char *key)
{
    size_t size = strlen(key);

    return end - start == size + 2 && memcmp(body.data + start + 1, key, size) == 0;
}

uint32_t body_max_tokens(struct str body, uint32_t missing)
{
    uint32_t found = missing, number;
    int depth = 0;

    for (size_t i = 0; i < body.size;) {
        char c = body.data[i];
        if (c == '"') {
            size_t end = skip_string(body, i);
            size_t colon = body_skip_space(body, end);
            bool key = depth == 1 && colon < body.size && body.data[colon] == ':';
            if (key && read_number(body, body_skip_space(body, colon + 1), &number)) {
                if (key_is(body, i, end, "max_completion_tokens"))
                    return number;
                if (key_is(body, i, end, "max_tokens"))
                    found = number;
            }
            i = end;
            continue;
        }
        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
        i++;
    }
    return found;
}
