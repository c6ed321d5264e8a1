/* SPDX-License-Identifier: Apache-2.0
 *
 * retry - what a job left without an answer, and the job that runs it again.
 *
 * A retry is a job of its own, since a request's id is done for good once it has an outcome; its
 * Batch says whose retry it is (retry_of). Of its file it sends the lines that neither that job nor
 * those it retried itself have completed: failed, expired and cancelled ones, and ones that were
 * never a request. Lines are known by custom_id, so they may be corrected in between. A job's
 * outcomes are final once all are there, and retries are for such jobs alone: the same retry
 * always sends the same lines, and sending it twice is as harmless as sending a file twice.
 *
 * Memory is one entry of common/idmap for every outcome, 31 bytes. One thread.
 */
#ifndef PRODUCER_RETRY_H
#define PRODUCER_RETRY_H

#include "producer/session.h"

enum {
    RETRY_CHAIN_MAX = 100 /* retries of retries; each costs a walk over the results */
};

struct retry;

/* The name of a retry, where id is "": "x" is retried by "x.retry", that by "x.retry2" and so on.
 * REJECT: it would be longer than a batch id may be, or id is the name of the job itself. */
bool retry_name(const char *batch_id, char id[BATCH_ID_SIZE_MAX + 1], struct err *err);

/* Reads the outcomes of a job of this tenant, of the job that it retried, and so on. RETRY where
 * Kafka does not answer or, with *unfinished, where outcomes are missing: the message says how many
 * and of which job. REJECT: there is no such job, or its outcomes cannot be counted on. */
bool retry_open(struct retry **retry, struct session *session, struct str tenant,
                struct str batch_id, bool *unfinished, struct err *err);
void retry_close(struct retry *retry); /* NULL is allowed */

/* For unit tests and retry_open(): notes one outcome. An answer stays one, whatever comes. */
struct retry *retry_new(struct str tenant);
void retry_add(struct retry *retry, struct str custom_id, bool is_answer);

/* Has this custom_id been answered? Counts the lines that it is asked about, each once. */
bool retry_answered(struct retry *retry, struct str custom_id);
uint64_t retry_left_out(const struct retry *retry); /* times that it said yes */
/* Requests without an answer that it was not asked about. */
uint64_t retry_not_found(const struct retry *retry);

/* What `pelton submit` says about a retry when all of it is sent, batch.total 0: nothing is.
 * was_there: the job had been submitted before. As JSON an event "submitted" of the new job or,
 * since there is none, "nothing_to_retry" of the old one. */
void retry_report(const struct retry *retry, const struct batch *batch, bool was_there, bool json);

#endif
