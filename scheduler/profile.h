/* SPDX-License-Identifier: Apache-2.0
 *
 * profile - which experts requests like this one have used.
 *
 * A worker reports with each answer how often its tokens chose each expert. A
 * profile is that as shares, by layer. Requests of one job use the same experts,
 * so the profile of what begins alike predicts that of the next one, before its
 * prefill; the table holds such profiles by key (scheduler/prefix.h), smoothed
 * over answers, the least recently used one forgotten when it is full.
 *
 * It knows neither requests nor workers. One thread.
 */
#ifndef SCHEDULER_PROFILE_H
#define SCHEDULER_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "schemas/records.h"

/* What a layer's shares add up to, but for rounding. */
enum { PROFILE_ONE = 16384 };
/* What workers report at most; more is refused. */
enum { PROFILE_CELLS_MAX = 1024 };

/* One allocation, for free(). */
struct profile {
    uint32_t experts; /* per layer */
    uint32_t cells;   /* layers times experts */
    uint16_t shares[];
};

/* NULL unless counts (layers, experts) has whole layers of at least one expert, nothing negative
 * and at most PROFILE_CELLS_MAX. A layer without counts is spread evenly. */
struct profile *profile_new(struct i32_array counts, uint32_t experts);
struct profile *profile_copy(const struct profile *from);

struct profile_table;

struct profile_table *profile_table_open(size_t count_max); /* at least 1 */
void profile_table_close(struct profile_table *table);      /* NULL is allowed */
size_t profile_table_count(const struct profile_table *table);

/* NULL: unknown. The table's own, until the next learn. */
const struct profile *profile_table_find(struct profile_table *table, uint64_t key);

/* A quarter of the new one goes into what is known, so that eight answers replace nine tenths of
 * it. One of another shape (the worker counts other layers) replaces it at once. */
void profile_table_learn(struct profile_table *table, uint64_t key, const struct profile *seen);

#endif
