/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/bench/engine_prefix.h"

#include <stdio.h>
#include <stdlib.h>

#include "ops/bench/engine_prompts.h"
#include "ops/bench/kernels_peak.h"

struct outcome {
    double seconds;       /* submission to last token */
    double first_seconds; /* submission to first token, mean */
    int64_t computed;     /* prompt tokens that ran */
    int64_t cached;
};

enum way { WITHOUT, COLD, WARM, WAYS };

/* Any ids will do. number 0 is everybody's beginning. */
static void make_ids(uint32_t number, uint32_t vocab_size, int32_t *ids, uint32_t count)
{
    uint32_t seed = number + 1;

    prompts_draw(&seed, vocab_size, ids, count);
}

/* All at once, as a burst comes, with ends that no earlier way had; ids: (prefix_tokens +
 * PREFIX_TAIL_TOKENS) scratch. */
static bool submit_all(struct engine *engine, const struct prefix_job *job, enum way way,
                       int32_t *ids, struct err *err)
{
    struct engine_info info;

    engine_info(engine, &info);
    make_ids(0, info.vocab_size, ids, job->prefix_tokens);
    for (uint32_t i = 0; i < job->requests; i++) {
        const struct engine_request request = {.tag = i,
                                               .prompt = ids,
                                               .prompt_count =
                                                   job->prefix_tokens + PREFIX_TAIL_TOKENS,
                                               .max_tokens = PREFIX_ANSWER_TOKENS,
                                               .ignore_eos = true};

        make_ids(1 + i + (uint32_t)way * job->requests, info.vocab_size, ids + job->prefix_tokens,
                 PREFIX_TAIL_TOKENS);
        if (!engine_submit(engine, &request, err))
            return false;
    }
    return true;
}

static bool run_burst(struct engine *engine, const struct prefix_job *job,
                      struct engine_token *tokens, struct outcome *outcome, struct err *err)
{
    const double start = peak_now(job->clock);
    struct engine_usage usage;
    size_t count;

    while (engine_has_work(engine)) {
        if (!engine_step(engine, tokens, &count, err))
            return false;
        for (size_t i = 0; i < count; i++) {
            if (tokens[i].index == 0)
                outcome->first_seconds += (peak_now(job->clock) - start) / job->requests;
            if (tokens[i].finish == ENGINE_RUNNING)
                continue;
            engine_remove(engine, tokens[i].tag, &usage);
            outcome->cached += usage.cached_tokens;
            outcome->computed += usage.prompt_tokens - usage.cached_tokens;
        }
    }
    outcome->seconds = peak_now(job->clock) - start;
    return true;
}

static void keep_best(struct outcome *best, const struct outcome *outcome)
{
    if (best->seconds == 0 || outcome->seconds < best->seconds)
        *best = *outcome;
}

/* One burst without a cache and two with one, each in an engine of its own. */
static bool run_round(struct engine_config config, const struct prefix_job *job,
                      struct outcome *best, double *seconds, struct err *err)
{
    int32_t *ids = calloc(job->prefix_tokens + PREFIX_TAIL_TOKENS, sizeof *ids);
    struct engine_token *tokens = calloc(job->batch, sizeof *tokens);
    struct engine *engine = NULL;
    bool ok = ids && tokens;

    if (!ok)
        err_set(err, ERR_FATAL, "no memory");
    for (int way = WITHOUT; ok && way < WAYS; way++) {
        struct outcome outcome = {0};

        config.prefix_cache = way != WITHOUT;
        if (way != WARM) {
            engine_close(engine);
            engine = NULL;
            ok = engine_open(&engine, &config, err);
        }
        ok = ok && submit_all(engine, job, (enum way)way, ids, err) &&
             run_burst(engine, job, tokens, &outcome, err);
        if (ok)
            keep_best(&best[way], &outcome);
        *seconds += outcome.seconds;
    }
    engine_close(engine);
    free(tokens);
    free(ids);
    return ok;
}

bool prefix_table(const struct engine_config *config, const struct prefix_job *job, struct err *err)
{
    static const char *const names[] = {"off", "on, cold", "on, warm"};
    struct engine_config own = *config;
    struct outcome best[WAYS] = {0};
    double seconds = 0;

    own.max_seqs = job->batch;
    own.max_waiting = job->requests;
    own.max_context = job->prefix_tokens + PREFIX_TAIL_TOKENS + PREFIX_ANSWER_TOKENS;
    do {
        if (!run_round(own, job, best, &seconds, err))
            return false;
    } while (seconds < WAYS * job->seconds);
    printf("%u requests at once, %u at a time, %u tokens that all begin with, %d of their own, "
           "answers of %d\n",
           job->requests, job->batch, job->prefix_tokens, PREFIX_TAIL_TOKENS, PREFIX_ANSWER_TOKENS);
    printf("%-10s %9s %9s %9s %13s %14s %7s\n", "cache", "computed", "cached", "seconds",
           "requests/s", "first token s", "speed");
    for (int way = WITHOUT; way < WAYS; way++)
        printf("%-10s %9lld %9lld %9.3f %13.1f %14.3f %6.2fx\n", names[way],
               (long long)best[way].computed, (long long)best[way].cached, best[way].seconds,
               job->requests / best[way].seconds, best[way].first_seconds,
               best[WITHOUT].seconds / best[way].seconds);
    return true;
}
