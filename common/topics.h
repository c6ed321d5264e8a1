/* SPDX-License-Identifier: Apache-2.0
 *
 * topics - the topic table: names, partitions, retention, in one place.
 *
 *   requests.interactive, requests.bulk   producer -> scheduler
 *   assignments    scheduler -> worker     partition = worker slot
 *   worker-events  worker -> scheduler     partition = worker slot
 *   tokens         worker -> users
 *   results        scheduler -> users
 *   usage          scheduler -> ledger
 *   state          scheduler (compact)     1 partition
 *   control        producer -> scheduler (compact)   1 partition
 *   dead-letters   scheduler -> people
 *   leader         elects the scheduler    1 partition, empty
 */
#ifndef COMMON_TOPICS_H
#define COMMON_TOPICS_H

#include <stddef.h>
#include <stdint.h>

enum topic {
    TOPIC_REQUESTS_INTERACTIVE,
    TOPIC_REQUESTS_BULK,
    TOPIC_ASSIGNMENTS,
    TOPIC_WORKER_EVENTS,
    TOPIC_TOKENS,
    TOPIC_RESULTS,
    TOPIC_USAGE,
    TOPIC_STATE,
    TOPIC_CONTROL,
    TOPIC_DEAD_LETTERS,
    TOPIC_LEADER,
    TOPIC_COUNT
};

struct topic_spec {
    const char *name;         /* without prefix */
    uint32_t partitions;      /* default; 0: one per slot */
    const char *cleanup;      /* cleanup.policy */
    const char *retention_ms; /* retention.ms; "-1" without limit */
};

enum { TOPIC_NAME_SIZE_MAX = 250 };

extern const struct topic_spec topic_specs[TOPIC_COUNT];

/* prefix + name, e.g. "pelton.results". */
void topic_name(char name[TOPIC_NAME_SIZE_MAX], const char *prefix, enum topic topic);

#endif
