/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/check.h"
#include "common/clock.h"
#include "worker/expert_load.h"
#include "worker/expert_profile.h"
#include "worker/model.h"
#include "worker/sequences.h"
#include "worker/step_plan.h"

enum {
    SEQS_MAX = 4096,
    WAITING_MAX = 1 << 20,
    CHUNK_TOKENS_DEFAULT = 512,
    CHUNK_TOKENS_MAX = 1 << 16,
    MICRO_BATCH_DEFAULT = 16,       /* 8 to 32 are advised */
    STEP_US_TARGET_DEFAULT = 50000, /* 20 tokens a second for each sequence */
};

struct engine {
    struct model *model;
    struct sequences sequences;
    struct step_plan plan;
    struct expert_load load;
    struct expert_profile_shape profile;
    struct sampler_candidate *candidates; /* (vocab_size) the sampler's scratch */
    enum numerics numerics;
    bool overlap;
    uint32_t seqs_max;
    uint32_t batch_size;
    uint32_t micro_batch_size;
    uint32_t context_max;
    int64_t steps;
    int64_t prefill_tokens;
    int64_t decode_tokens;
    int64_t preemptions;
    int64_t busy_us;
    double step_us;
};

static bool check_config(const struct engine_config *config, struct err *err)
{
    if (config->max_seqs < 1 || config->max_seqs > SEQS_MAX)
        return err_set(err, ERR_FATAL, "engine: max_seqs is %u, allowed are 1 to %d",
                       config->max_seqs, SEQS_MAX);
    if (config->max_waiting > WAITING_MAX)
        return err_set(err, ERR_FATAL, "engine: max_waiting is %u, allowed are 0 to %d",
                       config->max_waiting, WAITING_MAX);
    if (config->chunk_tokens > CHUNK_TOKENS_MAX)
        return err_set(err, ERR_FATAL, "engine: chunk_tokens is %u, allowed are 0 to %d",
                       config->chunk_tokens, CHUNK_TOKENS_MAX);
    return true;
}

/* Pages that kv_size holds, or by default what max_seqs whole contexts need, within a quarter of
 * the machine's memory. */
static bool open_cache(struct engine *engine, const struct engine_config *config, uint32_t *pages,
                       struct err *err)
{
    const size_t page_size = model_page_size(engine->model);
    const uint64_t wanted =
        (uint64_t)config->max_seqs * kv_pages_needed(model_context_max(engine->model));
    const uint64_t ram = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t count = config->kv_size / page_size;

    if (config->kv_size == 0)
        count = wanted < ram / 4 / page_size ? wanted : ram / 4 / page_size;
    if (count < 2 || count > UINT32_MAX)
        return err_set(err, ERR_FATAL,
                       "engine: KV cache of %llu pages of %zu bytes; at least 2 are needed, at "
                       "most %u are possible",
                       (unsigned long long)count, page_size, UINT32_MAX);
    *pages = (uint32_t)count;
    return model_cache_open(engine->model, *pages, err);
}

static bool open_parts(struct engine *engine, const struct engine_config *config, struct err *err)
{
    const uint32_t chunk = config->chunk_tokens ? config->chunk_tokens : CHUNK_TOKENS_DEFAULT;
    const struct model_options options = {.dir = config->model_dir,
                                          .backend = config->backend,
                                          .numerics = engine->numerics,
                                          .threads = config->threads,
                                          .rows_max = config->max_seqs + chunk,
                                          .seqs_max = config->max_seqs,
                                          .context_max = config->max_context};
    const struct model_config *c;
    uint32_t pages = 0;

    if (!check_config(config, err) || !model_open(&engine->model, &options, err) ||
        !open_cache(engine, config, &pages, err))
        return false;
    c = model_config(engine->model);
    engine->context_max = model_context_max(engine->model);
    if (kv_pages_needed(engine->context_max) > pages)
        engine->context_max = pages * KV_PAGE_TOKENS;
    engine->candidates = calloc(c->vocab_size, sizeof *engine->candidates);
    if (!engine->candidates)
        return err_set(err, ERR_FATAL, "engine: no memory for %u logits", c->vocab_size);

    engine->profile = expert_profile_shape(model_config_expert_layers(c), c->experts, c->top_k);
    const uint32_t cells = expert_profile_cells(&engine->profile);
    const struct step_limits limits = {.seqs_max = config->max_seqs,
                                       .chunk_tokens = chunk,
                                       .context_max = engine->context_max,
                                       .profile_cells = cells};
    return sequences_open(&engine->sequences,
                          (struct sequences_shape){.count = config->max_seqs + config->max_waiting,
                                                   .context_max = engine->context_max,
                                                   .pages = pages,
                                                   .prefix_cache = config->prefix_cache,
                                                   .profile_cells = cells},
                          err) &&
           step_plan_open(&engine->plan, limits, err) &&
           expert_load_open(
               &engine->load, model_config_expert_layers(c), c->experts, c->top_k,
               config->step_us_target ? config->step_us_target : STEP_US_TARGET_DEFAULT, err);
}

