/* SPDX-License-Identifier: Apache-2.0 */
#include "producer/tallies.h"

#include <stdlib.h>

#include "common/check.h"
#include "common/idmap.h"

struct walk {
    struct codec *codec;
    struct tallies *tallies;
    struct idmap *job_of; /* index into the jobs, by tenant and batch id */
    struct idmap *seen;   /* requests with an outcome */
};

static struct request_id key_of(struct str tenant, struct str batch_id)
{
    struct request_id key;

    request_id_make(tenant, batch_id, str_from(""), &key);
    return key;
}

static void take_result(struct walk *walk, const struct result *result)
{
    const struct request_id key = key_of(result->tenant, result->batch_id);
    const union idmap_value *job = idmap_get(walk->job_of, key.bytes);
    struct results_tally *tally;
    bool is_new;

    if (!job)
        return;
    idmap_put(walk->seen, result->request_id.bytes, &is_new);
    if (!is_new)
        return;
    tally = &walk->tallies->items[job->number];
    tally->by_status[result->status]++;
    tally->finished++;
}

static bool visit(void *context, const rd_kafka_message_t *message, struct err *err)
{
    struct walk *walk = context;
    struct record *record;

    (void)err;
    if (!message->payload ||
        !codec_decode(walk->codec, message->payload, message->len, &record, &(struct err){0}))
        return true; /* foreign, and nobody's outcome */
    if (record->type == RECORD_RESULT)
        take_result(walk, &record->u.result);
    record_free(record);
    return true;
}

/* One partition of results. */
struct extent {
    int64_t low, end; /* what is kept of it */
    int64_t first;    /* where the first counted job begins */
};

static void choose_job(struct tallies *tallies, size_t job, struct extent *extents,
                       int32_t partitions, const char *topic)
{
    const struct batch *batch = &tallies->jobs[job].record->u.batch;
    uint64_t walk = 0;

    tallies->items[job] = results_tally_of(batch);
    for (int32_t p = 0; p < partitions; p++) {
        const int64_t first = batch_first_offset(batch, topic, p);
        const int64_t from = first < extents[p].low ? extents[p].low : first;
        walk += extents[p].end > from ? (uint64_t)(extents[p].end - from) : 0;
        tallies->items[job].trimmed = tallies->items[job].trimmed || first < extents[p].low;
    }
    tallies->walk = walk > tallies->walk ? walk : tallies->walk;
    tallies->counted[job] = tallies->walk_max > 0 && walk <= tallies->walk_max;
    tallies->left_out += !tallies->counted[job];
    for (int32_t p = 0; tallies->counted[job] && p < partitions; p++) {
        const int64_t first = batch_first_offset(batch, topic, p);
        extents[p].first = first < extents[p].first ? first : extents[p].first;
    }
}

static bool find_extents(struct session *session, struct extent *extents, int32_t partitions,
                         const char *topic, struct err *err)
{
    for (int32_t p = 0; p < partitions; p++) {
        struct extent *extent = &extents[p];
        if (!kafka_offsets(session->reader, topic, p, SESSION_TIMEOUT_MS, &extent->low,
                           &extent->end, err))
            return false;
        extent->first = extent->end;
    }
    return true;
}

static bool walk_over(struct walk *walk, struct session *session, const struct extent *extents,
                      int32_t partitions, const char *topic, struct err *err)
{
    for (int32_t p = 0; p < partitions; p++) {
        const struct extent *extent = &extents[p];
        const int64_t from = extent->first < extent->low ? extent->low : extent->first;
        const struct kafka_range range = {.from = {topic, p, from},
                                          .timeout_ms = SESSION_TIMEOUT_MS,
                                          .visit = visit,
                                          .context = walk};
        if (!kafka_read_to_end(session->reader, &range, NULL, err))
            return false;
    }
    return true;
}

bool tallies_read(struct session *session, struct tallies *tallies, struct err *err)
{
    struct walk walk = {.codec = session->codec, .tallies = tallies};
    char topic[TOPIC_NAME_SIZE_MAX];
    struct extent *extents;
    int32_t partitions;
    bool ok;

    session_topic(session, TOPIC_RESULTS, topic);
    if (!kafka_partition_count(session->reader, topic, SESSION_TIMEOUT_MS, &partitions, err))
        return false;
    extents = calloc((size_t)partitions, sizeof *extents);
    CHECK(extents);
    walk.job_of = idmap_open(tallies->count);
    walk.seen = idmap_open(0);
    tallies->walk = 0;
    tallies->left_out = 0;
    ok = find_extents(session, extents, partitions, topic, err);
    for (size_t i = 0; ok && i < tallies->count; i++) {
        const struct batch *batch = &tallies->jobs[i].record->u.batch;
        const struct request_id key = key_of(batch->tenant, batch->batch_id);
        choose_job(tallies, i, extents, partitions, topic);
        if (tallies->counted[i])
            idmap_put(walk.job_of, key.bytes, NULL)->number = i;
    }
    if (ok && tallies->left_out < tallies->count)
        ok = walk_over(&walk, session, extents, partitions, topic, err);
    idmap_close(walk.seen);
    idmap_close(walk.job_of);
    free(extents);
    return ok;
}
