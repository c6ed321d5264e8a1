/* SPDX-License-Identifier: Apache-2.0 */
#include "producer/results.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
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
    /* Of results_follow(): where each partition of results goes on. */
    char results[TOPIC_NAME_SIZE_MAX];
    struct kafka_position *next;
    size_t next_count;
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

enum results_state results_state(const struct results_tally *tally)
{
    if (tally->complete && tally->finished > tally->total)
        return RESULTS_EXCESS;
    if (tally->complete && tally->finished == tally->total)
        return RESULTS_DONE;
    return tally->trimmed ? RESULTS_GONE : RESULTS_OPEN;
}

bool results_done(const struct results_tally *tally)
{
    return results_state(tally) == RESULTS_DONE;
}

void results_explain(const struct session *session, const struct batch *batch,
                     const struct results_tally *tally, struct err *err)
{
    const int size = batch->batch_id.size > 64 ? 64 : (int)batch->batch_id.size;
    const char *id = batch->batch_id.data;
    char topic[TOPIC_NAME_SIZE_MAX], part[64] = "the";

    if (results_state(tally) == RESULTS_EXCESS) {
        err_set(err, ERR_REJECT,
                "batch %.*s has %" PRIu64 " outcomes for %" PRIu64
                " requests: its name was used for different inputs; submit them again, each under "
                "a name of its own",
                size, id, tally->finished, tally->total);
        return;
    }
    session_topic(session, TOPIC_RESULTS, topic);
    if (tally->finished > 0 && tally->complete)
        snprintf(part, sizeof part, "%" PRIu64 " of %" PRIu64, tally->total - tally->finished,
                 tally->total);
    else if (tally->finished > 0)
        snprintf(part, sizeof part, "some");
    err_set(err, ERR_REJECT,
            "%s results of batch %.*s are no longer kept: topic %.60s begins after them; retention "
            "is 14 days by default",
            part, size, id, topic);
}

/* Where to read a topic. What retention has deleted of it is passed over, and noted of results. */
static bool find_positions(struct walk *walk, enum topic topic, char name[TOPIC_NAME_SIZE_MAX],
                           struct kafka_position **positions, size_t *count, struct err *err)
{
    session_topic(walk->session, topic, name);
    if (!batch_positions(walk->session, &walk->options->batch->u.batch, name, positions, count,
                         err))
        return false;
    for (size_t i = 0; i < *count; i++) {
        struct kafka_position *position = &(*positions)[i];
        int64_t first;
        if (!kafka_offsets(walk->session->reader, name, position->partition, SESSION_TIMEOUT_MS,
                           &first, NULL, err))
            return false;
        if (position->offset < first) {
            position->offset = first;
            walk->tally->trimmed = walk->tally->trimmed || topic == TOPIC_RESULTS;
        }
    }
    return true;
}

static bool read_to_end(struct walk *walk, const struct kafka_position *positions, size_t count,
                        struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        const struct kafka_range range = {.from = positions[i],
                                          .timeout_ms = SESSION_TIMEOUT_MS,
                                          .visit = visit,
                                          .context = walk};
        if (!kafka_read_to_end(walk->session->reader, &range, NULL, err))
            return false;
    }
    return true;
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
    ok = find_positions(&walk, TOPIC_RESULTS, name, &positions, &count, err) &&
         read_to_end(&walk, positions, count, err);
    free(positions);
    idmap_close(walk.seen);
    return ok;
}

/* Results, tokens where wanted, and control as long as the job may still grow. */
static bool assign(struct walk *walk, struct err *err)
{
    static const enum topic topics[] = {TOPIC_RESULTS, TOPIC_CONTROL, TOPIC_TOKENS};
    char names[3][TOPIC_NAME_SIZE_MAX];
    struct kafka_position *all = NULL;
    size_t all_count = 0;
    bool ok = true;

    for (size_t t = 0; ok && t < (walk->options->visit_chunk ? 3 : 2); t++) {
        struct kafka_position *positions = NULL;
        size_t count = 0;
        ok = find_positions(walk, topics[t], names[t], &positions, &count, err);
        if (ok) {
            all = realloc(all, (all_count + count) * sizeof *all);
            CHECK(all);
            for (size_t i = 0; i < count; i++)
                all[all_count++] = positions[i];
        }
        if (ok && topics[t] == TOPIC_RESULTS) {
            memcpy(walk->results, names[t], sizeof walk->results);
            walk->next = positions;
            walk->next_count = count;
            for (size_t i = 0; i < count; i++)
                positions[i].topic = walk->results;
        } else {
            free(positions);
        }
    }
    ok = ok && kafka_assign(walk->session->reader, all, all_count, err);
    free(all);
    return ok;
}

static bool take_message(struct walk *walk, const rd_kafka_message_t *message, struct err *err)
{
    if (strcmp(rd_kafka_topic_name(message->rkt), walk->results) == 0)
        walk->next[message->partition].offset = message->offset + 1;
    return visit(walk, message, err);
}

/* False: the loop is over; *ok says whether well. */
static bool follow_step(struct walk *walk, int64_t *ticked_us, bool *ok, struct err *err)
{
    const struct results_options *options = walk->options;
    rd_kafka_message_t *message;

    *ok = kafka_poll(walk->session->reader, 100, &message, err);
    if (*ok && message) {
        *ok = take_message(walk, message, err);
        rd_kafka_message_destroy(message);
    }
    if (!*ok || !options->tick || clock_mono_us() - *ticked_us < 100000)
        return *ok;
    *ticked_us = clock_mono_us();
    return options->tick(options->context, walk->tally);
}

bool results_follow(struct session *session, const struct results_options *options,
                    struct results_tally *tally, struct err *err)
{
    struct walk walk;
    int64_t ticked_us = 0;
    bool ok;

    walk_open(&walk, session, options, tally);
    ok = assign(&walk, err);
    while (ok && !tally->trimmed && results_state(tally) == RESULTS_OPEN && !stop_requested())
        if (!follow_step(&walk, &ticked_us, &ok, err))
            break;
    if (ok)
        ok = kafka_assign(session->reader, NULL, 0, err);
    /* A job has all its outcomes before it has too many: only what follows them tells. */
    if (ok && (tally->trimmed || results_done(tally)))
        ok = read_to_end(&walk, walk.next, walk.next_count, err);
    free(walk.next);
    idmap_close(walk.seen);
    return ok;
}
