/* SPDX-License-Identifier: Apache-2.0
 *
 * results - the outcomes of one job, each request once, as they are or as they come.
 *
 * Reads the results topic from where it ended when the job was submitted, or from where it begins
 * now, if retention has deleted what stood there. Memory is 16-byte ids: a job of 100,000 lines
 * takes 3 MB, whatever its answers weigh.
 */
#ifndef PRODUCER_RESULTS_H
#define PRODUCER_RESULTS_H

#include "producer/batch.h"

struct results_tally {
    uint64_t total; /* requests of the job; 0 while it is still being submitted */
    uint64_t rejected;
    bool complete; /* the job: all lines are produced */
    bool trimmed;  /* retention has deleted results from where the job's begin */
    uint64_t by_status[RESULT_CANCELLED + 1];
    uint64_t finished; /* the sum */
};

enum results_state {
    RESULTS_OPEN,  /* outcomes are to come */
    RESULTS_DONE,  /* each request has its own */
    RESULTS_GONE,  /* some are missing, and retention has deleted results since the job began */
    RESULTS_EXCESS /* more than requests: two inputs were sent under one name */
};

struct results_options {
    const struct record *batch; /* RECORD_BATCH, as batch_find() returned it */
    /* Called once for each request that has its outcome. NULL allowed. */
    bool (*visit)(void *context, const struct result *result, struct err *err);
    /* Called for every token chunk of the job, duplicates and all; NULL: tokens are not read. */
    bool (*visit_chunk)(void *context, const struct token_chunk *chunk, struct err *err);
    /* Called at least every 200 ms while following. False ends it early. NULL allowed. */
    bool (*tick)(void *context, const struct results_tally *tally);
    void *context;
};

/* What is there now. */
bool results_read(struct session *session, const struct results_options *options,
                  struct results_tally *tally, struct err *err);
/* Until every request has its outcome, tick() returns false, or a signal comes. What is trimmed is
 * only read: no waiting completes it. */
bool results_follow(struct session *session, const struct results_options *options,
                    struct results_tally *tally, struct err *err);

/* Of a job without any outcome yet. */
struct results_tally results_tally_of(const struct batch *batch);
enum results_state results_state(const struct results_tally *tally);
/* Is it RESULTS_DONE? */
bool results_done(const struct results_tally *tally);
/* Fills err, REJECT, with what RESULTS_GONE or RESULTS_EXCESS means. */
void results_explain(const struct session *session, const struct batch *batch,
                     const struct results_tally *tally, struct err *err);

#endif
