/* SPDX-License-Identifier: Apache-2.0
 *
 * claim - which submission has a batch id.
 *
 * A job is one file's: whoever comes first has the id, for good, and others are told so before they
 * send any request. Two that begin at once both find nothing, so each writes a BatchClaim and reads
 * the topic again, whose order decides. Nothing is taken back: a submission that dies after
 * its claim leaves the id to its file. A stream (standard input, a pipe) has no hash before its
 * end, and is told by its first line: the same generator run again goes on with the job, and
 * another one is refused. Streams that begin alike and differ later are told apart by their totals
 * only, see producer/job.h. A retry (producer/retry.h) sends a part of its file, so it is another
 * job than one that sends all, and than the retry of another job.
 */
#ifndef PRODUCER_CLAIM_H
#define PRODUCER_CLAIM_H

#include "producer/batch.h"
#include "producer/lines.h"

/* What stands for the hash of a stream: that of its first line which is not blank; a raw_line
 * without data and size where there is none. Of a line that is too long only the size counts. */
void claim_stream_hash(const struct raw_line *first, uint8_t hash[SHA256_SIZE]);

/* Writes a claim for a job that batch_find() did not find (of batch: tenant, batch_id, retry_of,
 * file_name and file_hash) and finds the job again: *state is new. */
bool claim_send(struct session *session, const struct batch *batch, struct batch_state *state,
                struct err *err);

/* Is the job, or else its first claim, that of this submission? REJECT, naming the other file or
 * the other job. */
bool claim_check(const struct batch *batch, const struct batch_state *state, struct err *err);

#endif