bool engine_open(struct engine **engine, const struct engine_config *config, struct err *err)
{
    struct engine *made = calloc(1, sizeof *made);

    if (!made)
        return err_set(err, ERR_FATAL, "engine: no memory");
    made->numerics = config->numerics == ENGINE_BF16 ? NUMERICS_BF16 : NUMERICS_F32;
    made->overlap = config->overlap;
    made->seqs_max = config->max_seqs;
    made->batch_size = config->max_seqs;
    made->micro_batch_size = MICRO_BATCH_DEFAULT;
    if (!open_parts(made, config, err)) {
        engine_close(made);
        return false;
    }
    *engine = made;
    return true;
}

void engine_close(struct engine *engine)
{
    if (!engine)
        return;
    expert_load_close(&engine->load);
    step_plan_close(&engine->plan);
    sequences_close(&engine->sequences);
    free(engine->candidates);
    model_close(engine->model);
    free(engine);
}

void engine_info(const struct engine *engine, struct engine_info *info)
{
    const struct model_config *c = model_config(engine->model);

    *info = (struct engine_info){
        .model_name = c->name,
        .revision = model_revision(engine->model),
        .numerics_id = model_numerics_id(engine->model),
        .precision = engine->numerics == NUMERICS_F32 ? "f32" : "bf16",
        .vocab_size = c->vocab_size,
        .max_context = engine->context_max,
        .max_seqs = engine->seqs_max,
        .kv_tokens = (uint64_t)engine->sequences.cache.pages.count * KV_PAGE_TOKENS,
        .expert_layers = engine->load.layers,
        .experts = c->experts,
        .profile_count = expert_profile_cells(&engine->profile),
        .eos_ids = c->eos_ids,
        .eos_count = c->eos_count,
    };
}

static bool check_ids(const struct engine *engine, const int32_t *ids, uint32_t count,
                      const char *what, struct err *err)
{
    const uint32_t vocab_size = model_config(engine->model)->vocab_size;

    for (uint32_t i = 0; i < count; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= vocab_size)
            return err_set(err, ERR_REJECT, "%s token %u is %d, the vocabulary has %u", what, i,
                           (int)ids[i], vocab_size);
    return true;
}

static bool check_request(const struct engine *engine, const struct engine_request *request,
                          struct err *err)
{
    const uint64_t total = (uint64_t)request->prompt_count + request->max_tokens;

    if (request->prompt_count == 0)
        return err_set(err, ERR_REJECT, "the prompt is empty");
    if (request->max_tokens <= request->prefix_count)
        return err_set(err, ERR_REJECT, "max_tokens is %u with %u tokens said already",
                       request->max_tokens, request->prefix_count);
    if (total > engine->context_max)
        return err_set(err, ERR_REJECT,
                       "the prompt has %u tokens and max_tokens is %u: together above the "
                       "context of %u",
                       request->prompt_count, request->max_tokens, engine->context_max);
    return check_ids(engine, request->prompt, request->prompt_count, "prompt", err) &&
           check_ids(engine, request->prefix, request->prefix_count, "prefix", err);
}

