/* SPDX-License-Identifier: Apache-2.0 */
#include "producer/batch.h"

#include <stdlib.h>
#include <string.h>

#include "common/check.h"

static bool has_prefix(struct str text, struct str prefix)
{
    return text.size >= prefix.size &&
           (prefix.size == 0 || memcmp(text.data, prefix.data, prefix.size) == 0);
}

/* All jobs of the control topic, in the order of their first record. */
struct jobs {
    struct codec *codec;
    struct batch_state *items;
    size_t count, capacity;
};

/* Who a record of the topic is about. False: about nobody, or a name that no submission has. */
static bool names_of(const struct record *record, struct str *tenant, struct str *id)
{
    switch (record->type) {
    case RECORD_BATCH:
        *tenant = record->u.batch.tenant;
        *id = record->u.batch.batch_id;
        break;
    case RECORD_BATCH_CLAIM:
        *tenant = record->u.batch_claim.tenant;
        *id = record->u.batch_claim.batch_id;
        break;
    case RECORD_CANCEL_BATCH:
        *tenant = record->u.cancel_batch.tenant;
        *id = record->u.cancel_batch.batch_id;
        break;
    default:
        return false;
    }
    return tenant->size <= TENANT_SIZE_MAX && id->size <= BATCH_ID_SIZE_MAX;
}

static struct batch_state *find_job(struct jobs *jobs, struct str tenant, struct str id)
{
    for (size_t i = jobs->count; i-- > 0;) {
        struct batch_state *job = &jobs->items[i];
        struct str job_tenant, job_id;
        CHECK(names_of(job->record ? job->record : job->claim, &job_tenant, &job_id));
        if (str_equal(job_id, id) && str_equal(job_tenant, tenant))
            return job;
    }
    return NULL;
}

static struct batch_state *add_job(struct jobs *jobs)
{
    if (jobs->count == jobs->capacity) {
        jobs->capacity = jobs->capacity ? 2 * jobs->capacity : 64;
        jobs->items = realloc(jobs->items, jobs->capacity * sizeof *jobs->items);
        CHECK(jobs->items);
    }
    jobs->items[jobs->count] = (struct batch_state){.record = NULL};
    return &jobs->items[jobs->count++];
}

/* Takes over the record. */
static void put_record(struct jobs *jobs, struct record *record, struct str tenant, struct str id)
{
    struct batch_state *job = find_job(jobs, tenant, id);

    if (!job && record->type != RECORD_CANCEL_BATCH)
        job = add_job(jobs);
    if (record->type == RECORD_BATCH) {
        record_free(job->record);
        job->record = record;
    } else if (record->type == RECORD_BATCH_CLAIM && !job->claim) {
        job->claim = record;
    } else {
        if (job && record->type == RECORD_CANCEL_BATCH)
            job->cancelled = true;
        record_free(record);
    }
}

static bool visit_control(void *context, const rd_kafka_message_t *message, struct err *err)
{
    struct jobs *jobs = context;
    struct record *record;
    struct str tenant, id;

    /* A record of a later version, or a foreign one, is none of ours. */
    if (!message->payload ||
        !codec_decode(jobs->codec, message->payload, message->len, &record, err))
        return true;
    if (names_of(record, &tenant, &id))
        put_record(jobs, record, tenant, id);
    else
        record_free(record);
    return true;
}

static bool read_jobs(struct session *session, struct jobs *jobs, struct err *err)
{
    char control[TOPIC_NAME_SIZE_MAX];
    const struct kafka_range range = {.from = {control, 0, RD_KAFKA_OFFSET_BEGINNING},
                                      .timeout_ms = SESSION_TIMEOUT_MS,
                                      .visit = visit_control,
                                      .context = jobs};

    *jobs = (struct jobs){.codec = session->codec};
    session_topic(session, TOPIC_CONTROL, control);
    return kafka_read_to_end(session->reader, &range, NULL, err);
}

static void free_jobs(struct jobs *jobs)
{
    for (size_t i = 0; i < jobs->count; i++)
        batch_free(&jobs->items[i]);
    free(jobs->items);
}

static struct batch_state *newest_job(struct jobs *jobs)
{
    struct batch_state *newest = NULL;

    for (size_t i = 0; i < jobs->count; i++)
        if (!newest ||
            jobs->items[i].record->u.batch.created_ms >= newest->record->u.batch.created_ms)
            newest = &jobs->items[i];
    return newest;
}

static void give(struct batch_state *job, struct batch_state *state)
{
    *state = *job;
    job->record = job->claim = NULL; /* the caller's now */
}

bool batch_find(struct session *session, struct str tenant, struct str id,
                struct batch_state *state, struct err *err)
{
    struct batch_state *found = NULL;
    struct jobs jobs;
    bool ok = read_jobs(session, &jobs, err);

    *state = (struct batch_state){.record = NULL};
    if (ok)
        found = find_job(&jobs, tenant, id);
    if (found)
        give(found, state);
    free_jobs(&jobs);
    return ok;
}

static bool is_wanted(const struct session *session, const struct batch_state *job)
{
    const char *tenant = session->options->tenant;

    return !tenant || !*tenant || str_equal(job->record->u.batch.tenant, str_from(tenant));
}

