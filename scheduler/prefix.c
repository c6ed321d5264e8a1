/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/prefix.h"

#include <stdbool.h>
#include <string.h>

#include "scheduler/body_scan.h"

/* Long system prompts differ early or not at all; hashing 256 bytes costs less than the scan. */
enum { TEMPLATE_SIZE = 12, SYSTEM_SIZE = 256 };

static const uint64_t fnv_start = 14695981039346656037u;
static const uint64_t fnv_prime = 1099511628211u;

static uint64_t not_zero(uint64_t key)
{
    return key ? key : 1;
}

static uint64_t hash_bytes(uint64_t hash, const char *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (uint8_t)data[i]) * fnv_prime;
    return hash;
}

uint64_t prefix_hash(struct str text)
{
    return not_zero(hash_bytes(fnv_start, text.data, text.size));
}

/* The finalizer of MurmurHash3: FNV's low bits alone are too regular for a table. */
uint64_t prefix_mix(uint64_t key, uint64_t realm)
{
    key ^= realm * fnv_prime;
    key = (key ^ key >> 33) * 0xff51afd7ed558ccdu;
    key = (key ^ key >> 33) * 0xc4ceb9fe1a85ec53u;
    return not_zero(key ^ key >> 33);
}

static size_t skip_space(struct str body, size_t i)
{
    while (i < body.size && memchr(" \t\r\n", body.data[i], 4))
        i++;
    return i;
}

static bool is_text_key(struct str key)
{
    return (key.size == 7 && memcmp(key.data, "content", 7) == 0) ||
           (key.size == 6 && memcmp(key.data, "prompt", 6) == 0);
}

/* The words before the data. Escapes end them, too: a line break behind the words is no difference.
 */
static struct str template_of(struct str text)
{
    size_t size = 0;

    while (size < text.size && size < TEMPLATE_SIZE &&
           !(text.data[size] >= '0' && text.data[size] <= '9') && text.data[size] != '\\')
        size++;
    while (size > 0 && text.data[size - 1] == ' ')
        size--;
    return (struct str){text.data, size};
}

struct prefix_keys prefix_keys(struct str body)
{
    struct str first = {0}, last = {0}, template;
    struct prefix_keys keys = {0};
    uint32_t count = 0;

    for (size_t i = 0; i < body.size; i++) {
        size_t start = i + 1, end, value;
        if (body.data[i] != '"')
            continue;
        i = end = body_string_end(body, start);
        value = skip_space(body, end + 1);
        if (value >= body.size || body.data[value] != ':' ||
            !is_text_key((struct str){body.data + start, end - start}))
            continue;
        value = skip_space(body, value + 1);
        if (value >= body.size || body.data[value] != '"')
            continue;
        i = body_string_end(body, value + 1);
        last = (struct str){body.data + value + 1, i - value - 1};
        first = count++ == 0 ? last : first;
    }
    if (count == 0)
        return keys;
    if (count > 1) {
        first.size = first.size < SYSTEM_SIZE ? first.size : SYSTEM_SIZE;
        keys.system = prefix_hash(first);
    }
    template = template_of(last);
    keys.words = prefix_hash(template);
    keys.near = prefix_mix(keys.words, keys.system);
    return keys;
}
