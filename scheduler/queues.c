/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/queues.h"

#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "common/ids.h"

/* Tokens a flow may take each turn: about four typical requests, few enough that tenants alternate
 * within one batch, enough that a request of 100,000 tokens waits for 25 turns of the ring. */
enum { QUANTUM = 4096 };

void name_key(const struct str *parts, size_t count, uint8_t key[16])
{
    struct sha256 *sha = sha256_open();
    uint8_t digest[SHA256_SIZE];

    for (size_t i = 0; i < count; i++) {
        uint64_t size = parts[i].size; /* ("ab", "c") is not ("a", "bc") */
        sha256_update(sha, &size, sizeof size);
        sha256_update(sha, parts[i].data, parts[i].size);
    }
    sha256_close(sha, digest);
    memcpy(key, digest, 16);
}

struct str str_copy(struct str from)
{
    char *data = malloc(from.size + 1);

    CHECK(data);
    if (from.size)
        memcpy(data, from.data, from.size);
    data[from.size] = '\0';
    return (struct str){data, from.size};
}

void queues_open(struct queues *queues)
{
    *queues = (struct queues){.models = idmap_open(0), .flows = idmap_open(0)};
}

void queues_close(struct queues *queues)
{
    size_t cursor = 0;
    union idmap_value *value;

    while (idmap_next(queues->flows, &cursor, NULL, &value)) {
        struct flow *flow = value->pointer;
        for (struct lane *lane = flow->lanes, *next; lane; lane = next) {
            next = lane->next;
            free(lane);
        }
        free(flow);
    }
    for (cursor = 0; idmap_next(queues->models, &cursor, NULL, &value);) {
        struct model *model = value->pointer;
        free((void *)model->name.data);
        free(model);
    }
    idmap_close(queues->flows);
    idmap_close(queues->models);
}

struct model *queues_model(struct queues *queues, struct str name)
{
    uint8_t key[16];
    union idmap_value *value;
    struct model *model;

    name_key(&name, 1, key);
    value = idmap_put(queues->models, key, NULL);
    if (!value->pointer) {
        model = calloc(1, sizeof *model);
        CHECK(model);
        memcpy(model->key, key, sizeof key);
        model->name = str_copy(name);
        model->prev = model->next = model;
        if (queues->cursor) {
            model->next = queues->cursor;
            model->prev = queues->cursor->prev;
            model->prev->next = model->next->prev = model;
        }
        queues->cursor = model;
        value->pointer = model;
    }
    model = value->pointer;
    model->refs++;
    return model;
}

void queues_model_release(struct queues *queues, struct model *model)
{
    if (!model || --model->refs > 0)
        return;
    if (queues->cursor == model)
        queues->cursor = model->next == model ? NULL : model->next;
    model->prev->next = model->next;
    model->next->prev = model->prev;
    idmap_remove(queues->models, model->key, NULL);
    free((void *)model->name.data);
    free(model);
}

static struct flow *flow_open(struct queues *queues, struct group *group, const uint8_t key[16])
{
    union idmap_value *value = idmap_put(queues->flows, key, NULL);
    struct flow *flow = value->pointer;

    if (flow)
        return flow;
    flow = calloc(1, sizeof *flow);
    CHECK(flow);
    value->pointer = flow;
    memcpy(flow->key, key, sizeof flow->key);
    flow->group = group;
    flow->prev = flow->next = flow;
    if (group->current) { /* last in this turn */
        flow->next = group->current;
        flow->prev = group->current->prev;
        flow->prev->next = flow->next->prev = flow;
    } else {
        group->current = flow;
    }
    return flow;
}

static void flow_close(struct queues *queues, struct flow *flow)
{
    struct group *group = flow->group;

    /* Its predecessor, which has had its turn: the next peek moves on and pays the successor. */
    if (group->current == flow)
        group->current = flow->prev == flow ? NULL : flow->prev;
    flow->prev->next = flow->next;
    flow->next->prev = flow->prev;
    idmap_remove(queues->flows, flow->key, NULL);
    free(flow);
}

