/* SPDX-License-Identifier: Apache-2.0 */
#include "producer/job.h"

#include <inttypes.h>
#include <stdlib.h>

#include "producer/claim.h"

static bool publish(struct job *job, bool complete, struct err *err)
{
    struct record record = {.type = RECORD_BATCH};

    job->batch.complete = complete;
    record.u.batch = job->batch;
    return session_control(job->session, &record, err);
}

static bool find_or_claim(struct job *job, struct err *err)
{
    struct batch *batch = &job->batch;
    struct batch_state *before = &job->before;

    if (!batch_find(job->session, batch->tenant, batch->batch_id, before, err))
        return false;
    /* The offsets are taken before the claim is read again: had the same file begun elsewhere by
     * then, its Batch is found below; if it begins later, its answers come behind them. */
    if (!before->record && (!batch_first_offsets(job->session, &job->first_offsets,
                                                 &batch->first_offsets_count, &job->names, err) ||
                            !claim_send(job->session, batch, before, err)))
        return false;
    if (!claim_check(batch, before, err))
        return false;
    batch->first_offsets = job->first_offsets;
    if (before->record) {
        batch->created_ms = before->record->u.batch.created_ms;
        batch->first_offsets = before->record->u.batch.first_offsets;
        batch->first_offsets_count = before->record->u.batch.first_offsets_count;
    }
    return true;
}

bool job_begin(struct job *job, struct err *err)
{
    if (job->has_begun)
        return true;
    if (!find_or_claim(job, err))
        return false;
    job->has_begun = true;
    /* One that is there says all that could be said now, and perhaps its total, too. */
    return job->before.record || publish(job, false, err);
}

/* Somebody may have completed it since it began. */
static bool check_stream(struct job *job, struct err *err)
{
    const struct batch *batch = &job->batch;
    const struct str id = batch->batch_id;
    struct batch_state now;
    bool ok;

    if (!batch_find(job->session, batch->tenant, id, &now, err))
        return false;
    ok = !now.record || !now.record->u.batch.complete || now.record->u.batch.total == batch->total;
    if (!ok)
        err_set(err, ERR_REJECT,
                "batch %.*s has %" PRIu64 " requests, and this stream %" PRIu64
                ": it is another one, though its first line is the same; choose another --batch",
                id.size > 80 ? 80 : (int)id.size, id.data, now.record->u.batch.total, batch->total);
    batch_free(&now);
    return ok;
}

bool job_end(struct job *job, struct err *err)
{
    return (!job->is_stream || check_stream(job, err)) && publish(job, true, err);
}

void job_free(struct job *job)
{
    batch_free(&job->before);
    free(job->first_offsets);
    free(job->names);
}
