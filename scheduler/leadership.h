/* SPDX-License-Identifier: Apache-2.0
 *
 * leadership - whether this process leads, by group membership on the one-partition leader topic.
 *
 * A classic, cooperative-sticky group with a client of its own: with the range assignor a newcomer
 * takes the partition from a healthy leader, and one client cannot both subscribe and assign. The
 * topic holds nothing; owning leader-0 is the lock. The lock alone fences nobody (its holder may be
 * paused and not know that it lost it); that is what the transactional id is for.
 *
 * One thread, which has to call leadership_poll() at least every five minutes
 * (max.poll.interval.ms) or lose the lock.
 */
#ifndef SCHEDULER_LEADERSHIP_H
#define SCHEDULER_LEADERSHIP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/config.h"
#include "common/err.h"

struct leadership;

struct leadership_options {
    const char *brokers;
    const char *client_id;
    struct config_list settings;
    const char *group_id;
    const char *topic; /* full name of the leader topic */
    int64_t session_timeout_ms;
};

/* Does not wait; membership comes with leadership_poll(). */
bool leadership_open(struct leadership **leadership, const struct leadership_options *options,
                     struct err *err);
/* Leaves the group, so that a successor leads at once. NULL is allowed. */
void leadership_close(struct leadership *leadership);

/* Serves the group for up to timeout_ms; returns at once when the answer of leadership_held()
 * changes. False: FATAL. */
bool leadership_poll(struct leadership *leadership, int timeout_ms, struct err *err);

/* As of the last poll. */
bool leadership_held(const struct leadership *leadership);
/* Member of the group, leading or not. */
bool leadership_joined(const struct leadership *leadership);

/* Ask the group's coordinator whether we still are a member of its present generation. A process
 * that was paused may hold leader-0 only in its own memory, and initialising transactions then
 * would fence the true leader. True: held, and known to the broker a moment ago. RETRY while the
 * group is rebalancing or the coordinator is away, ABORT when the lock is lost. */
bool leadership_confirm(struct leadership *leadership, int timeout_ms, struct err *err);

#endif
