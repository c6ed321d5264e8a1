/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "scheduler/balance.h"
#include "scheduler/core.h"

/* Weight of the newest prompt in the mean: of the last few hundred. */
static const double mean_smoothing = 1.0 / 256;
/* Of the newest answer in a worker's trust. A worker without a cache, or whose tokens are shorter
 * than thought, is known for it after some dozen answers. */
static const double trust_smoothing = 1.0 / 32;
/* A chain costs its bytes and, for its keys and their places in the table, about as much time as
 * 1,024 bytes for each: 5 ms of a tick, then it goes on by load alone. */
enum { BUDGET_PER_TICK = 16 << 20, KEY_COST = 1024 };

void affinity_begin_tick(struct scheduler *scheduler)
{
    scheduler->affinity.budget = BUDGET_PER_TICK;
}

static uint64_t realm_of(const struct job *job)
{
    uint64_t model;

    memcpy(&model, job->model->key, sizeof model);
    return prefix_mix(prefix_hash(job->batch->tenant), model);
}

static void note_prompt(struct affinity *affinity, double work)
{
    if (affinity->prompt_mean <= 0)
        affinity->prompt_mean = work;
    affinity->prompt_mean += mean_smoothing * (work - affinity->prompt_mean);
}

/* Of the block that ends there. */
static uint64_t key_at(const struct prefix_chain *chain, uint32_t end)
{
    uint32_t i = 0;

    while (chain->ends[i] != end)
        i++;
    return chain->keys[i];
}

void affinity_look(struct scheduler *scheduler, const struct job *job)
{
    struct affinity *affinity = &scheduler->affinity;
    struct prefix_chain *chain = &affinity->chain;
    uint32_t cost;

    chain->count = affinity->found_count = 0;
    if (!affinity->holders)
        return;
    note_prompt(affinity, (double)job_prompt_work(job));
    if (affinity->budget == 0)
        return;
    prefix_chain(job_body(job), realm_of(job), chain);
    if (chain->count == 0)
        return;
    affinity->found_count = holders_find(affinity->holders, chain, affinity->found);
    if (affinity->found_count > 0 && job->flow) {
        struct lane *lane = queues_lane(job);
        lane->common = key_at(chain, affinity->found[0].size);
        lane->common_share = (double)affinity->found[0].size / (double)job_body(job).size;
    }
    cost = chain->ends[chain->count - 1] + chain->count * KEY_COST;
    affinity->budget -= cost < affinity->budget ? cost : affinity->budget;
}

/* By what was sent there. */
static uint64_t sent_tokens(const struct affinity *affinity, const struct run *run)
{
    for (uint32_t i = 0; i < affinity->found_count; i++)
        if (affinity->found[i].slot == run->hello.slot)
            return affinity->found[i].size / 4;
    return 0;
}

uint64_t affinity_cached(const struct scheduler *scheduler, const struct run *run)
{
    return (uint64_t)((double)sent_tokens(&scheduler->affinity, run) * run->cache_trust);
}

double affinity_missing(const struct scheduler *scheduler, const struct run *run,
                        const struct lane *lane)
{
    struct block_places places;

    if (!scheduler->affinity.holders || lane->common == 0)
        return 0;
    places = holders_places(scheduler->affinity.holders, lane->common, run->hello.slot);
    return !places.here && places.elsewhere ? lane->common_share * run->cache_trust : 0;
}

void affinity_assigned(struct scheduler *scheduler, const struct job *job, const struct run *run)
{
    struct affinity *affinity = &scheduler->affinity;
    uint64_t prompt = job_body(job).size / 4, cached = affinity_cached(scheduler, run);

    if (!affinity->holders)
        return;
    job->attempt->cached_expected = sent_tokens(affinity, run);
    affinity->totals.prompt_tokens_expected += prompt;
    affinity->totals.cached_tokens_expected += cached;
    holders_put(affinity->holders, &affinity->chain, run->hello.slot);
    holders_grow(affinity->holders, run->hello.slot, prompt - cached);
}

void affinity_hello(struct scheduler *scheduler, struct run *run)
{
    run->cache_trust = 1;
    if (scheduler->affinity.holders)
        holders_reset(scheduler->affinity.holders, run->hello.slot, run->hello.kv_tokens);
}

void affinity_done(struct scheduler *scheduler, const struct job *job,
                   const struct token_usage *usage)
{
    struct affinity *affinity = &scheduler->affinity;
    const double expected = (double)job->attempt->cached_expected;
    struct run *run = job->attempt->run;

    affinity->totals.prompt_tokens += usage->prompt_tokens_cached + usage->prompt_tokens_uncached;
    affinity->totals.cached_tokens += usage->prompt_tokens_cached;
    if (!affinity->holders || run->superseded)
        return;
    holders_grow(affinity->holders, run->hello.slot, usage->output_tokens);
    if (expected > 0)
        run->cache_trust +=
            trust_smoothing * (fmin(1, usage->prompt_tokens_cached / expected) - run->cache_trust);
}
