/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/node.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"

/* Admission leaves room to decode: a sequence starts only while this share of the KV memory is free
 * of prompts, as in the worker. */
static const double kv_admit_share = 0.95;
static const double step_smoothing = 0.05;

static bool grow(struct node_list *list, struct err *err)
{
    if (list->head > 0 && list->head >= list->count / 2) {
        list->count -= list->head;
        memmove(list->items, list->items + list->head, list->count * sizeof *list->items);
        list->head = 0;
    }
    if (list->count < list->capacity)
        return true;
    uint32_t capacity = list->capacity ? 2 * list->capacity : 64;
    void *items = realloc(list->items, capacity * sizeof *list->items);
    if (!items)
        return err_set(err, ERR_FATAL, "simulated worker: out of memory for %u requests", capacity);
    list->items = items;
    list->capacity = capacity;
    return true;
}

static bool push(struct node_list *list, const struct node_sequence *sequence, struct err *err)
{
    if (!grow(list, err))
        return false;
    list->items[list->count++] = *sequence;
    return true;
}

static uint32_t length(const struct node_list *list)
{
    return list->count - list->head;
}

static void swap(struct node_sequence *a, struct node_sequence *b)
{
    struct node_sequence t = *a;

    *a = *b;
    *b = t;
}

/* Ends first; the request's index makes the order total, so that a run repeats to the byte. */
static bool earlier(const struct node_sequence *a, const struct node_sequence *b)
{
    return a->end_step < b->end_step || (a->end_step == b->end_step && a->request < b->request);
}

static void sift_up(struct node_list *heap, uint32_t at)
{
    for (; at > 0 && earlier(&heap->items[at], &heap->items[(at - 1) / 2]); at = (at - 1) / 2)
        swap(&heap->items[at], &heap->items[(at - 1) / 2]);
}

static void sift_down(struct node_list *heap, uint32_t at)
{
    for (;;) {
        uint32_t first = at, left = 2 * at + 1;
        for (uint32_t child = left; child < left + 2 && child < heap->count; child++)
            if (earlier(&heap->items[child], &heap->items[first]))
                first = child;
        if (first == at)
            return;
        swap(&heap->items[at], &heap->items[first]);
        at = first;
    }
}

static void heap_remove(struct node_list *heap, uint32_t at)
{
    heap->items[at] = heap->items[--heap->count];
    if (at < heap->count) {
        sift_down(heap, at);
        sift_up(heap, at);
    }
}

bool node_init(struct node *node, const struct node_config *config, uint32_t batch_size,
               struct err *err)
{
    *node = (struct node){.config = *config, .batch_size = batch_size};
    return routing_batch_init(&node->batch, config->routing, err) &&
           block_cache_init(&node->cache, config->blocks_limit, config->block_tokens,
                            config->everywhere, err);
}

void node_free(struct node *node)
{
    free(node->queue.items);
    free(node->filling.items);
    free(node->decoding.items);
    free(node->parked.items);
    block_cache_free(&node->cache);
}

bool node_assign(struct node *node, const struct node_sequence *sequence, struct err *err)
{
    CHECK(sequence->prompt >= 1 && sequence->output >= 1);
    CHECK(sequence->blocks.count == 0 || sequence->blocks.tokens == sequence->prompt);
    if (!push(&node->queue, sequence, err))
        return false;
    struct node_list *queue = &node->queue;
    for (uint32_t i = queue->count - 1;
         sequence->urgent && i > queue->head && !queue->items[i - 1].urgent; i--) {
        queue->items[i] = queue->items[i - 1];
        queue->items[i - 1] = *sequence;
    }
    return true;
}

static uint32_t running(const struct node *node)
{
    return length(&node->filling) + node->decoding.count + node->parked.count;
}

uint32_t node_held(const struct node *node)
{
    return length(&node->queue) + running(node);
}

/* Memory that this much context of the sequence takes beyond the blocks of others. */
static uint64_t need(const struct node *node, const struct node_sequence *sequence,
                     uint64_t context)
{
    return context - sequence->blocks.tokens + block_cache_need(&node->cache, &sequence->blocks);
}

