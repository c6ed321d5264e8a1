/* SPDX-License-Identifier: Apache-2.0 */
#include "producer/claim.h"

#include <string.h>

#include "common/clock.h"

void claim_stream_hash(const struct raw_line *first, uint8_t hash[SHA256_SIZE])
{
    /* So that no stream is taken for a file of one line. */
    static const char domain[] = "pelton stream, first line\n";
    struct sha256 *sha = sha256_open();

    sha256_update(sha, domain, sizeof domain - 1);
    if (first->data)
        sha256_update(sha, first->data, first->size);
    else
        sha256_update(sha, &first->size, sizeof first->size);
    sha256_close(sha, hash);
}

bool claim_send(struct session *session, const struct batch *batch, struct batch_state *state,
                struct err *err)
{
    struct record record = {.type = RECORD_BATCH_CLAIM,
                            .u.batch_claim = {.batch_id = batch->batch_id,
                                              .tenant = batch->tenant,
                                              .file_name = batch->file_name,
                                              .retry_of = batch->retry_of,
                                              .sent_ms = clock_wall_ms()}};

    memcpy(record.u.batch_claim.file_hash, batch->file_hash, SHA256_SIZE);
    uuid_random(record.u.batch_claim.claim.bytes);
    if (!session_control(session, &record, err))
        return false;
    batch_free(state);
    if (!batch_find(session, batch->tenant, batch->batch_id, state, err))
        return false;
    if (state->record || state->claim)
        return true;
    return err_set(err, ERR_RETRY, "the claim of batch %.*s was not found where it was written",
                   (int)batch->batch_id.size, batch->batch_id.data);
}

/* What a message shows of a name: a hash and what a retry adds to it. */
static int shown(struct str name)
{
    return name.size > 80 ? 80 : (int)name.size;
}

/* The job has this file, or is about to have it; is it run for the same purpose? */
static bool check_retry_of(const struct batch *batch, struct str retry_of, struct err *err)
{
    const struct str id = batch->batch_id;

    if (str_equal(batch->retry_of, retry_of))
        return true;
    if (retry_of.size > 0)
        return err_set(err, ERR_REJECT, "batch %.*s is a retry of %.*s: choose another --batch",
                       shown(id), id.data, shown(retry_of), retry_of.data);
    return err_set(err, ERR_REJECT, "batch %.*s is not a retry: choose another --batch", shown(id),
                   id.data);
}

bool claim_check(const struct batch *batch, const struct batch_state *state, struct err *err)
{
    const struct batch *begun = state->record ? &state->record->u.batch : NULL;
    const struct batch_claim *first = state->claim ? &state->claim->u.batch_claim : NULL;
    const struct str id = batch->batch_id;
    const struct str name = begun ? begun->file_name : first->file_name;
    const struct str retry_of = begun ? begun->retry_of : first->retry_of;
    const uint8_t *hash = begun ? begun->file_hash : first->file_hash;
    const bool ours = memcmp(hash, batch->file_hash, SHA256_SIZE) == 0;

    if (!check_retry_of(batch, retry_of, err))
        return false;
    if (ours)
        return true;
    if (retry_of.size > 0)
        return err_set(err, ERR_REJECT,
                       "batch %.*s was begun from another file (%.*s): --retry that one in turn, "
                       "or choose another --batch",
                       shown(id), id.data, shown(name), name.data);
    return err_set(err, ERR_REJECT,
                   "batch %.*s was begun from another file (%.*s): choose another --batch",
                   shown(id), id.data, shown(name), name.data);
}
