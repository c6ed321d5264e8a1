/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of the waiting jobs goes to a worker next, by the experts that its requests will use and by
 * what it has cached.
 *
 * The aim is that the worker's load looks like what waits in the flow. The flattest load would be
 * the nearer aim, but what it leaves for later is worse than the mix: with the demo job in shuffled
 * order it gains nothing at all.
 *
 * The candidates are the heads of the flow's lanes, so that a request is overtaken by no more
 * later ones than overtakes_max, however long it waits: whatever overtakes it came at most so many
 * places behind the oldest, and the oldest is not behind it.
 */
#include "common/check.h"
#include "scheduler/balance.h"
#include "scheduler/core.h"

#include <stdlib.h>

/* A deadline this near goes before balance: a worker needs seconds for a request, not minutes. */
enum { URGENT_MS = 60000 };
/* Finding a lane's head, its profile and what is cached of it takes the time of about so many
 * cells, since each is somewhere else in memory. */
enum { LOOKUP_CELLS = 256 };
enum { KEYS_MAX = 4 };
/* Prompts that are admitted together run in one step, where they outweigh a hundred decode rows:
 * the last few assigned (an eighth of them is forgotten with each) count twice beside all in
 * flight. */
enum { RECENT = 8, RECENT_WEIGHT = 2 };

static uint64_t tenant_key(const struct job *job, uint64_t realm)
{
    return prefix_mix(prefix_mix(prefix_hash(job->batch->tenant), realm), 1);
}

/* From the most to the least telling; those without a key are left out. */
static uint32_t keys_of(const struct run *run, const struct job *job, uint64_t keys[KEYS_MAX])
{
    const struct prefix_keys *prefix = &job->payload->prefix;
    const uint64_t known[] = {prefix_near(prefix), prefix->words, prefix->system};
    uint32_t count = 0;

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i])
            keys[count++] = prefix_mix(known[i], run->realm + i);
    keys[count++] = tenant_key(job, run->realm);
    return count;
}

const struct profile *compose_predict(struct scheduler *scheduler, const struct run *run,
                                      const struct job *job)
{
    const struct profile *profile = NULL;
    uint64_t keys[KEYS_MAX];
    uint32_t count;

    if (scheduler->config.expert_balance_weight <= 0 || run->hello.experts == 0)
        return NULL;
    count = keys_of(run, job, keys);
    for (uint32_t i = 0; i < count && !profile; i++)
        profile = profile_table_find(scheduler->profiles, keys[i]);
    return profile;
}

void compose_learn(struct scheduler *scheduler, const struct run *run, const struct job *job,
                   const struct profile *seen)
{
    uint64_t keys[KEYS_MAX];
    uint32_t count = keys_of(run, job, keys);

    for (uint32_t i = 0; i < count; i++)
        profile_table_learn(scheduler->profiles, keys[i], seen);
}

static bool fits(const struct run *run, const struct profile *profile)
{
    return profile && profile->experts == run->hello.experts && profile->cells == run->expert_cells;
}

void compose_count(struct run *run, const struct profile *profile, bool add)
{
    if (profile && !run->expert_totals && profile->experts == run->hello.experts) {
        run->expert_totals = calloc(profile->cells, sizeof *run->expert_totals);
        run->expert_recent = calloc(profile->cells, sizeof *run->expert_recent);
        CHECK(run->expert_totals);
        CHECK(run->expert_recent);
        run->expert_cells = profile->cells;
    }
    if (!fits(run, profile))
        return;
    for (uint32_t i = 0; i < profile->cells; i++)
        run->expert_totals[i] += add ? profile->shares[i] : 0u - profile->shares[i];
}

void compose_assigned(struct run *run, const struct profile *profile)
{
    if (!fits(run, profile))
        return;
    for (uint32_t i = 0; i < profile->cells; i++) {
        uint32_t gone = run->expert_recent[i] / RECENT, more = RECENT_WEIGHT * profile->shares[i];
        run->expert_recent[i] += more - gone;
        run->expert_totals[i] += more - gone;
    }
}

static bool is_urgent(const struct scheduler *scheduler, const struct job *job)
{
    return job->deadline_ms && job->deadline_ms - scheduler->now_ms <= URGENT_MS;
}

/* The head with the earliest deadline among those that are urgent; NULL: none is. */
static struct job *most_urgent(const struct scheduler *scheduler, const struct flow *flow)
{
    struct job *best = NULL;

    for (const struct lane *lane = flow->lanes; lane; lane = lane->next) {
        struct job *job = lane->jobs.head;
        if (is_urgent(scheduler, job) && (!best || job->deadline_ms < best->deadline_ms))
            best = job;
    }
    return best;
}

struct choice {
    struct balance_candidate candidates[FLOW_LANES_MAX];
    const struct profile *profiles[FLOW_LANES_MAX]; /* NULL: unknown; the table's own */
    struct job *jobs[FLOW_LANES_MAX];               /* the oldest first */
    uint32_t count;
    double mix[PROFILE_CELLS_MAX]; /* of what waits in the flow */
};

/* The lane's head becomes a candidate if it may be taken now. */
static void add_lane(struct scheduler *scheduler, const struct run *run, const struct lane *lane,
                     struct job *oldest, struct choice *choice)
{
    const uint32_t overtakes_max = scheduler->config.overtakes_max[oldest->service_class];
    struct job *job = lane->jobs.head;
    const uint32_t overtakes = flow_overtakes(oldest, job);
    const uint32_t at = job == oldest ? 0 : choice->count;
    const struct profile *profile;

    if (overtakes > overtakes_max || (int64_t)job->tokens > job->flow->deficit)
        return;
    profile = compose_predict(scheduler, run, job);
    if (!fits(run, profile))
        profile = NULL;
    else
        balance_mix(choice->mix, profile->shares, (double)lane->jobs.count, run->expert_cells);
    choice->candidates[at].overtakes = overtakes;
    choice->candidates[at].missing = affinity_missing(scheduler, run, lane);
    choice->profiles[at] = profile;
    choice->jobs[at] = job;
    choice->count += at > 0;
}

struct job *compose_choose(struct scheduler *scheduler, const struct run *run, struct job *oldest)
{
    const struct scheduler_config *config = &scheduler->config;
    const uint32_t cells = run->expert_cells + LOOKUP_CELLS;
    const struct balance_weights weights = {config->expert_balance_weight,
                                            config->prefix_affinity_weight};
    const struct flow *flow = oldest->flow;
    struct choice choice = {.count = 1};
    struct job *urgent;

    if ((!run->expert_totals && !scheduler->affinity.holders) || !flow->lanes->next ||
        scheduler->compose_budget < FLOW_LANES_MAX * cells)
        return oldest;
    urgent = most_urgent(scheduler, flow);
    if (urgent)
        return urgent;
    for (const struct lane *lane = flow->lanes; lane; lane = lane->next)
        add_lane(scheduler, run, lane, oldest, &choice);
    for (uint32_t i = 0; i < choice.count; i++)
        choice.candidates[i].distance =
            choice.profiles[i] ? balance_distance(run->expert_totals, choice.profiles[i]->shares,
                                                  choice.mix, run->expert_cells, run->hello.experts)
                               : -1;
    scheduler->compose_budget -= choice.count * cells;
    return choice.jobs[balance_choose(choice.candidates, choice.count, &weights,
                                      config->overtakes_max[oldest->service_class])];
}
