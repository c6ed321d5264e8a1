/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/arrivals.h"

#include <stdio.h>
#include <string.h>

#include "scheduler/sim/random.h"

enum {
    BLOCK_SIZE = 4 * TRACE_BLOCK_TOKENS,
    ID_SIZE = 6, /* letters of four bits */
};

struct request_id arrivals_id(uint64_t index)
{
    struct request_id id = {{0}};
    /* Mixed, so that the core's hash tables see what they see in real life. */
    struct random random = {index};
    uint64_t mixed = random_u64(&random);

    memcpy(id.bytes, &mixed, sizeof mixed);
    memcpy(id.bytes + 8, &index, sizeof index);
    return id;
}

uint64_t arrivals_index(const struct request_id *id)
{
    uint64_t index;

    memcpy(&index, id->bytes + 8, sizeof index);
    return index;
}

enum service_class arrivals_class(const struct run *run, uint64_t index)
{
    /* Another number than a task is made of, so that no task is more interactive than others. */
    struct random random = {~run->config->seed ^ (index * 0x9e3779b97f4a7c15u)};

    return random_uniform(&random) < run->config->interactive ? CLASS_INTERACTIVE : CLASS_BULK;
}

/* The power of two that holds the answer. */
static uint32_t guess_max_tokens(uint32_t output)
{
    uint32_t guess = 16;

    while (guess < output && guess < 1u << 24)
        guess *= 2;
    return guess;
}

uint32_t arrivals_tokens(const struct run *run, uint64_t index)
{
    const struct trace_request *request = &run->trace->requests[index];

    return request->prompt_tokens + guess_max_tokens(request->output_tokens);
}

/* The id of each of the prompt's blocks where its text begins, in letters, and nothing where an
 * earlier prompt had more blocks. */
static void write_blocks(struct run *run, const struct trace_request *request, size_t head_size,
                         size_t size)
{
    const uint32_t *ids = run->trace->blocks + request->blocks_at;

    for (uint32_t i = 0;; i++) {
        size_t at = head_size + (size_t)i * BLOCK_SIZE;
        if (at + ID_SIZE > size)
            return;
        for (uint32_t letter = 0; letter < ID_SIZE; letter++)
            run->body[at + letter] =
                (char)(i < request->blocks ? 'a' + (ids[i] >> 4 * letter & 15) : ' ');
    }
}

static void arrive(struct run *run)
{
    const struct trace_request *request = &run->trace->requests[run->next];
    size_t size = (size_t)request->prompt_tokens * 4;
    char head[64];
    /* Of one width, so that nothing of a longer head stays behind it. */
    int head_size = snprintf(head, sizeof head, "{\"max_tokens\":%8u,\"prompt\":\"",
                             guess_max_tokens(request->output_tokens));
    struct record record = {.type = RECORD_REQUEST};
    const enum service_class class = arrivals_class(run, run->next);
    const enum topic topic = class == CLASS_BULK ? TOPIC_REQUESTS_BULK : TOPIC_REQUESTS_INTERACTIVE;

    size = size < (size_t)head_size ? (size_t)head_size : size;
    size = size > RUN_BODY_SIZE_MAX ? RUN_BODY_SIZE_MAX : size;
    memcpy(run->body, head, (size_t)head_size);
    if (run->config->caches != RUN_CACHES_OFF)
        write_blocks(run, request, (size_t)head_size, RUN_BODY_SIZE_MAX);
    record.u.request = (struct request){.request_id = arrivals_id(run->next),
                                        .tenant = {"sim", 3},
                                        .batch_id = {"trace", 5},
                                        .service_class = class,
                                        .body = {run->body, size}};
    run_step_core(run, &(struct event){.type = EVENT_REQUEST,
                                       .position = {topic, 0, run->offsets[class]++},
                                       .timestamp_ms = run_epoch_ms + request->arrival_us / 1000,
                                       .record = &record});
    run_hour_at(run, request->arrival_us)->prompt_tokens += request->prompt_tokens;
    run->next++;
}

void arrivals_due(struct run *run)
{
    while (!run->paused && run->next < run->trace->count &&
           run->trace->requests[run->next].arrival_us <= run->now_us)
        arrive(run);
}

uint64_t arrivals_unread(const struct run *run)
{
    size_t end = run->next;

    while (run->paused && end < run->trace->count &&
           run->trace->requests[end].arrival_us <= run->now_us)
        end++;
    return end - run->next;
}
