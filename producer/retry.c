/* SPDX-License-Identifier: Apache-2.0 */
#include "producer/retry.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "common/idmap.h"
#include "producer/render.h"
#include "producer/results.h"

enum state { FAILED, FAILED_AND_FOUND, ANSWERED };

struct retry {
    char tenant[TENANT_SIZE_MAX + 1];
    struct idmap *outcomes; /* enum state by custom_id */
    uint64_t not_found;     /* entries that are FAILED */
    uint64_t left_out;      /* lines whose entry is ANSWERED */
};

bool retry_name(const char *batch_id, char id[BATCH_ID_SIZE_MAX + 1], struct err *err)
{
    static const char suffix[] = ".retry";
    size_t size = strlen(batch_id), digits = 0, stem;
    char count[12] = "";
    int written;

    if (*id)
        return strcmp(id, batch_id) != 0 ||
               err_set(err, ERR_REJECT,
                       "--batch and --retry are the same: a retry is a job of its own");
    while (digits < size && batch_id[size - digits - 1] >= '0' &&
           batch_id[size - digits - 1] <= '9')
        digits++;
    stem = size - digits;
    if (stem >= sizeof suffix - 1 && digits < 9 && batch_id[stem] != '0' && /* a count of ours */
        strncmp(batch_id + stem - (sizeof suffix - 1), suffix, sizeof suffix - 1) == 0) {
        snprintf(count, sizeof count, "%lu",
                 digits > 0 ? strtoul(batch_id + stem, NULL, 10) + 1 : 2);
        stem -= sizeof suffix - 1;
    } else {
        stem = size;
    }
    written = snprintf(id, BATCH_ID_SIZE_MAX + 1, "%.*s%s%s", (int)stem, batch_id, suffix, count);
    return written <= BATCH_ID_SIZE_MAX ||
           err_set(err, ERR_REJECT,
                   "%.60s... and %s exceed the %d bytes of a batch id; give --batch ID", batch_id,
                   suffix, BATCH_ID_SIZE_MAX);
}

struct retry *retry_new(struct str tenant)
{
    struct retry *retry = calloc(1, sizeof *retry);

    CHECK(retry);
    CHECK(tenant.size <= TENANT_SIZE_MAX);
    memcpy(retry->tenant, tenant.data, tenant.size);
    retry->outcomes = idmap_open(0);
    return retry;
}

void retry_close(struct retry *retry)
{
    if (!retry)
        return;
    idmap_close(retry->outcomes);
    free(retry);
}

/* The id of the custom_id, whichever job of the chain it is in. */
static struct request_id key_of(const struct retry *retry, struct str custom_id)
{
    struct request_id key;

    request_id_make(str_from(retry->tenant), str_from(""), custom_id, &key);
    return key;
}

void retry_add(struct retry *retry, struct str custom_id, bool is_answer)
{
    const struct request_id key = key_of(retry, custom_id);
    bool is_new;
    union idmap_value *value = idmap_put(retry->outcomes, key.bytes, &is_new);

    if (is_new) {
        value->number = FAILED;
        retry->not_found++;
    }
    if (is_answer && value->number == FAILED) {
        value->number = ANSWERED;
        retry->not_found--;
    }
}

bool retry_answered(struct retry *retry, struct str custom_id)
{
    const struct request_id key = key_of(retry, custom_id);
    union idmap_value *value = idmap_get(retry->outcomes, key.bytes);

    if (value && value->number == FAILED) {
        value->number = FAILED_AND_FOUND;
        retry->not_found--;
    }
    if (!value || value->number != ANSWERED)
        return false;
    retry->left_out++;
    return true;
}

uint64_t retry_left_out(const struct retry *retry)
{
    return retry->left_out;
}

uint64_t retry_not_found(const struct retry *retry)
{
    return retry->not_found;
}

static void report_event(const struct retry *retry, const struct batch *batch)
{
    const bool is_job = batch->total > 0;
    const struct str id = is_job ? batch->batch_id : batch->retry_of;
    json_t *members =
        json_pack("{s:s%, s:I, s:I, s:I, s:I}", "batch", id.data, id.size, "total",
                  (json_int_t)batch->total, "rejected", (json_int_t)batch->rejected, "left_out",
                  (json_int_t)retry->left_out, "not_found", (json_int_t)retry->not_found);

    if (is_job)
        json_object_set_new(members, "retry_of",
                            json_stringn(batch->retry_of.data, batch->retry_of.size));
    render_event(stdout, is_job ? "submitted" : "nothing_to_retry", members);
}

