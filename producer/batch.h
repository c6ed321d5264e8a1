/* SPDX-License-Identifier: Apache-2.0
 *
 * batch - jobs, as the control topic knows them.
 */
#ifndef PRODUCER_BATCH_H
#define PRODUCER_BATCH_H

#include "producer/session.h"

/* What is known of a job, which tenant and batch id name together; batch_free() frees it. */
struct batch_state {
    struct record *record; /* the newest RECORD_BATCH, NULL if there is none */
    struct record *claim;  /* the first RECORD_BATCH_CLAIM, NULL if there is none */
    bool cancelled;
};

/* The job of this tenant with exactly this id. An unknown job is no error: *state is zeros. */
bool batch_find(struct session *session, struct str tenant, struct str id,
                struct batch_state *state, struct err *err);
/* A job, of --tenant where that is given: the one whose id is id, or the only one whose id starts
 * with it; id NULL: the newest. REJECT, saying where was looked, for none and for several;
 * *ambiguous tells these apart. */
bool batch_need(struct session *session, const char *id, struct batch_state *state, bool *ambiguous,
                struct err *err);
void batch_free(struct batch_state *state);

/* The jobs of --tenant that have begun, in the order in which they did; batch_list_free(). */
bool batch_list(struct session *session, struct batch_state **states, size_t *count,
                struct err *err);
void batch_list_free(struct batch_state *states, size_t count);

/* Ends of results, tokens and dead-letters now. *offsets is for free(); topics points to names
 * that live as long as *names, which is for free(), too. */
bool batch_first_offsets(struct session *session, struct partition_offset **offsets, size_t *count,
                         char **names, struct err *err);

/* Where the job begins in a partition: 0, its very start, if that came later. */
int64_t batch_first_offset(const struct batch *batch, const char *topic, int32_t partition);

/* Where to start reading a topic for this job: batch_first_offset() of every partition of today.
 * name holds the topic's; *positions is for free(). */
bool batch_positions(struct session *session, const struct batch *batch, const char *name,
                     struct kafka_position **positions, size_t *count, struct err *err);

#endif