bool engine_submit(struct engine *engine, const struct engine_request *request, struct err *err)
{
    struct sequences *s = &engine->sequences;
    struct sequence *sequence = sequences_take(s);

    if (!check_request(engine, request, err))
        return false;
    if (!sequence)
        return err_set(err, ERR_RETRY, "%u sequences are held already", s->pool_count);
    CHECK(!sequences_find(s, request->tag));

    *sequence = (struct sequence){
        .tag = request->tag,
        .tokens = sequence->tokens,
        .chain = {.tokens = sequence->tokens,
                  .pages = sequence->chain.pages,
                  .salt = request->salt},
        .expert_counts = sequence->expert_counts,
        .sampling = request->sampling,
        .ignore_eos = request->ignore_eos,
        .urgent = request->urgent,
        .prompt_count = request->prompt_count,
        .known_max = request->prompt_count + request->max_tokens,
        .known = request->prompt_count + request->prefix_count,
        .submit_us = clock_mono_us(),
    };
    memcpy(sequence->tokens, request->prompt, request->prompt_count * sizeof *request->prompt);
    if (request->prefix_count > 0)
        memcpy(sequence->tokens + request->prompt_count, request->prefix,
               request->prefix_count * sizeof *request->prefix);
    memset(sequence->expert_counts, 0,
           expert_profile_cells(&engine->profile) * sizeof *sequence->expert_counts);
    sequences_move(s, sequence, SEQUENCE_WAITING);
    return true;
}

bool engine_remove(struct engine *engine, uint64_t tag, struct engine_usage *usage)
{
    struct sequence *sequence = sequences_find(&engine->sequences, tag);

    if (!sequence)
        return false;
    *usage = (struct engine_usage){
        .prompt_tokens = sequence->prompt_count,
        .cached_tokens = sequence->cached,
        .output_tokens = sequence->known - sequence->prompt_count,
        .prefill_us = (int64_t)(sequence->prefill_us + 0.5),
        .decode_us = (int64_t)(sequence->decode_us + 0.5),
        .run_us = sequence->last_step_us - sequence->first_step_us,
    };
    usage->queue_us =
        (sequence->first_step_us ? sequence->first_step_us : clock_mono_us()) - sequence->submit_us;
    sequences_move(&engine->sequences, sequence, SEQUENCE_FREE);
    return true;
}

bool engine_profile(const struct engine *engine, uint64_t tag, int32_t *profile)
{
    const struct sequence *sequence = sequences_find(&engine->sequences, tag);

    if (!sequence || sequence->first_step_us == 0)
        return false;
    expert_profile_scale(&engine->profile, sequence->expert_counts, profile);
    return true;
}

void engine_batch_size(struct engine *engine, uint32_t batch_size)
{
    engine->batch_size = batch_size < 1                  ? 1
                         : batch_size > engine->seqs_max ? engine->seqs_max
                                                         : batch_size;
}

void engine_micro_batch_size(struct engine *engine, uint32_t micro_batch_size)
{
    engine->micro_batch_size = micro_batch_size ? micro_batch_size : MICRO_BATCH_DEFAULT;
}

bool engine_has_work(const struct engine *engine)
{
    return engine->sequences.running_count + engine->sequences.waiting_count > 0;
}

static bool is_eos(const struct engine *engine, int32_t id)
{
    const struct model_config *c = model_config(engine->model);

    for (size_t i = 0; i < c->eos_count; i++)
        if (c->eos_ids[i] == id)
            return true;
    return false;
}

/* The next token of a sequence whose known tokens are all fed. */
static struct engine_token say(struct engine *engine, struct sequence *sequence,
                               const float *logits)
{
    const uint32_t vocab_size = model_config(engine->model)->vocab_size;
    struct engine_token token = {.tag = sequence->tag,
                                 .id = -1,
                                 .index = sequence->known - sequence->prompt_count,
                                 .finish = ENGINE_RUNNING};
    struct err err;

    if (!sampler_choose(&sequence->sampling, sequence->known, logits, vocab_size,
                        engine->candidates, &token.id, &err)) {
        token.finish = ENGINE_FAILED;
        return token;
    }
    sequence->tokens[sequence->known++] = token.id;
    sequence->sampled++;
    if (!sequence->ignore_eos && is_eos(engine, token.id))
        token.finish = ENGINE_EOS;
    else if (sequence->known == sequence->known_max)
        token.finish = ENGINE_LENGTH;
    return token;
}

/* What the rows of each sequence chose in the step. */
static void count_profiles(struct engine *engine)
{
    const struct step_plan *plan = &engine->plan;
    const struct expert_profile_shape *shape = &engine->profile;

    for (uint32_t l = 0; l < shape->layers; l++) {
        const uint32_t *experts = model_experts(engine->model, l * shape->stride);

        for (uint32_t i = 0; i < plan->n_seqs; i++)
            expert_profile_count(shape, plan->seqs[i]->expert_counts, l,
                                 experts + (size_t)plan->first_row[i] * shape->top_k,
                                 plan->seq_rows[i]);
    }
}

