/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/profile.h"

#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "common/idmap.h"

enum { SMOOTHING = 4 }; /* one part in so many is new */

struct entry {
    uint8_t id[16];
    struct profile *profile;
    struct entry *prev, *next; /* by use, the newest first */
};

struct profile_table {
    struct idmap *entries;
    struct entry *newest, *oldest;
    size_t count_max;
};

static size_t profile_size(uint32_t cells)
{
    return sizeof(struct profile) + cells * sizeof(uint16_t);
}

static bool is_valid(struct i32_array counts, uint32_t experts)
{
    if (experts == 0 || counts.count == 0 || counts.count > PROFILE_CELLS_MAX ||
        counts.count % experts != 0)
        return false;
    for (size_t i = 0; i < counts.count; i++)
        if (counts.items[i] < 0)
            return false;
    return true;
}

struct profile *profile_new(struct i32_array counts, uint32_t experts)
{
    struct profile *profile;

    if (!is_valid(counts, experts))
        return NULL;
    profile = malloc(profile_size((uint32_t)counts.count));
    CHECK(profile);
    profile->experts = experts;
    profile->cells = (uint32_t)counts.count;
    for (uint32_t from = 0; from < profile->cells; from += experts) {
        int64_t sum = 0;
        double scale;
        for (uint32_t e = 0; e < experts; e++)
            sum += counts.items[from + e];
        scale = sum > 0 ? (double)PROFILE_ONE / (double)sum : 0;
        for (uint32_t e = 0; e < experts; e++)
            profile->shares[from + e] =
                (uint16_t)(sum > 0 ? counts.items[from + e] * scale + 0.5 : PROFILE_ONE / experts);
    }
    return profile;
}

struct profile *profile_copy(const struct profile *from)
{
    struct profile *copy = malloc(profile_size(from->cells));

    CHECK(copy);
    memcpy(copy, from, profile_size(from->cells));
    return copy;
}

struct profile_table *profile_table_open(size_t count_max)
{
    struct profile_table *table = calloc(1, sizeof *table);

    CHECK(table);
    CHECK(count_max >= 1);
    table->entries = idmap_open(0);
    table->count_max = count_max;
    return table;
}

static void unlink_entry(struct profile_table *table, struct entry *entry)
{
    if (entry->prev)
        entry->prev->next = entry->next;
    else
        table->newest = entry->next;
    if (entry->next)
        entry->next->prev = entry->prev;
    else
        table->oldest = entry->prev;
}

static void link_newest(struct profile_table *table, struct entry *entry)
{
    entry->prev = NULL;
    entry->next = table->newest;
    if (table->newest)
        table->newest->prev = entry;
    else
        table->oldest = entry;
    table->newest = entry;
}

static void forget_oldest(struct profile_table *table)
{
    struct entry *entry = table->oldest;

    unlink_entry(table, entry);
    idmap_remove(table->entries, entry->id, NULL);
    free(entry->profile);
    free(entry);
}

void profile_table_close(struct profile_table *table)
{
    if (!table)
        return;
    while (table->oldest)
        forget_oldest(table);
    idmap_close(table->entries);
    free(table);
}

size_t profile_table_count(const struct profile_table *table)
{
    return idmap_count(table->entries);
}

/* idmap looks at the first bytes of an id, the key is a hash already. */
static void make_id(uint64_t key, uint8_t id[16])
{
    memcpy(id, &key, sizeof key);
    memcpy(id + sizeof key, &key, sizeof key);
}

const struct profile *profile_table_find(struct profile_table *table, uint64_t key)
{
    uint8_t id[16];
    union idmap_value *value;
    struct entry *entry;

    make_id(key, id);
    value = idmap_get(table->entries, id);
    if (!value)
        return NULL;
    entry = value->pointer;
    unlink_entry(table, entry);
    link_newest(table, entry);
    return entry->profile;
}

static void blend(struct profile *known, const struct profile *seen)
{
    for (uint32_t i = 0; i < known->cells; i++)
        known->shares[i] =
            (uint16_t)((known->shares[i] * (SMOOTHING - 1u) + seen->shares[i] + SMOOTHING / 2) /
                       SMOOTHING);
}

void profile_table_learn(struct profile_table *table, uint64_t key, const struct profile *seen)
{
    uint8_t id[16];
    union idmap_value *value;
    struct entry *entry;

    make_id(key, id);
    value = idmap_get(table->entries, id);
    if (value) {
        entry = value->pointer;
        unlink_entry(table, entry);
        link_newest(table, entry);
        if (entry->profile->experts == seen->experts && entry->profile->cells == seen->cells) {
            blend(entry->profile, seen);
            return;
        }
        free(entry->profile);
        entry->profile = profile_copy(seen);
        return;
    }
    if (idmap_count(table->entries) == table->count_max)
        forget_oldest(table);
    entry = calloc(1, sizeof *entry);
    CHECK(entry);
    memcpy(entry->id, id, sizeof id);
    entry->profile = profile_copy(seen);
    link_newest(table, entry);
    idmap_put(table->entries, id, NULL)->pointer = entry;
}
