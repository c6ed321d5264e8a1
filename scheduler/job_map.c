/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/job_map.h"

#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "common/ids.h"
#include "schemas/codec.h"

enum { CAPACITY_MIN = 16, DISTANCE_MAX = 255 };

static size_t home_of(const struct job_map *map, const struct request_id *id)
{
    uint64_t a, b;

    memcpy(&a, id->bytes, 8);
    memcpy(&b, id->bytes + 8, 8);
    /* The finaliser of splitmix64 over both halves, as in common/idmap.c. */
    a ^= map->seed ^ (b * 0x9e3779b97f4a7c15u);
    a = (a ^ (a >> 30)) * 0xbf58476d1ce4e5b9u;
    a = (a ^ (a >> 27)) * 0x94d049bb133111ebu;
    a ^= a >> 31;
    return (size_t)(((a >> 32) * (uint64_t)map->capacity) >> 32);
}

static size_t next_index(const struct job_map *map, size_t index)
{
    return index + 1 == map->capacity ? 0 : index + 1;
}

static void table_open(struct job_map *map, size_t capacity)
{
    CHECK(capacity <= UINT32_MAX);
    map->capacity = capacity;
    map->count = 0;
    map->jobs = malloc(capacity * sizeof *map->jobs);
    map->distances = calloc(capacity, 1);
    CHECK(map->jobs);
    CHECK(map->distances);
}

/* False: *homeless, the job or one that had to make room for it, would be too far from home. */
static bool insert(struct job_map *map, struct job *job, struct job **homeless)
{
    size_t index = home_of(map, &job->id);

    for (unsigned distance = 1; distance <= DISTANCE_MAX; distance++) {
        if (map->distances[index] == 0) {
            map->jobs[index] = job;
            map->distances[index] = (uint8_t)distance;
            map->count++;
            return true;
        }
        if (map->distances[index] < distance) { /* the richer one moves on */
            struct job *moved = map->jobs[index];
            unsigned moved_distance = map->distances[index];
            map->jobs[index] = job;
            map->distances[index] = (uint8_t)distance;
            job = moved;
            distance = moved_distance;
        }
        index = next_index(map, index);
    }
    *homeless = job;
    return false;
}

static void grow(struct job_map *map)
{
    const struct job_map old = *map;
    size_t capacity = old.capacity;
    struct job *homeless;
    bool fits;

    if (capacity == 0)
        random_bytes(&map->seed, sizeof map->seed);
    do {
        capacity += capacity / 8 + 1;
        table_open(map, capacity < CAPACITY_MIN ? CAPACITY_MIN : capacity);
        fits = true;
        for (size_t i = 0; i < old.capacity && fits; i++)
            if (old.distances[i])
                fits = insert(map, old.jobs[i], &homeless);
        if (!fits) {
            free(map->jobs);
            free(map->distances);
        }
    } while (!fits);
    free(old.jobs);
    free(old.distances);
}

/* Index of the id's job, or capacity. */
static size_t find(const struct job_map *map, const struct request_id *id)
{
    size_t index;

    if (map->capacity == 0)
        return 0;
    index = home_of(map, id);
    for (unsigned distance = 1; map->distances[index] >= distance; distance++) {
        if (request_id_equal(&map->jobs[index]->id, id))
            return index;
        index = next_index(map, index);
        if (distance == DISTANCE_MAX)
            break;
    }
    return map->capacity;
}

struct job *job_map_find(const struct job_map *map, const struct request_id *id)
{
    size_t index = find(map, id);

    return index == map->capacity ? NULL : map->jobs[index];
}

void job_map_add(struct job_map *map, struct job *job)
{
    if (map->count >= map->capacity - map->capacity / 10)
        grow(map);
    while (!insert(map, job, &job))
        grow(map);
}

void job_map_remove(struct job_map *map, const struct job *job)
{
    size_t index = find(map, &job->id);

    CHECK(index < map->capacity);
    CHECK(map->jobs[index] == job);
    /* Everything behind it that is not at home moves one back. */
    for (size_t next = next_index(map, index); map->distances[next] > 1;
         next = next_index(map, next)) {
        map->jobs[index] = map->jobs[next];
        map->distances[index] = (uint8_t)(map->distances[next] - 1);
        index = next;
    }
    map->distances[index] = 0;
    map->count--;
}

struct job *job_map_next(const struct job_map *map, size_t *cursor)
{
    while (*cursor < map->capacity && map->distances[*cursor] == 0)
        ++*cursor;
    return *cursor == map->capacity ? NULL : map->jobs[(*cursor)++];
}

void job_map_free(struct job_map *map)
{
    free(map->jobs);
    free(map->distances);
    *map = (struct job_map){0};
}