/* Times and counts of a step that began at start_us and just ended. */
static void account(struct engine *engine, int64_t start_us, int64_t end_us)
{
    const struct step_plan *plan = &engine->plan;
    const int64_t us = end_us - start_us;
    const int64_t steps = ++engine->steps;

    for (uint32_t l = 0; l < engine->load.layers; l++)
        expert_load_count(&engine->load, l, model_experts(engine->model, l), plan->n_rows);
    expert_load_step(&engine->load, plan->n_rows, us);
    count_profiles(engine);
    for (uint32_t i = 0; i < plan->n_seqs; i++) {
        struct sequence *sequence = plan->seqs[i];
        const double share = (double)us * sequence->rows / plan->n_rows;

        if (sequence->first_step_us == 0)
            sequence->first_step_us = start_us;
        sequence->last_step_us = end_us;
        if (sequence->decoding)
            sequence->decode_us += share;
        else
            sequence->prefill_us += share;
    }
    engine->decode_tokens += plan->n_decode_rows;
    engine->prefill_tokens += plan->n_rows - plan->n_decode_rows;
    engine->busy_us += us;
    engine->step_us += ((double)us - engine->step_us) / (double)(steps < 16 ? steps : 16);
}

bool engine_step(struct engine *engine, struct engine_token *tokens, size_t *count, struct err *err)
{
    const int64_t start_us = clock_mono_us();
    struct step_plan *plan = &engine->plan;
    const struct pipeline *pipeline = &pipeline_sequential;
    struct model_batch batch;

    *count = 0;
    engine->preemptions += step_plan_make(
        plan, &engine->sequences,
        (struct step_sizes){.batch = engine->batch_size,
                            .micro_batch = engine->overlap ? engine->micro_batch_size : 0});
    if (plan->n_rows == 0)
        return true;
    if (engine->overlap)
        pipeline = 2 * plan->n_decode_rows >= plan->n_rows ? &pipeline_decode : &pipeline_prefill;
    batch = step_plan_batch(plan, pipeline);
    if (!model_forward(engine->model, &batch, err))
        return false;

    for (uint32_t i = 0; i < plan->n_seqs; i++)
        sequences_feed(&engine->sequences, plan->seqs[i]);
    for (uint32_t i = 0; i < plan->n_logits; i++)
        tokens[i] = say(engine, plan->sampled[i], engine_logits(engine, i));
    account(engine, start_us, clock_mono_us());
    for (uint32_t i = 0; i < plan->n_logits; i++)
        if (tokens[i].finish != ENGINE_RUNNING)
            sequences_move(&engine->sequences, plan->sampled[i], SEQUENCE_FINISHED);
    *count = plan->n_logits;
    return true;
}

const float *engine_logits(const struct engine *engine, size_t i)
{
    CHECK(i < engine->plan.n_logits);

    return model_logits(engine->model) + i * model_config(engine->model)->vocab_size;
}

void engine_stats(const struct engine *engine, struct engine_stats *stats)
{
    const struct prefix_cache *cache = &engine->sequences.cache;
    const uint32_t held = cache->pages.count - prefix_cache_available(cache);

    *stats = (struct engine_stats){
        .running = engine->sequences.running_count,
        .waiting = engine->sequences.waiting_count,
        .kv_tokens_used = (uint64_t)held * KV_PAGE_TOKENS,
        .steps = engine->steps,
        .prefill_tokens = engine->prefill_tokens,
        .decode_tokens = engine->decode_tokens,
        .preemptions = engine->preemptions,
        .prefix_lookup_tokens = cache->lookup_tokens,
        .prefix_hit_tokens = cache->hit_tokens,
        .prefix_evictions = cache->evictions,
        .prefix_pages = cache->listed_count,
        .busy_us = engine->busy_us,
        .step_us = engine->step_us,
        .load = engine_has_work(engine) ? expert_load_largest(&engine->load) : 0,
        .layer_load = engine->load.layer_load,
        .expert_tokens = engine->load.tokens,
        .layer_sums = engine->load.sums,
        .imbalance = engine->load.imbalance,
        .experts_used = engine->load.experts_used,
    };
}
