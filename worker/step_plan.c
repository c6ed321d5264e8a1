/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/step_plan.h"

#include <stdlib.h>
#include <string.h>

#include "common/check.h"

bool step_plan_open(struct step_plan *plan, struct step_limits limits, struct err *err)
{
    const size_t seqs = limits.seqs_max;
    const size_t rows = seqs + limits.chunk_tokens;

    *plan = (struct step_plan){
        .limits = limits,
        .seqs = calloc(seqs, sizeof(struct sequence *)),
        .sampled = calloc(seqs, sizeof(struct sequence *)),
        .tokens = calloc(rows, sizeof(uint32_t)),
        .positions = calloc(rows, sizeof(uint32_t)),
        .first_row = calloc(seqs, sizeof(uint32_t)),
        .seq_rows = calloc(seqs, sizeof(uint32_t)),
        .first_position = calloc(seqs, sizeof(uint32_t)),
        .pages = calloc(seqs * kv_pages_needed(limits.context_max), sizeof(uint32_t)),
        .logit_rows = calloc(seqs, sizeof(uint32_t)),
        .micro_first = calloc(seqs + 1, sizeof(uint32_t)),
        .claimed = calloc(seqs, sizeof(struct sequence *)),
        .expert_counts = calloc(seqs, sizeof(uint32_t *)),
        .claimed_rows = calloc(seqs, sizeof(uint32_t)),
        .order = calloc(seqs, sizeof(uint32_t)),
        .micro_scratch =
            calloc(micro_batch_scratch(limits.seqs_max, limits.profile_cells), sizeof(float)),
    };
    if (plan->seqs && plan->sampled && plan->tokens && plan->positions && plan->first_row &&
        plan->seq_rows && plan->first_position && plan->pages && plan->logit_rows &&
        plan->micro_first && plan->claimed && plan->expert_counts && plan->claimed_rows &&
        plan->order && plan->micro_scratch)
        return true;
    step_plan_close(plan);
    return err_set(err, ERR_FATAL, "no memory for steps of %zu rows", rows);
}