static bool fits(const struct node *node, const struct node_sequence *sequence)
{
    /* One that could never fit runs alone rather than never. */
    return running(node) == 0 || (double)(node->kv_used + need(node, sequence, sequence->prompt)) <=
                                     kv_admit_share * (double)node->config.model->kv_tokens;
}

/* Idle blocks have what running sequences leave. */
static void make_idle_room(struct node *node)
{
    uint64_t kv_tokens = node->config.model->kv_tokens;

    block_cache_shrink(&node->cache, kv_tokens > node->kv_used ? kv_tokens - node->kv_used : 0);
}

/* At least the last token is computed: its row gives the first answer. */
static uint32_t found(const struct node *node, const struct node_sequence *sequence)
{
    uint32_t tokens = sequence->blocks.count > 0
                          ? block_cache_match(&node->cache, &sequence->blocks)
                          : (uint32_t)(sequence->prompt * node->config.cached_share);

    return tokens < sequence->prompt ? tokens : sequence->prompt - 1;
}

static bool start_filling(struct node *node, const struct node_sequence *next)
{
    struct node_sequence *started;
    struct err err;

    if (!push(&node->filling, next, &err))
        return false;
    started = &node->filling.items[node->filling.count - 1];
    started->prefilled = found(node, next);
    started->cached += started->again ? 0 : started->prefilled;
    node->kv_used += need(node, next, next->prompt);
    node->kv_context += next->prompt;
    block_cache_hold(&node->cache, &next->blocks, next->request);
    make_idle_room(node);
    routing_batch_add(&node->batch, next->task, 1);
    node->urgent_running += next->urgent;
    return true;
}

/* context: what it has in memory. */
static void leave(struct node *node, const struct node_sequence *sequence, uint64_t context)
{
    uint64_t held = node->cache.held_tokens;

    block_cache_let_go(&node->cache, &sequence->blocks, sequence->request);
    node->kv_used -= context - sequence->blocks.tokens + (held - node->cache.held_tokens);
    node->kv_context -= context;
    routing_batch_add(&node->batch, sequence->task, -1);
    node->urgent_running -= sequence->urgent;
}

/* Rows of this step that are left for prompts which are not under way yet. */
static uint32_t prefill_room(const struct node *node)
{
    uint32_t room = node->config.model->chunk_tokens;

    for (uint32_t i = node->filling.head; i < node->filling.count && room > 0; i++) {
        uint32_t left = node->filling.items[i].prompt - node->filling.items[i].prefilled;
        room -= left < room ? left : room;
    }
    return room;
}

/* As worker/step_plan.c: one after another while the step has rows for their prompts. What is not
 * admitted can still be passed by an urgent one, and holds no memory. */
static void admit(struct node *node)
{
    uint32_t limit = node->batch_size < node->config.model->max_seqs ? node->batch_size
                                                                     : node->config.model->max_seqs;

    if (node->config.classic && running(node) > 0)
        return;
    while (length(&node->queue) > 0 && (node->config.classic || prefill_room(node) > 0)) {
        const struct node_sequence *next = &node->queue.items[node->queue.head];
        if (next->urgent
                ? node->urgent_running >= limit || running(node) >= node->config.model->max_seqs
                : running(node) >= limit)
            return;
        if (!fits(node, next) || !start_filling(node, next))
            return;
        node->queue.head++;
    }
}

/* Its turn has come: it goes on behind what others have computed meanwhile. False: it waits for
 * what another one computes in this step, and so do those behind it. */
static bool goes_on(struct node *node, struct node_sequence *sequence)
{
    uint32_t prefilled = sequence->blocks.count > 0 ? found(node, sequence) : 0;

    if (prefilled > sequence->prefilled) {
        sequence->cached += sequence->again ? 0 : prefilled - sequence->prefilled;
        sequence->prefilled = prefilled;
    }
    return !block_cache_is_coming(&node->cache, &sequence->blocks, sequence->prefilled,
                                  sequence->request);
}

