/* SPDX-License-Identifier: Apache-2.0
 *
 * tallies - how far many jobs are, in one walk over the results topic.
 *
 * Begins where the results of the oldest of the jobs begin, so it costs what was answered since
 * then, for whomever: 31 bytes of memory for each answer of these jobs, and a second for 90,000
 * results of 750 bytes. How much that is for each job, Kafka knows beforehand: a caller that wants
 * no long walk gives a limit, and older jobs are left out.
 */
#ifndef PRODUCER_TALLIES_H
#define PRODUCER_TALLIES_H

#include "producer/results.h"

struct tallies {
    const struct batch_state *jobs; /* [count], all of them with a record */
    size_t count;
    uint64_t walk_max; /* messages; 0: none is counted */
    /* Filled: */
    struct results_tally *items; /* [count], by job; without outcomes where it is not counted */
    bool *counted;               /* [count]; false: more than walk_max since this job began */
    size_t left_out;             /* jobs that are not counted */
    uint64_t walk; /* messages since the oldest job began, transaction markers included */
};

/* items and counted are from the caller. */
bool tallies_read(struct session *session, struct tallies *tallies, struct err *err);

#endif
