/* SPDX-License-Identifier: Apache-2.0
 *
 * Slots are ordered by hash (robin hood), so a lookup ends as soon as it meets an entry that is
 * closer to its home than the searched one would be; at 90 % load a miss looks at about five
 * slots. Capacity is no power of two: growing by an eighth keeps the table at least 78 % full.
 */
#include "common/idmap.h"

#include <string.h>

#include "common/check.h"
#include "common/ids.h"

struct slot {
    uint8_t id[16];
    union idmap_value value;
};

struct idmap {
    struct slot *slots;
    uint8_t *distances; /* from home plus one; 0: free */
    size_t capacity;
    size_t count;
    uint64_t seed;
};

enum { CAPACITY_MIN = 16, DISTANCE_MAX = 255 };

static size_t home_of(const struct idmap *map, const uint8_t id[16])
{
    uint64_t a, b;

    memcpy(&a, id, 8);
    memcpy(&b, id + 8, 8);
    /* The finaliser of splitmix64 over both halves. */
    a ^= map->seed ^ (b * 0x9e3779b97f4a7c15u);
    a = (a ^ (a >> 30)) * 0xbf58476d1ce4e5b9u;
    a = (a ^ (a >> 27)) * 0x94d049bb133111ebu;
    a ^= a >> 31;
    /* The upper 32 bits times the capacity, instead of a division. */
    return (size_t)(((a >> 32) * (uint64_t)map->capacity) >> 32);
}

static void table_open(struct idmap *map, size_t capacity)
{
    CHECK(capacity <= UINT32_MAX);
    map->capacity = capacity;
    map->count = 0;
    map->slots = malloc(capacity * sizeof *map->slots);
    map->distances = calloc(capacity, 1);
    CHECK(map->slots);
    CHECK(map->distances);
}

struct idmap *idmap_open(size_t count_expected)
{
    struct idmap *map = malloc(sizeof *map);
    size_t capacity = count_expected + count_expected / 8;

    CHECK(map);
    random_bytes(&map->seed, sizeof map->seed);
    table_open(map, capacity < CAPACITY_MIN ? CAPACITY_MIN : capacity);
    return map;
}

void idmap_close(struct idmap *map)
{
    if (!map)
        return;
    free(map->slots);
    free(map->distances);
    free(map);
}

size_t idmap_count(const struct idmap *map)
{
    return map->count;
}

size_t idmap_memory_size(const struct idmap *map)
{
    return map->capacity * (sizeof *map->slots + 1);
}

static size_t next_index(const struct idmap *map, size_t index)
{
    return index + 1 == map->capacity ? 0 : index + 1;
}

/* Index of the id's slot, or capacity. */
static size_t find(const struct idmap *map, const uint8_t id[16])
{
    size_t index = home_of(map, id);

    for (unsigned distance = 1; map->distances[index] >= distance; distance++) {
        if (memcmp(map->slots[index].id, id, 16) == 0)
            return index;
        index = next_index(map, index);
        if (distance == DISTANCE_MAX)
            break;
    }
    return map->capacity;
}

/* Puts an entry that is not there yet. False: *homeless, the entry or one that had to make room for
 * it, would be too far from home. */
static bool insert(struct idmap *map, struct slot entry, struct slot *homeless)
{
    size_t index = home_of(map, entry.id);
    unsigned distance = 1;

    for (;;) {
        if (map->distances[index] == 0) {
            map->slots[index] = entry;
            map->distances[index] = (uint8_t)distance;
            map->count++;
            return true;
        }
        if (map->distances[index] < distance) { /* the richer entry moves on */
            struct slot moved = map->slots[index];
            unsigned moved_distance = map->distances[index];
            map->slots[index] = entry;
            map->distances[index] = (uint8_t)distance;
            entry = moved;
            distance = moved_distance;
        }
        index = next_index(map, index);
        if (++distance > DISTANCE_MAX) {
            *homeless = entry;
            return false;
        }
    }
}

static void grow(struct idmap *map)
{
    size_t capacity = map->capacity;
    struct idmap old = *map;
    struct slot homeless;
    bool fits;

    do {
        capacity += capacity / 8 + 1;
        table_open(map, capacity);
        fits = true;
        for (size_t i = 0; i < old.capacity && fits; i++)
            if (old.distances[i])
                fits = insert(map, old.slots[i], &homeless);
        if (!fits) {
            free(map->slots);
            free(map->distances);
        }
    } while (!fits);
    free(old.slots);
    free(old.distances);
}

union idmap_value *idmap_get(const struct idmap *map, const uint8_t id[16])
{
    size_t index = find(map, id);

    return index == map->capacity ? NULL : &map->slots[index].value;
}

union idmap_value *idmap_put(struct idmap *map, const uint8_t id[16], bool *added)
{
    size_t index = find(map, id);
    struct slot entry = {.value.number = 0};

    if (added)
        *added = index == map->capacity;
    if (index < map->capacity)
        return &map->slots[index].value;
    memcpy(entry.id, id, 16);
    if (map->count >= map->capacity - map->capacity / 10)
        grow(map);
    while (!insert(map, entry, &entry))
        grow(map);
    return idmap_get(map, id);
}

bool idmap_remove(struct idmap *map, const uint8_t id[16], union idmap_value *value)
{
    size_t index = find(map, id);
    size_t next;

    if (index == map->capacity)
        return false;
    if (value)
        *value = map->slots[index].value;
    /* Everything behind it that is not at home moves one back. */
    for (next = next_index(map, index); map->distances[next] > 1; next = next_index(map, next)) {
        map->slots[index] = map->slots[next];
        map->distances[index] = (uint8_t)(map->distances[next] - 1);
        index = next;
    }
    map->distances[index] = 0;
    map->count--;
    return true;
}

bool idmap_next(const struct idmap *map, size_t *cursor, uint8_t *id, union idmap_value **value)
{
    while (*cursor < map->capacity && map->distances[*cursor] == 0)
        ++*cursor;
    if (*cursor == map->capacity)
        return false;
    if (id)
        memcpy(id, map->slots[*cursor].id, 16);
    *value = &map->slots[*cursor].value;
    ++*cursor;
    return true;
}
