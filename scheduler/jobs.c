/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/jobs.h"

#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "scheduler/balance.h"
#include "scheduler/body_scan.h"

/* Where the body names no limit; a typical answer, so that neither fairness nor KV room is far
 * off on average. */
enum { MAX_TOKENS_GUESS = 256 };
/* "max_tokens": 4000000000 is no estimate; no model's context is longer than this. */
enum { TOKENS_MAX = 1 << 20 };

void job_list_append(struct job_list *list, enum job_link_kind kind, struct job *job)
{
    job->links[kind] = (struct job_link){.prev = list->tail};
    if (list->tail)
        list->tail->links[kind].next = job;
    else
        list->head = job;
    list->tail = job;
    list->count++;
}

void job_list_remove(struct job_list *list, enum job_link_kind kind, struct job *job)
{
    struct job_link link = job->links[kind];

    CHECK(list->count > 0);
    if (link.prev)
        link.prev->links[kind].next = link.next;
    else
        list->head = link.next;
    if (link.next)
        link.next->links[kind].prev = link.prev;
    else
        list->tail = link.prev;
    job->links[kind] = (struct job_link){0};
    list->count--;
}

struct job *job_new(const struct request_id *id)
{
    struct job *job = calloc(1, sizeof *job);

    CHECK(job);
    job->id = *id;
    return job;
}

void job_free(struct job *job)
{
    if (!job)
        return;
    attempt_free(job->attempt);
    free(job->payload);
    free(job);
}

void job_set_payload(struct job *job, const struct request *request)
{
    struct payload *payload;
    uint64_t tokens;

    CHECK(!job->payload);
    CHECK(request->body.size <= UINT32_MAX);
    CHECK(request->custom_id.size <= UINT32_MAX);
    payload = malloc(sizeof *payload + request->body.size + request->custom_id.size);
    CHECK(payload);
    memcpy(payload->body_hash, request->body_hash, sizeof payload->body_hash);
    payload->submitted_ms = request->submitted_ms;
    payload->line = request->line;
    payload->body_size = (uint32_t)request->body.size;
    payload->custom_id_size = (uint32_t)request->custom_id.size;
    payload->prefix = prefix_keys(request->body);
    if (request->body.size)
        memcpy(payload->bytes, request->body.data, request->body.size);
    if (request->custom_id.size)
        memcpy(payload->bytes + request->body.size, request->custom_id.data,
               request->custom_id.size);

    job->payload = payload;
    job->endpoint = (uint8_t)request->endpoint;
    job->stream = (uint8_t)request->stream;
    job->deadline_ms = request->deadline_ms;
    tokens = request->body.size / 4 + (uint64_t)body_max_tokens(request->body, MAX_TOKENS_GUESS);
    job->tokens = tokens > TOKENS_MAX ? TOKENS_MAX : (uint32_t)tokens;
}

struct str job_body(const struct job *job)
{
    if (!job->payload)
        return (struct str){0};
    return (struct str){job->payload->bytes, job->payload->body_size};
}

struct str job_custom_id(const struct job *job)
{
    if (!job->payload)
        return (struct str){0};
    return (struct str){job->payload->bytes + job->payload->body_size,
                        job->payload->custom_id_size};
}

size_t job_payload_size(const struct job *job)
{
    if (!job->payload)
        return 0;
    return sizeof *job->payload + job->payload->body_size + job->payload->custom_id_size;
}

uint64_t job_prompt_tokens(const struct job *job)
{
    return job_body(job).size / 3;
}

uint64_t job_prompt_work(const struct job *job)
{
    return balance_prefill_work(job_body(job).size / 4);
}

uint64_t job_kv_tokens(const struct job *job, uint32_t max_context)
{
    uint64_t tokens = (uint64_t)job->tokens + job_body(job).size / 12; /* 1/4 + 1/12 = 1/3 */

    return tokens < max_context ? tokens : max_context;
}

struct attempt *attempt_new(void)
{
    struct attempt *attempt = calloc(1, sizeof *attempt);

    CHECK(attempt);
    return attempt;
}

void attempt_free(struct attempt *attempt)
{
    if (!attempt)
        return;
    free(attempt->prefix);
    free(attempt->profile);
    free(attempt->held);
    free(attempt);
}

enum prefix_verdict attempt_extend(struct attempt *attempt, uint32_t first_index,
                                   struct i32_array ids)
{
    size_t known, added;

    if (first_index > attempt->prefix_count)
        return PREFIX_GAP;
    known = attempt->prefix_count - first_index;
    known = known < ids.count ? known : ids.count;
    if (known && memcmp(attempt->prefix + first_index, ids.items, known * sizeof *ids.items) != 0)
        return PREFIX_CONTRADICTED;
    added = ids.count - known;
    if (added == 0)
        return PREFIX_OK;
    if (attempt->prefix_count + added > attempt->prefix_capacity) {
        size_t capacity = (attempt->prefix_count + added) * 2;
        int32_t *prefix = realloc(attempt->prefix, capacity * sizeof *prefix);
        CHECK(prefix);
        attempt->prefix = prefix;
        attempt->prefix_capacity = capacity;
    }
    memcpy(attempt->prefix + attempt->prefix_count, ids.items + known, added * sizeof *ids.items);
    attempt->prefix_count += added;
    return PREFIX_OK;
}

bool attempt_agrees(const struct attempt *attempt, struct i32_array ids)
{
    if (ids.count < attempt->prefix_count)
        return false;
    return attempt->prefix_count == 0 ||
           memcmp(attempt->prefix, ids.items, attempt->prefix_count * sizeof *ids.items) == 0;
}