bool node_begin(struct node *node, double *us)
{
    const struct step_model *model = node->config.model;
    uint32_t room = model->chunk_tokens;

    CHECK(!node->stepping);
    admit(node);
    node->shape = (struct step_shape){.decode_rows = node->decoding.count + node->parked.count,
                                      .kv_tokens = node->kv_context,
                                      .imbalance = 1};
    for (uint32_t i = node->filling.head; i < node->filling.count && room > 0; i++) {
        struct node_sequence *s = &node->filling.items[i];
        if (!goes_on(node, s))
            break;
        uint32_t left = s->prompt - s->prefilled, rows = left < room ? left : room;
        node->shape.prefill_rows += rows;
        room -= rows;
    }
    if (node->shape.decode_rows + node->shape.prefill_rows == 0)
        return false;
    node->shape.imbalance =
        routing_batch_imbalance(&node->batch, node->shape.decode_rows + node->shape.prefill_rows);
    node->stepping = true;
    *us = step_model_us(model, &node->shape);
    return true;
}

static bool grow_outcome(struct node_outcome *outcome, uint32_t count, struct err *err)
{
    uint32_t capacity = outcome->capacity ? 2 * outcome->capacity : 64;
    uint32_t **lists[] = {&outcome->first, &outcome->ended, &outcome->ended_cached};

    if (count < outcome->capacity)
        return true;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        uint32_t *grown = realloc(*lists[i], capacity * sizeof *grown);
        if (!grown)
            return err_set(err, ERR_FATAL, "simulated worker: out of memory");
        *lists[i] = grown;
    }
    outcome->capacity = capacity;
    return true;
}

/* All its tokens but the last, which is never fed, stand in the cache. */
static bool end_sequence(struct node *node, const struct node_sequence *sequence,
                         struct node_outcome *outcome, struct err *err)
{
    leave(node, sequence, sequence->prompt + sequence->output);
    if (!grow_outcome(outcome, outcome->ended_count, err))
        return false;
    outcome->ended_cached[outcome->ended_count] = sequence->cached;
    outcome->ended[outcome->ended_count++] = sequence->request;
    return true;
}

static bool park(struct node *node, const struct node_sequence *sequence, struct err *err)
{
    node->kv_parked += sequence->prompt + sequence->output;
    return push(&node->parked, sequence, err);
}

/* Tokens that a decoding sequence has in the cache after the current step. */
static uint64_t cached(const struct node *node, const struct node_sequence *sequence)
{
    return sequence->prompt + sequence->output - (sequence->end_step - node->step);
}

/* The step gave every decoding sequence a token; those at their end leave, or wait for their batch.
 */
static bool end_decoding(struct node *node, struct node_outcome *outcome, struct err *err)
{
    struct node_list *heap = &node->decoding;

    node->kv_used += heap->count;
    node->kv_context += heap->count;
    node->decode_tokens += heap->count;
    while (heap->count > 0 && heap->items[0].end_step <= node->step) {
        struct node_sequence ended = heap->items[0];
        heap_remove(heap, 0);
        if (node->config.classic ? !park(node, &ended, err)
                                 : !end_sequence(node, &ended, outcome, err))
            return false;
    }
    return true;
}

/* A classic batch leaves when the last one of it has ended. */
static bool end_batch(struct node *node, struct node_outcome *outcome, struct err *err)
{
    if (node->decoding.count + length(&node->filling) > 0)
        return true;
    for (uint32_t i = 0; i < node->parked.count; i++)
        if (!end_sequence(node, &node->parked.items[i], outcome, err))
            return false;
    node->parked.count = 0;
    node->kv_parked = 0;
    return true;
}

static bool start_decoding(struct node *node, struct node_sequence *sequence,
                           struct node_outcome *outcome, struct err *err)
{
    if (!sequence->first_token) {
        if (!grow_outcome(outcome, outcome->first_count, err))
            return false;
        outcome->first[outcome->first_count++] = sequence->request;
    }
    sequence->first_token = true;
    node->decode_tokens++; /* the prefill's last row gives the first token */
    /* Its token enters the cache when the next step feeds it, as for all others. */
    sequence->output--;
    sequence->end_step = node->step + sequence->output;
    if (sequence->output == 0)
        return node->config.classic ? park(node, sequence, err)
                                    : end_sequence(node, sequence, outcome, err);
    if (!push(&node->decoding, sequence, err))
        return false;
    sift_up(&node->decoding, node->decoding.count - 1);
    return true;
}

