/* SPDX-License-Identifier: Apache-2.0
 *
 * lease - may this worker step and publish now?
 *
 * A lease runs from the sending of the Heartbeat that a renewal names, not from
 * the renewal's arrival: the scheduler counts from no earlier moment, so the
 * worker always stops first, however slow the way between them is.
 *
 * A pure value; time is an argument (monotonic clock, microseconds).
 */
#ifndef WORKER_SHELL_LEASE_H
#define WORKER_SHELL_LEASE_H

#include <stdbool.h>
#include <stdint.h>

/* Heartbeats whose sending times are remembered: at two a second 32 s, ten times a lease. */
enum { LEASE_HEARTBEATS = 64 };

struct lease {
    int64_t length_us;
    int64_t seq;                       /* of the newest Heartbeat; 0: none was sent */
    int64_t sent_us[LEASE_HEARTBEATS]; /* of Heartbeat s at s % LEASE_HEARTBEATS */
    int64_t until_us;                  /* 0: never renewed */
};

void lease_init(struct lease *lease, int64_t length_us);

/* A Heartbeat is about to be sent: gives its seq, counting from 1. */
int64_t lease_heartbeat(struct lease *lease, int64_t now_us);

/* A renewal names a Heartbeat. True if the lease is longer than before; a name that was never sent
 * or is forgotten changes nothing. */
bool lease_renew(struct lease *lease, int64_t heartbeat_seq);

bool lease_valid(const struct lease *lease, int64_t now_us);

/* Is the lack of a lease worth a line of the log? After 10 s, which outlast the change of a
 * scheduler, and then once a minute; and once it is over. Zeroed at first. */
struct lease_watch {
    int64_t since_us; /* without a lease; 0: with one */
    int64_t told_us;  /* 0: not yet */
};
enum lease_word { LEASE_NOTHING_NEW, LEASE_MISSING, LEASE_BACK };

/* Asked at every turn. *seconds: how long it is missing, or was. */
enum lease_word lease_look(struct lease_watch *watch, bool valid, int64_t now_us, int64_t *seconds);

#endif
