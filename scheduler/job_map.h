/* SPDX-License-Identifier: Apache-2.0
 *
 * job_map - jobs by request id: a hash table of pointers.
 *
 * A job holds its id already, so the table stores none: 10 to 12 bytes a job, where common/idmap,
 * which holds ids, takes 28 to 32. Otherwise it is that table: open addressing with robin-hood
 * order at 78 to 90 % load, grown by an eighth, ids mixed with a random seed. One thread.
 */
#ifndef SCHEDULER_JOB_MAP_H
#define SCHEDULER_JOB_MAP_H

#include "scheduler/jobs.h"

/* Zero-initialise it. */
struct job_map {
    struct job **jobs;  /* (capacity) */
    uint8_t *distances; /* (capacity), from home plus one; 0: free */
    size_t capacity, count;
    uint64_t seed;
};

struct job *job_map_find(const struct job_map *map, const struct request_id *id);
/* The id must not be there. */
void job_map_add(struct job_map *map, struct job *job);
/* It must be there. */
void job_map_remove(struct job_map *map, const struct job *job);
/* Walk in no order: start with *cursor = 0; NULL at the end. No change while walking. */
struct job *job_map_next(const struct job_map *map, size_t *cursor);
void job_map_free(struct job_map *map); /* jobs are not freed */

#endif