static bool end_filling(struct node *node, struct node_outcome *outcome, struct err *err)
{
    struct node_list *filling = &node->filling;
    uint32_t room = node->shape.prefill_rows;

    node->prefill_tokens += room;
    while (room > 0) {
        struct node_sequence *s = &filling->items[filling->head];
        uint32_t left = s->prompt - s->prefilled, rows = left < room ? left : room;
        block_cache_compute(&node->cache, &s->blocks, s->prefilled, s->prefilled + rows);
        s->prefilled += rows;
        room -= rows;
        if (s->prefilled < s->prompt)
            break;
        struct node_sequence ready = *s;
        filling->head++;
        if (!start_decoding(node, &ready, outcome, err))
            return false;
    }
    return true;
}

/* Preempt the youngest (highest request index) until the next step's tokens fit. */
static bool make_room(struct node *node, struct err *err)
{
    struct node_list *heap = &node->decoding;

    while (node->kv_used + heap->count > node->config.model->kv_tokens && heap->count > 1) {
        uint32_t youngest = 0;
        for (uint32_t i = 1; i < heap->count; i++)
            if (heap->items[i].request > heap->items[youngest].request)
                youngest = i;
        struct node_sequence back = heap->items[youngest];
        uint64_t kv = cached(node, &back);
        heap_remove(heap, youngest);
        leave(node, &back, kv);
        node->preemptions++;
        back.output = (uint32_t)(back.end_step - node->step);
        back.prompt = (uint32_t)kv + 1; /* with the token not fed yet */
        back.prefilled = 0;
        back.again = true;
        if (node->queue.head > 0)
            node->queue.items[--node->queue.head] = back;
        else if (!push(&node->queue, &back, err))
            return false;
    }
    return true;
}

/* Before the step's ends change anything. */
static void count_work(struct node *node)
{
    uint32_t left = node->shape.prefill_rows, fresh = 0;

    for (uint32_t i = node->filling.head; left > 0; i++) {
        const struct node_sequence *s = &node->filling.items[i];
        uint32_t rows = s->prompt - s->prefilled < left ? s->prompt - s->prefilled : left;
        left -= rows;
        fresh += s->again ? 0 : rows;
    }
    const struct step_work work = {.decode_rows = node->decoding.count,
                                   .prefill_rows = fresh,
                                   .context_tokens =
                                       (double)(node->shape.kv_tokens - node->kv_parked),
                                   .memory_tokens = (double)(node->kv_used - node->kv_parked)};
    node->work_us += step_model_work_us(node->config.model, &work);
}

bool node_end(struct node *node, double us, struct node_outcome *outcome, struct err *err)
{
    const struct node_config *config = &node->config;
    const struct step_shape none = {.kv_tokens = node->shape.kv_tokens, .imbalance = 1};
    double rest_us = step_model_us(config->model, &none);
    double load = (us - rest_us) / fmax(config->step_us_target - rest_us, 1);

    CHECK(node->stepping);
    node->stepping = false;
    node->step++;
    outcome->first_count = outcome->ended_count = 0;
    node->busy_us += (int64_t)us;
    count_work(node);
    node->rows_total += node->shape.decode_rows + node->shape.prefill_rows;
    node->load += config->load_smoothing * (load - node->load);
    node->step_us += (node->step == 1 ? 1 : step_smoothing) * (us - node->step_us);
    if (!end_decoding(node, outcome, err) || !end_filling(node, outcome, err) ||
        !end_batch(node, outcome, err) || !make_room(node, err))
        return false;
    make_idle_room(node);
    return true;
}

void node_outcome_free(struct node_outcome *outcome)
{
    free(outcome->first);
    free(outcome->ended);
    free(outcome->ended_cached);
    *outcome = (struct node_outcome){0};
}
