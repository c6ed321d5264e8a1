/* SPDX-License-Identifier: Apache-2.0
 *
 * tallies - how far many jobs are, in one walk over the results topic.
 *
 * Begins where the results of the oldest of the jobs begin, so it costs what was answered since
 * then, for whomever: 31 bytes of memory for each answer of these jobs, and a second for 90,000
 * results of 750 bytes. How long the walk is, Kafka knows beforehand; a caller that wants no long
 * one gives a limit.
 */
#ifndef PRODUCER_TALLIES_H
#define PRODUCER_TALLIES_H

#include "producer/results.h"

struct tallies {
    const struct batch_state *jobs; /* [count], all of them with a record */
    size_t count;
    struct results_tally *items; /* [count], by job */
    uint64_t walk_max;           /* messages */
    /* Filled: */
    uint64_t walk; /* messages there are to read, transaction markers included */
    bool counted;  /* false: more than walk_max, so items say nothing of outcomes */
};

bool tallies_read(struct session *session, struct tallies *tallies, struct err *err);

#endif