enum { LANE_GROUPS = 8 }; /* of system prompts, and of words */

static uint32_t lane_key(const struct job *job)
{
    const struct prefix_keys *keys;

    if (!job->payload)
        return 0;
    keys = &job->payload->prefix;
    if (!keys->system)
        return (uint32_t)(keys->words % FLOW_LANES_MAX);
    return (uint32_t)(prefix_mix(keys->system, 0) % LANE_GROUPS * LANE_GROUPS +
                      prefix_mix(keys->words, 0) % LANE_GROUPS);
}

struct lane *queues_lane(const struct job *job)
{
    const uint32_t key = lane_key(job);
    struct lane *lane = job->flow->lanes;

    while (lane->key != key)
        lane = lane->next;
    return lane;
}

static struct lane *lane_open(struct flow *flow, uint32_t key)
{
    struct lane *lane = flow->lanes;

    while (lane && lane->key != key)
        lane = lane->next;
    if (lane)
        return lane;
    lane = calloc(1, sizeof *lane);
    CHECK(lane);
    lane->key = key;
    lane->next = flow->lanes;
    flow->lanes = lane;
    return lane;
}

static void lane_remove(struct flow *flow, struct job *job)
{
    const uint32_t key = lane_key(job);
    struct lane **link = &flow->lanes;
    struct lane *lane;

    while ((*link)->key != key)
        link = &(*link)->next;
    lane = *link;
    job_list_remove(&lane->jobs, LINK_STATE, job);
    if (lane->jobs.count > 0)
        return;
    *link = lane->next;
    free(lane);
}

static struct job *find_oldest(const struct flow *flow)
{
    struct job *oldest = flow->lanes->jobs.head;

    for (const struct lane *lane = flow->lanes->next; lane; lane = lane->next)
        if ((int32_t)(lane->jobs.head->order - oldest->order) < 0) /* orders wrap */
            oldest = lane->jobs.head;
    return oldest;
}

void queues_push(struct queues *queues, struct job *job, enum job_length length)
{
    struct group *group = &job->model->groups[job->service_class][length];
    char kind[2] = {(char)job->service_class, (char)length};
    struct str parts[] = {{kind, sizeof kind}, job->model->name, job->batch->tenant};
    uint8_t key[16];

    name_key(parts, 3, key);
    job->flow = flow_open(queues, group, key);
    job->order = job->flow->arrivals++;
    if (job->flow->count == 0)
        job->flow->oldest = job;
    job_list_append(&lane_open(job->flow, lane_key(job))->jobs, LINK_STATE, job);
    job->flow->count++;
    group->count++;
}

void queues_remove(struct queues *queues, struct job *job)
{
    struct flow *flow = job->flow;

    job->flow = NULL;
    lane_remove(flow, job);
    flow->count--;
    flow->group->count--;
    if (flow->count == 0)
        flow_close(queues, flow);
    else if (flow->oldest == job)
        flow->oldest = find_oldest(flow);
}

uint32_t flow_overtakes(const struct job *oldest, const struct job *job)
{
    return job->order - oldest->order;
}

struct job *group_peek(struct group *group)
{
    struct job *job;

    if (!group->current)
        return NULL;
    /* Ends: every turn adds a quantum to each flow, and a job has at most 2^20 tokens. A flow knows
     * its oldest job, since the ring turns several times for each large one: looking through the
     * lanes cost a third of a tick with prompts of 60 kB. */
    while (job = group->current->oldest, group->current->deficit < (int64_t)job->tokens) {
        group->current = group->current->next;
        group->current->deficit += QUANTUM;
    }
    return job;
}

void queues_take(struct queues *queues, struct job *job)
{
    CHECK(job->links[LINK_STATE].prev == NULL);
    job->flow->deficit -= (int64_t)job->tokens;
    queues_remove(queues, job);
}
