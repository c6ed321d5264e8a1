/* SPDX-License-Identifier: Apache-2.0
 *
 * recovery - a new core is filled from Kafka until it may tick (R2, R6).
 *
 * In this order, after the transactional id has been initialised (which ended the predecessor's
 * transaction one way or the other):
 *   1. state, whole;
 *   2. results and usage from the positions of the last tick to their ends; what a torn transaction
 *      has left out is completed (torn.c);
 *   3. worker-events and control from where the core wants them to their ends, as they were after
 *      that.
 * Then everything is live.
 */
#ifndef SCHEDULER_RECOVERY_H
#define SCHEDULER_RECOVERY_H

#include "common/err.h"
#include "scheduler/feed.h"
#include "scheduler/reader.h"

struct recovery {
    struct feed *feed; /* with a new core */
    struct reader *reader;
    const struct topic_map *topics;
    /* Asked again and again: false (and err) ends the recovery, as leadership is lost. */
    bool (*goes_on)(void *context, struct err *err);
    void *context;
};

/* On success the reader goes on with the live topics. FATAL names a state record that cannot be
 * read; anything else: a later try may succeed. */
bool recovery_run(const struct recovery *recovery, struct err *err);

#endif
