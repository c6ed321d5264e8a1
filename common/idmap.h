/* SPDX-License-Identifier: Apache-2.0
 *
 * idmap - a hash map from 16-byte ids to 8-byte values.
 *
 * Open addressing with robin-hood order, at 78 to 90 % load: 27 to 31 bytes an entry, its value
 * included, so that a million remembered requests take 31 MB. Growing holds the old and the new
 * table for a moment. Ids are expected to be spread already (UUIDs); they are mixed once more with
 * a random seed per map, against ids chosen to collide. One thread.
 */
#ifndef COMMON_IDMAP_H
#define COMMON_IDMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

union idmap_value {
    void *pointer;
    uint64_t number;
};

struct idmap;

struct idmap *idmap_open(size_t count_expected); /* 0 where unknown; grows as needed */
void idmap_close(struct idmap *map);             /* values are not freed; NULL is allowed */
size_t idmap_count(const struct idmap *map);
size_t idmap_memory_size(const struct idmap *map); /* bytes of its table */

/* The value's place, NULL if the id is unknown. Valid until the next put or remove. */
union idmap_value *idmap_get(const struct idmap *map, const uint8_t id[16]);
/* The value's place; a new entry's value is zero and *added (may be NULL) true. */
union idmap_value *idmap_put(struct idmap *map, const uint8_t id[16], bool *added);
/* False if the id is unknown. *value (may be NULL) receives what was stored. */
bool idmap_remove(struct idmap *map, const uint8_t id[16], union idmap_value *value);

/* Walk in no order: start with *cursor = 0; false at the end. No put or remove while walking.
 * id (may be NULL) receives the 16 bytes. */
bool idmap_next(const struct idmap *map, size_t *cursor, uint8_t *id, union idmap_value **value);

#endif
