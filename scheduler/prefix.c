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

/* The next string behind a text's key from *at on, which moves behind it; false: there is none. */
static bool next_text(struct str body, size_t *at, struct str *text)
{
    for (size_t i = *at; i < body.size; i++) {
        size_t start = i + 1, end, value;
        if (body.data[i] != '"')
            continue;
        i = end = body_string_end(body, start);
        value = body_skip_space(body, end + 1);
        if (value >= body.size || body.data[value] != ':' ||
            !is_text_key((struct str){body.data + start, end - start}))
            continue;
        value = body_skip_space(body, value + 1);
        if (value >= body.size || body.data[value] != '"')
            continue;
        end = body_string_end(body, value + 1);
        *text = (struct str){body.data + value + 1, end - value - 1};
        *at = end + 1;
        return true;
    }
    return false;
}

struct prefix_keys prefix_keys(struct str body)
{
    struct str first = {0}, last = {0}, template;
    struct prefix_keys keys = {0};
    uint32_t count = 0;
    size_t at = 0;

    while (next_text(body, &at, &last))
        first = count++ == 0 ? last : first;
    if (count == 0)
        return keys;
    if (count > 1) {
        first.size = first.size < SYSTEM_SIZE ? first.size : SYSTEM_SIZE;
        keys.system = prefix_hash(first);
    }
    template = template_of(last);
    keys.words = prefix_hash(template);
    return keys;
}

uint64_t prefix_near(const struct prefix_keys *keys)
{
    return keys->words ? prefix_mix(keys->words, keys->system) : 0;
}

static uint32_t block_size(uint32_t block)
{
    return (uint32_t)PREFIX_BLOCK_SIZE << block / PREFIX_BLOCKS_OF_A_SIZE;
}

/* A word at a time, because a long prompt is hashed while a tick lasts: 3 GB/s. */
static uint64_t hash_words(uint64_t hash, const char *data, size_t size)
{
    for (size_t i = 0; i < size; i += sizeof hash) {
        uint64_t word;
        memcpy(&word, data + i, sizeof word);
        hash = (hash ^ word) * fnv_prime;
        hash ^= hash >> 29;
    }
    return hash;
}

void prefix_chain(struct str body, uint64_t realm, struct prefix_chain *chain)
{
    struct str text = {0};
    size_t at = 0, used = 0;
    uint64_t hash = realm;

    chain->count = 0;
    if (!next_text(body, &at, &text))
        return;
    text.size = body.size - (size_t)(text.data - body.data);
    while (chain->count < PREFIX_BLOCKS_MAX && used + block_size(chain->count) <= text.size) {
        hash = hash_words(hash, text.data + used, block_size(chain->count));
        used += block_size(chain->count);
        chain->ends[chain->count] = (uint32_t)used;
        chain->keys[chain->count++] = prefix_mix(hash, realm);
    }
}