void step_plan_close(struct step_plan *plan)
{
    free(plan->seqs);
    free(plan->sampled);
    free(plan->tokens);
    free(plan->positions);
    free(plan->first_row);
    free(plan->seq_rows);
    free(plan->first_position);
    free(plan->pages);
    free(plan->logit_rows);
    free(plan->micro_first);
    free(plan->claimed);
    free(plan->expert_counts);
    free(plan->claimed_rows);
    free(plan->order);
    free(plan->micro_scratch);
    *plan = (struct step_plan){0};
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Pages for the sequence's rows of this step, taken from younger ones if need be; false when it
 * had to let its own go. */
static bool claim_pages(struct sequences *s, struct sequence *sequence, uint32_t *preempted)
{
    const uint32_t want = kv_pages_needed(sequence->fed + sequence->rows);

    while (!prefix_cache_extend(&s->cache, &sequence->chain, want, sequence->known)) {
        struct sequence *youngest = s->running[s->running_count - 1];

        sequences_move(s, youngest, SEQUENCE_WAITING);
        (*preempted)++;
        if (youngest == sequence)
            return false;
    }
    return true;
}

/* Rows for one running sequence; false when it was preempted. */
static bool claim_rows(struct sequences *s, struct sequence *sequence, uint32_t *budget,
                       uint32_t *preempted)
{
    const uint32_t pending = sequence->known - sequence->fed;

    CHECK(pending >= 1);
    sequence->rows = pending == 1 ? 1 : min_u32(pending, *budget);
    if (!claim_pages(s, sequence, preempted))
        return false;
    if (pending > 1)
        *budget -= sequence->rows;
    return true;
}

/* Pages that running sequences will still take for what they know already. */
static uint32_t pages_promised(const struct sequences *s)
{
    uint32_t promised = 0;

    for (uint32_t i = 0; i < s->running_count; i++) {
        const struct sequence *sequence = s->running[i];
        uint32_t needed = kv_pages_needed(sequence->known + 1);

        promised += needed > sequence->chain.count ? needed - sequence->chain.count : 0;
    }
    return promised;
}

/* Is there room beside the running ones for a sequence that begins with the pages just found? One
 * that stands alone always fits: its context is at most the cache. */
static bool has_room(const struct sequences *s, const struct sequence *next)
{
    const uint32_t held = next->chain.found - prefix_cache_found_idle(&s->cache, &next->chain);

    return s->running_count == 0 || prefix_cache_available(&s->cache) + held >=
                                        pages_promised(s) + kv_pages_needed(next->known + 1);
}

/* Urgent sequences count their own kind alone, so that one finds a place where others have filled
 * the batch, or it has shrunk under them. */
static bool has_place(const struct sequences *s, const struct sequence *next, uint32_t passed,
                      uint32_t batch, uint32_t most)
{
    uint32_t urgent = 0;

    if (!next->urgent)
        return s->running_count + passed < batch;
    for (uint32_t i = 0; i < s->running_count; i++)
        urgent += s->running[i]->urgent;
    return urgent < batch && s->running_count + passed < most;
}

/* Waiting sequences in their order, as long as there are rows, places and pages. One that waits for
 * a page of another keeps its place in the batch: who passes it takes nothing from it. */
static void admit(struct sequences *s, uint32_t batch, uint32_t most, uint32_t budget)
{
    uint32_t preempted = 0;
    uint32_t passed = 0, at = 0;

    while (budget > 0 && at < s->waiting_count) {
        struct sequence *next = s->waiting[at];

        if (!has_place(s, next, passed, batch, most)) {
            at++;
            continue;
        }
        if (prefix_cache_search(&s->cache, &next->chain, (next->known - 1) / KV_PAGE_TOKENS)) {
            passed++;
            at++;
            continue;
        }
        if (!has_room(s, next))
            break;
        sequences_move(s, next, SEQUENCE_RUNNING);
        prefix_cache_attach(&s->cache, &next->chain, next->known);
        next->fed = next->chain.count * KV_PAGE_TOKENS;
        if (next->first_step_us == 0)
            next->cached = min_u32(next->fed, next->prompt_count);
        CHECK(claim_rows(s, next, &budget, &preempted));
    }
    CHECK(preempted == 0);
}

static void add_rows(struct step_plan *plan, struct sequence *sequence)
{
    const bool whole = sequence->fed + sequence->rows == sequence->known;

    plan->first_row[plan->n_seqs] = plan->n_rows;
    plan->seq_rows[plan->n_seqs] = sequence->rows;
    plan->first_position[plan->n_seqs] = sequence->fed;
    for (uint32_t i = 0; i < sequence->rows; i++) {
        plan->tokens[plan->n_rows + i] = (uint32_t)sequence->tokens[sequence->fed + i];
        plan->positions[plan->n_rows + i] = sequence->fed + i;
    }
    plan->n_rows += sequence->rows;
    sequence->decoding = sequence->rows == 1 && sequence->sampled > 0;
    plan->n_decode_rows += sequence->decoding;
    plan->seqs[plan->n_seqs++] = sequence;
    if (whole) {
        plan->logit_rows[plan->n_logits] = plan->n_rows - 1;
        plan->sampled[plan->n_logits++] = sequence;
    }
}

/* The claimed sequences' order and where their micro-batches begin. */
static void cut(struct step_plan *plan, uint32_t count, uint32_t micro_batch)
{
    const struct micro_batch_input input = {.rows = plan->claimed_rows,
                                            .expert_counts = plan->expert_counts,
                                            .count = count,
                                            .cells = plan->limits.profile_cells,
                                            .size = micro_batch};

    if (micro_batch > 0) {
        plan->n_micro = micro_batch_count(count, micro_batch);
        micro_batch_cut(&input, plan->micro_scratch, plan->order, plan->micro_first);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        plan->order[i] = i;
    plan->n_micro = count > 0;
    plan->micro_first[0] = 0;
    plan->micro_first[plan->n_micro] = count;
}

static void build(struct step_plan *plan, const struct sequences *s, uint32_t micro_batch)
{
    uint32_t stride = 1;
    uint32_t count = 0;

    plan->n_rows = 0;
    plan->n_seqs = 0;
    plan->n_logits = 0;
    plan->n_decode_rows = 0;
    for (uint32_t i = 0; i < s->running_count; i++) {
        if (s->running[i]->rows == 0)
            continue;
        plan->claimed[count] = s->running[i];
        plan->claimed_rows[count] = s->running[i]->rows;
        plan->expert_counts[count++] = s->running[i]->expert_counts;
    }
    cut(plan, count, micro_batch);
    for (uint32_t i = 0; i < count; i++)
        add_rows(plan, plan->claimed[plan->order[i]]);
    for (uint32_t i = 0; i < plan->n_seqs; i++)
        stride = plan->seqs[i]->chain.count > stride ? plan->seqs[i]->chain.count : stride;
    for (uint32_t i = 0; i < plan->n_seqs; i++)
        memcpy(plan->pages + i * (size_t)stride, plan->seqs[i]->chain.pages,
               plan->seqs[i]->chain.count * sizeof *plan->pages);
    plan->pages_stride = stride;
}

uint32_t step_plan_make(struct step_plan *plan, struct sequences *sequences,
                        struct step_sizes sizes)
{
    uint32_t budget = plan->limits.chunk_tokens;
    uint32_t preempted = 0;

    for (uint32_t i = 0; i < sequences->running_count; i++)
        if (!claim_rows(sequences, sequences->running[i], &budget, &preempted))
            break; /* it was the last */
    if (preempted == 0)
        admit(sequences, sizes.batch, plan->limits.seqs_max, budget);
    build(plan, sequences, sizes.micro_batch);
    return preempted;
}

struct model_batch step_plan_batch(const struct step_plan *plan, const struct pipeline *pipeline)
{
    return (struct model_batch){
        .tokens = plan->tokens,
        .positions = plan->positions,
        .first_row = plan->first_row,
        .seq_rows = plan->seq_rows,
        .first_position = plan->first_position,
        .pages = plan->pages,
        .logit_rows = plan->logit_rows,
        .pages_stride = plan->pages_stride,
        .n_rows = plan->n_rows,
        .n_seqs = plan->n_seqs,
        .n_logits = plan->n_logits,
        .micro_first = plan->micro_first,
        .n_micro = plan->n_micro,
        .pipeline = pipeline,
    };
}
