/* SPDX-License-Identifier: Apache-2.0
 *
 * claim - which submission has a batch id.
 *
 * A job is one file's: whoever comes first has the id, for good, and others are told so before they
 * send any request. Two that begin at once both find nothing, so each writes a BatchClaim and reads
 * the topic again, whose order decides. Nothing is taken back: a submission that dies after
 * its claim leaves the id to its file. Standard input has no hash before its end; it goes on with
 * what another standard input left unfinished, since nobody can tell whether it is the same. A
 * retry (producer/retry.h) sends a part of its file, so it is another job than one that sends all,
 * and than the retry of another job.
 */
#ifndef PRODUCER_CLAIM_H
#define PRODUCER_CLAIM_H

#include "producer/batch.h"

/* Writes a claim for a job that batch_find() did not find (of batch: tenant, batch_id, retry_of,
 * file_name and file_hash, zeros for standard input) and finds the job again: *state is new, *claim
 * the id of this one. */
bool claim_send(struct session *session, const struct batch *batch, struct request_id *claim,
                struct batch_state *state, struct err *err);

/* Is the job, or else its first claim, that of this submission? claim: what claim_send() gave, NULL
 * where the job was there. REJECT, naming the other file or the other job. */
bool claim_check(const struct batch *batch, const struct request_id *claim,
                 const struct batch_state *state, struct err *err);

#endif
