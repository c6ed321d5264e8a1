/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/shell/run.h"

#include "common/check.h"
#include "common/ids.h"

#include <stdlib.h>
#include <string.h>

static void *put(char **at, const void *data, size_t size)
{
    void *place = *at;

    if (size > 0)
        memcpy(place, data, size);
    *at += size;
    return place;
}

struct report *run_report(struct run *run, enum report_type type, struct i32_array profile)
{
    const struct answer_view view = answer_view(run->task->answer);
    bool stream = task_assignment(run->task)->stream && type != REPORT_RELEASED;
    /* Done carries everything; only who streams needs the Progress that covers the last chunk. */
    size_t progress = type == REPORT_DONE && !stream ? 0 : view.count - run->reported;
    size_t chunk = stream ? view.ready - run->chunked : 0;
    size_t from = chunk > 0 && run->chunked > 0 ? (size_t)view.ends[run->chunked - 1] : 0;
    size_t size = chunk > 0 ? (size_t)view.ends[view.ready - 1] - from : 0;
    struct report *report;
    int32_t *ends;
    char *at;

    if (progress + chunk == 0 && type == REPORT_PROGRESS)
        return NULL;
    report =
        malloc(sizeof *report + (profile.count + progress + 2 * chunk) * sizeof(int32_t) + size);
    CHECK(report != NULL);
    *report = (struct report){.type = type,
                              .task = run->task,
                              .progress_first = run->reported,
                              .chunk_first = run->chunked};
    at = (char *)(report + 1);
    report->profile = (struct i32_array){
        put(&at, profile.items, profile.count * sizeof *profile.items), profile.count};
    report->progress = (struct i32_array){
        put(&at, view.ids + run->reported, progress * sizeof *view.ids), progress};
    report->chunk =
        (struct i32_array){put(&at, view.ids + run->chunked, chunk * sizeof *view.ids), chunk};
    ends = put(&at, view.ends + run->chunked, chunk * sizeof *ends);
    for (size_t i = 0; i < chunk; i++)
        ends[i] -= (int32_t)from;
    report->chunk_ends = (struct i32_array){ends, chunk};
    report->chunk_text = (struct str){put(&at, view.text + from, size), size};
    return report;
}

void run_mark(struct run *run, const struct report *report)
{
    run->reported += (uint32_t)report->progress.count;
    run->chunked += (uint32_t)report->chunk.count;
    run->profiled = run->profiled || report->profile.count > 0;
    run->unreported_us = 0;
}

struct prefix_salt run_salt(const struct run *run)
{
    const struct str tenant = task_assignment(run->task)->request.tenant;
    uint8_t digest[SHA256_SIZE];
    struct prefix_salt salt;

    sha256(tenant.data, tenant.size, digest);
    memcpy(&salt, digest, sizeof salt);
    return salt;
}

struct token_usage run_usage(const struct run *run, const struct engine_usage *used)
{
    uint32_t prompt = run->task->prompt->count;

    return (struct token_usage){
        .prompt_tokens_uncached = prompt - used->cached_tokens,
        .prompt_tokens_cached = used->cached_tokens,
        .output_tokens = (uint32_t)answer_view(run->task->answer).count,
        .prefill_us = used->prefill_us,
        .decode_us = used->decode_us,
        .queue_us = used->queue_us,
        .run_us = used->run_us,
    };
}