void retry_report(const struct retry *retry, const struct batch *batch, bool was_there, bool json)
{
    const struct str id = batch->batch_id, of = batch->retry_of;

    if (json)
        report_event(retry, batch);
    else if (batch->total > 0)
        printf("batch %.*s: %" PRIu64 " requests sent, %" PRIu64 " lines rejected, %" PRIu64
               " left out that are answered%s\n",
               (int)id.size, id.data, batch->total, batch->rejected, retry->left_out,
               was_there ? " (submitted before)" : "");
    else
        printf("batch %.*s: nothing to retry, all %" PRIu64 " requests of the file are answered"
               ", %" PRIu64 " lines rejected\n",
               (int)of.size, of.data, retry->left_out, batch->rejected);
    fflush(stdout);
    if (retry->not_found > 0)
        fprintf(stderr,
                "pelton: %" PRIu64 " requests without an answer have no line in the file that "
                "could be sent\n",
                retry->not_found);
}

static bool visit(void *context, const struct result *result, struct err *err)
{
    (void)err;
    retry_add(context, result->custom_id, result->status == RESULT_COMPLETED);
    return true;
}

static bool is_finished(const struct session *session, const struct batch *batch,
                        const struct results_tally *tally, struct err *err)
{
    const int size = batch->batch_id.size > 80 ? 80 : (int)batch->batch_id.size;

    if (!tally->complete)
        return err_set(err, ERR_RETRY,
                       "batch %.*s is not wholly submitted: submit its file again, then retry it; "
                       "or, if that file is gone, submit the new one under another --batch",
                       size, batch->batch_id.data);
    if (results_state(tally) == RESULTS_GONE || results_state(tally) == RESULTS_EXCESS) {
        results_explain(session, batch, tally, err);
        return false;
    }
    return results_done(tally) ||
           err_set(err, ERR_RETRY,
                   "batch %.*s: %" PRIu64 " of %" PRIu64 " requests have no outcome yet; wait for "
                   "them (pelton collect --wait) or cancel them first",
                   size, batch->batch_id.data, tally->total - tally->finished, tally->total);
}

/* Adds the outcomes of one job; *state is the caller's to free. */
static bool read_job(struct retry *retry, struct session *session, struct str batch_id,
                     struct batch_state *state, bool *unfinished, struct err *err)
{
    struct results_options walk = {.visit = visit, .context = retry};
    struct results_tally tally;
    char control[TOPIC_NAME_SIZE_MAX];

    if (!batch_find(session, str_from(retry->tenant), batch_id, state, err))
        return false;
    session_topic(session, TOPIC_CONTROL, control);
    if (!state->record)
        return err_set(err, ERR_REJECT, "no batch \"%.*s\" of tenant %.40s in %.60s at %.40s",
                       batch_id.size > 80 ? 80 : (int)batch_id.size, batch_id.data, retry->tenant,
                       control, session->options->common.brokers);
    walk.batch = state->record;
    if (!results_read(session, &walk, &tally, err))
        return false;
    if (is_finished(session, &state->record->u.batch, &tally, err))
        return true;
    *unfinished = err->kind == ERR_RETRY;
    return false;
}

bool retry_open(struct retry **retry, struct session *session, struct str tenant,
                struct str batch_id, bool *unfinished, struct err *err)
{
    struct batch_state job = {.record = NULL}, earlier;
    bool ok = true;

    *retry = retry_new(tenant);
    *unfinished = false;
    for (int jobs = 0; ok && batch_id.size > 0; jobs++) {
        ok = jobs < RETRY_CHAIN_MAX ||
             err_set(err, ERR_REJECT,
                     "the batch is the retry of a retry %d times over: submit its file anew",
                     RETRY_CHAIN_MAX);
        if (!ok)
            break;
        ok = read_job(*retry, session, batch_id, &earlier, unfinished, err);
        batch_free(&job);
        job = earlier;
        batch_id = job.record ? job.record->u.batch.retry_of : str_from("");
    }
    batch_free(&job);
    if (!ok) {
        retry_close(*retry);
        *retry = NULL;
    }
    return ok;
}