/* Leaves the jobs of --tenant that have begun. */
static void keep_wanted(const struct session *session, struct jobs *jobs)
{
    size_t count = 0;

    for (size_t i = 0; i < jobs->count; i++) {
        if (jobs->items[i].record && is_wanted(session, &jobs->items[i]))
            jobs->items[count++] = jobs->items[i];
        else
            batch_free(&jobs->items[i]);
    }
    jobs->count = count;
}

/* The last job that has this id, or else whose id starts with it; *matches: how many there are. */
static struct batch_state *find_by_id(struct jobs *jobs, struct str id, size_t *matches)
{
    struct batch_state *same = NULL, *alike = NULL;
    size_t same_count = 0, alike_count = 0;

    for (size_t i = 0; i < jobs->count; i++) {
        struct str job_id = jobs->items[i].record->u.batch.batch_id;
        if (str_equal(job_id, id)) {
            same = &jobs->items[i];
            same_count++;
        } else if (has_prefix(job_id, id)) {
            alike = &jobs->items[i];
            alike_count++;
        }
    }
    *matches = same ? same_count : alike_count;
    return same ? same : alike;
}

bool batch_need(struct session *session, const char *id, struct batch_state *state, bool *ambiguous,
                struct err *err)
{
    struct batch_state *found = NULL;
    char control[TOPIC_NAME_SIZE_MAX];
    struct jobs jobs;
    size_t matches = 1;
    bool ok = read_jobs(session, &jobs, err);

    *state = (struct batch_state){.record = NULL};
    *ambiguous = false;
    session_topic(session, TOPIC_CONTROL, control);
    if (ok) {
        keep_wanted(session, &jobs);
        found = id ? find_by_id(&jobs, str_from(id), &matches) : newest_job(&jobs);
        *ambiguous = matches > 1;
        if (matches > 1 && str_equal(found->record->u.batch.batch_id, str_from(id)))
            ok = err_set(err, ERR_REJECT,
                         "%zu tenants have a batch \"%.100s\": say whose with --tenant", matches,
                         id);
        else if (matches > 1)
            ok = err_set(err, ERR_REJECT, "%zu batches start with \"%.100s\": give more of the id",
                         matches, id);
        else if (!found && !id)
            ok = err_set(err, ERR_REJECT, "no batch yet in %s at %.60s", control,
                         session->options->common.brokers);
        else if (!found)
            ok = err_set(err, ERR_REJECT, "no batch \"%.100s\" in %s at %.60s", id, control,
                         session->options->common.brokers);
    }
    if (ok)
        give(found, state);
    free_jobs(&jobs);
    return ok;
}

void batch_free(struct batch_state *state)
{
    record_free(state->record);
    record_free(state->claim);
    *state = (struct batch_state){.record = NULL};
}

bool batch_list(struct session *session, struct batch_state **states, size_t *count,
                struct err *err)
{
    struct jobs jobs;

    if (!read_jobs(session, &jobs, err)) {
        free_jobs(&jobs);
        return false;
    }
    keep_wanted(session, &jobs);
    *states = jobs.items;
    *count = jobs.count;
    return true;
}

void batch_list_free(struct batch_state *states, size_t count)
{
    for (size_t i = 0; i < count; i++)
        batch_free(&states[i]);
    free(states);
}

static const enum topic first_offset_topics[] = {TOPIC_RESULTS, TOPIC_TOKENS, TOPIC_DEAD_LETTERS};
enum { FIRST_OFFSET_TOPICS = 3 };

bool batch_first_offsets(struct session *session, struct partition_offset **offsets, size_t *count,
                         char **names, struct err *err)
{
    *names = calloc(FIRST_OFFSET_TOPICS, TOPIC_NAME_SIZE_MAX);
    CHECK(*names);
    *offsets = NULL;
    *count = 0;
    for (size_t t = 0; t < FIRST_OFFSET_TOPICS; t++) {
        char *name = *names + t * TOPIC_NAME_SIZE_MAX;
        int32_t partitions;
        session_topic(session, first_offset_topics[t], name);
        if (!kafka_partition_count(session->reader, name, SESSION_TIMEOUT_MS, &partitions, err))
            return false;
        *offsets = realloc(*offsets, (*count + (size_t)partitions) * sizeof **offsets);
        CHECK(*offsets);
        for (int32_t p = 0; p < partitions; p++) {
            struct partition_offset *offset = &(*offsets)[(*count)++];
            *offset = (struct partition_offset){.topic = str_from(name), .partition = p};
            if (!kafka_offsets(session->reader, name, p, SESSION_TIMEOUT_MS, NULL, &offset->offset,
                               err))
                return false;
        }
    }
    return true;
}

int64_t batch_first_offset(const struct batch *batch, const char *topic, int32_t partition)
{
    for (size_t i = 0; i < batch->first_offsets_count; i++)
        if (batch->first_offsets[i].partition == partition &&
            str_equal(batch->first_offsets[i].topic, str_from(topic)))
            return batch->first_offsets[i].offset;
    return 0;
}

bool batch_positions(struct session *session, const struct batch *batch, const char *name,
                     struct kafka_position **positions, size_t *count, struct err *err)
{
    int32_t partitions;

    if (!kafka_partition_count(session->reader, name, SESSION_TIMEOUT_MS, &partitions, err))
        return false;
    *count = (size_t)partitions;
    *positions = calloc(*count, sizeof **positions);
    CHECK(*positions);
    for (int32_t p = 0; p < partitions; p++)
        (*positions)[p] = (struct kafka_position){name, p, batch_first_offset(batch, name, p)};
    return true;
}
