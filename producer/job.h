/* SPDX-License-Identifier: Apache-2.0
 *
 * job - a job on its way into Kafka: found or claimed, begun, and ended with its total.
 *
 * A job that is there keeps its beginning, so that the outcomes of an earlier submission count, and
 * one that is complete stays so: a repeated submission that is interrupted takes nothing away.
 * One thread.
 */
#ifndef PRODUCER_JOB_H
#define PRODUCER_JOB_H

#include "producer/batch.h"

struct job {
    struct session *session; /* these three are the caller's */
    struct batch batch;      /* what it points to must outlive the job */
    bool is_stream;          /* file_hash is claim_stream_hash(): known of the first line alone */
    /* Set by job_begin(). */
    bool has_begun;
    struct batch_state before;              /* what was known of the job */
    struct partition_offset *first_offsets; /* of a new job */
    char *names;                            /* that first_offsets points to */
};

/* Does nothing where it has begun. REJECT: the name is another file's, and nothing is written. */
bool job_begin(struct job *job, struct err *err);
/* Publishes batch.total and .rejected. REJECT, of a stream: the job is complete with another total,
 * which stays; so this was another stream, though it begins alike. */
bool job_end(struct job *job, struct err *err);
void job_free(struct job *job);

#endif
