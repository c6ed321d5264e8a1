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

/* Where the first of the jobs begins; notes of which one results were deleted below low. */
static int64_t first_offset(struct tallies *tallies, struct str topic, int32_t partition,
                            int64_t low)
{
    int64_t first = INT64_MAX;

    for (size_t i = 0; i < tallies->count; i++) {
        const struct batch *batch = &tallies->jobs[i].record->u.batch;
        int64_t offset = 0; /* of a partition that came later */
        for (size_t o = 0; o < batch->first_offsets_count; o++)
            if (batch->first_offsets[o].partition == partition &&
                str_equal(batch->first_offsets[o].topic, topic))
                offset = batch->first_offsets[o].offset;
        first = offset < first ? offset : first;
        tallies->items[i].trimmed = tallies->items[i].trimmed || offset < low;
    }
    return first < low ? low : first;
}

static bool find_positions(struct session *session, struct tallies *tallies,
                           struct kafka_position *positions, int32_t partitions, const char *name,
                           struct err *err)
{
    for (int32_t p = 0; p < partitions; p++) {
        int64_t low, end, first;
        if (!kafka_offsets(session->reader, name, p, SESSION_TIMEOUT_MS, &low, &end, err))
            return false;
        first = first_offset(tallies, str_from(name), p, low);
        positions[p] = (struct kafka_position){name, p, first};
        tallies->walk += end > first ? (uint64_t)(end - first) : 0;
    }
    return true;
}

static bool walk_over(struct walk *walk, struct session *session,
                      const struct kafka_position *positions, int32_t partitions, struct err *err)
{
    for (int32_t p = 0; p < partitions; p++) {
        const struct kafka_range range = {.from = positions[p],
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
    struct kafka_position *positions;
    char name[TOPIC_NAME_SIZE_MAX];
    int32_t partitions;
    bool ok;

    session_topic(session, TOPIC_RESULTS, name);
    if (!kafka_partition_count(session->reader, name, SESSION_TIMEOUT_MS, &partitions, err))
        return false;
    positions = calloc((size_t)partitions, sizeof *positions);
    CHECK(positions);
    walk.job_of = idmap_open(tallies->count);
    walk.seen = idmap_open(0);
    for (size_t i = 0; i < tallies->count; i++) {
        const struct batch *batch = &tallies->jobs[i].record->u.batch;
        const struct request_id key = key_of(batch->tenant, batch->batch_id);
        idmap_put(walk.job_of, key.bytes, NULL)->number = i;
        tallies->items[i] = results_tally_of(batch);
    }
    tallies->walk = 0;
    ok = find_positions(session, tallies, positions, partitions, name, err);
    tallies->counted = ok && tallies->walk <= tallies->walk_max;
    if (tallies->counted)
        ok = walk_over(&walk, session, positions, partitions, err);
    idmap_close(walk.seen);
    idmap_close(walk.job_of);
    free(positions);
    return ok;
}
