/* SPDX-License-Identifier: Apache-2.0 */
#include "producer/results.h"

#include <stdlib.h>

#include "common/clock.h"
#include "common/idmap.h"
#include "common/log.h"
#include "common/stop.h"

struct walk {
    struct session *session;
    const struct results_options *options;
    struct results_tally *tally;
    struct str tenant, batch_id; /* owned by options->batch, which keeps its names */
    struct idmap *seen;
};

static void take_batch(struct results_tally *tally, const struct batch *batch)
{
    tally->complete = batch->complete;
    tally->total = batch->complete ? batch->total : 0;
    tally->rejected = batch->rejected;
}

struct results_tally results_tally_of(const struct batch *batch)
{
    struct results_tally tally = {.total = 0};

    take_batch(&tally, batch);
    return tally;
}

static bool is_of_job(const struct walk *walk, struct str tenant, struct str batch_id)
{
    return str_equal(batch_id, walk->batch_id) && str_equal(tenant, walk->tenant);
}

/* A chunk names no tenant, but its request's id is made of one. */
static bool is_chunk_of_job(const struct walk *walk, const struct token_chunk *chunk)
{
    struct request_id id;

    if (!str_equal(chunk->batch_id, walk->batch_id))
        return false;
    request_id_make(walk->tenant, walk->batch_id, chunk->custom_id, &id);
    return request_id_equal(&id, &chunk->request_id);
}

static bool take_result(struct walk *walk, const struct result *result, struct err *err)
{
    bool is_new;

    if (!is_of_job(walk, result->tenant, result->batch_id))
        return true;
    idmap_put(walk->seen, result->request_id.bytes, &is_new);
    if (!is_new)
        return true;
    walk->tally->by_status[result->status]++;
    walk->tally->finished++;
    return !walk->options->visit || walk->options->visit(walk->options->context, result, err);
}

static bool visit(void *context, const rd_kafka_message_t *message, struct err *err)
{
    struct walk *walk = context;
    struct record *record;
    struct err why;
    bool ok = true;

    if (!message->payload)
        return true;
    if (!codec_decode(walk->session->codec, message->payload, message->len, &record, &why)) {
        LOG_WARN("unreadable_record", "topic=%s partition=%d offset=%lld error=%s",
                 rd_kafka_topic_name(message->rkt), message->partition, (long long)message->offset,
                 why.message);
        return true;
    }
    if (record->type == RECORD_RESULT)
        ok = take_result(walk, &record->u.result, err);
    else if (record->type == RECORD_TOKEN_CHUNK && walk->options->visit_chunk &&
             is_chunk_of_job(walk, &record->u.token_chunk))
        ok = walk->options->visit_chunk(walk->options->context, &record->u.token_chunk, err);
    else if (record->type == RECORD_BATCH &&
             is_of_job(walk, record->u.batch.tenant, record->u.batch.batch_id))
        take_batch(walk->tally, &record->u.batch);
    record_free(record);
    return ok;
}

static void walk_open(struct walk *walk, struct session *session,
                      const struct results_options *options, struct results_tally *tally)
{
    *tally = results_tally_of(&options->batch->u.batch);
    *walk = (struct walk){.session = session,
                          .options = options,
                          .tally = tally,
                          .tenant = options->batch->u.batch.tenant,
                          .batch_id = options->batch->u.batch.batch_id,
                          .seen = idmap_open(0)};
}

bool results_done(const struct results_tally *tally)
{
    return tally->complete && tally->finished >= tally->total;
}

bool results_read(struct session *session, const struct results_options *options,
                  struct results_tally *tally, struct err *err)
{
    char name[TOPIC_NAME_SIZE_MAX];
    struct kafka_position *positions = NULL;
    size_t count = 0;
    struct walk walk;
    bool ok;

    walk_open(&walk, session, options, tally);
    session_topic(session, TOPIC_RESULTS, name);
    ok = batch_positions(session, &options->batch->u.batch, name, &positions, &count, err);
    for (size_t i = 0; ok && i < count; i++) {
        struct kafka_range range = {.from = positions[i],
                                    .timeout_ms = SESSION_TIMEOUT_MS,
                                    .visit = visit,
                                    .context = &walk};
        ok = kafka_read_to_end(session->reader, &range, NULL, err);
    }
    free(positions);
    idmap_close(walk.seen);
    return ok;
}

/* Results, tokens where wanted, and control as long as the job may still grow. */
static bool assign(struct walk *walk, struct err *err)
{
    static const enum topic topics[] = {TOPIC_CONTROL, TOPIC_RESULTS, TOPIC_TOKENS};
    char names[3][TOPIC_NAME_SIZE_MAX];
    struct kafka_position *all = NULL;
    size_t all_count = 0;
    bool ok = true;

    for (size_t t = 0; ok && t < (walk->options->visit_chunk ? 3 : 2); t++) {
        struct kafka_position *positions = NULL;
        size_t count = 0;
        session_topic(walk->session, topics[t], names[t]);
        ok = batch_positions(walk->session, &walk->options->batch->u.batch, names[t], &positions,
                             &count, err);
        if (ok) {
            all = realloc(all, (all_count + count) * sizeof *all);
            for (size_t i = 0; i < count; i++)
                all[all_count++] = positions[i];
        }
        free(positions);
    }
    ok = ok && kafka_assign(walk->session->reader, all, all_count, err);
    free(all);
    return ok;
}

bool results_follow(struct session *session, const struct results_options *options,
                    struct results_tally *tally, struct err *err)
{
    struct walk walk;
    int64_t ticked_us = 0;
    bool ok;

    walk_open(&walk, session, options, tally);
    ok = assign(&walk, err);
    while (ok && !results_done(tally) && !stop_requested()) {
        rd_kafka_message_t *message;
        ok = kafka_poll(session->reader, 100, &message, err);
        if (ok && message) {
            ok = visit(&walk, message, err);
            rd_kafka_message_destroy(message);
        }
        if (ok && options->tick && clock_mono_us() - ticked_us >= 100000) {
            ticked_us = clock_mono_us();
            if (!options->tick(options->context, tally))
                break;
        }
    }
    if (ok)
        ok = kafka_assign(session->reader, NULL, 0, err);
    idmap_close(walk.seen);
    return ok;
}
