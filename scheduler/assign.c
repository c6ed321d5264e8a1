/* SPDX-License-Identifier: Apache-2.0
 *
 * Workers are filled evenly: the one that is least filled with requests, KV cache and prefill
 * (scheduler/balance.h) is next. Which of the waiting ones it gets follows from the experts that
 * those at the worker use (scheduler/compose.c), within a bound on overtaking. If another worker
 * has the beginning of that one in its cache (scheduler/holders.h), and room, it may be the cheaper
 * one: so what goes next is settled first, where it goes then. The order of classes, tenants and
 * lengths is the same with and without caches.
 * Requests that came back from a worker go first, then interactive ones, then bulk.
 */
#include <math.h>

#include "scheduler/balance.h"
#include "scheduler/core.h"

enum {
    COMPOSED_CELLS_PER_TICK = 2 << 20, /* of profiles: 5 ms of a tick, then arrival order */
    ASSIGNMENTS_PER_TICK = 1024,
    ASSIGNED_SIZE_MAX = 64 * 1024 * 1024, /* bytes of bodies a tick; a commit stays under 1 s */
};

/* heap_at of a run that gets nothing more in this tick. */
static const uint32_t not_open = UINT32_MAX;

/* Sequences that may be at the worker: its batch and what hides the time of a tick. */
static uint32_t room_of(const struct scheduler *scheduler, const struct run *run)
{
    return run->batch_limit + run->batch_limit * scheduler->config.assign_ahead_percent / 100;
}

/* Requests at the worker as one of the class sees them. Interactive ones count their own kind
 * alone: where bulk has filled everything, or the batch has shrunk under what runs, the next one
 * still finds room. */
static uint32_t held_of(const struct run *run, enum service_class class, enum job_length length)
{
    const uint32_t held = run->held[CLASS_INTERACTIVE][length];

    return class == CLASS_INTERACTIVE ? held : held + run->held[CLASS_BULK][length];
}

static bool has_room(const struct scheduler *scheduler, const struct run *run,
                     enum service_class class)
{
    return held_of(run, class, LENGTH_SHORT) + held_of(run, class, LENGTH_LONG) <
           room_of(scheduler, run);
}

/* A worker that has not been heard of for half a lease may be dead: what it would get now waits
 * until the next heartbeat rather than for the whole lease. */
static bool heard_lately(const struct scheduler *scheduler, const struct run *run)
{
    return scheduler->now_ms - run->seen_ms <= scheduler->config.lease_ms / 2;
}

/* places: the batch, so that no long one is queued beyond it, where a short one would stand behind
 * it at the worker. A place is empty for a tick then, which is little of the time that a long one
 * takes.
 */
static bool long_share_allows(const struct scheduler *scheduler, const struct run *run,
                              const struct job *job, uint32_t places)
{
    const enum service_class class = (enum service_class)job->service_class;

    return job_length(scheduler, job) == LENGTH_SHORT ||
           held_of(run, class, LENGTH_LONG) < long_share_room(&run->long_shares[class], places,
                                                              scheduler->config.long_share_percent);
}

static bool long_pace_keeps(const struct scheduler *scheduler, const struct run *run,
                            const struct job *job)
{
    return job_length(scheduler, job) == LENGTH_SHORT ||
           long_pace_allows(&run->pace, &run->long_prompts[job->service_class],
                            job_prompt_work(job), run->step_us, scheduler->now_ms);
}

/* An empty worker takes anything: whether it really fits, only it knows. */
static bool kv_allows(const struct scheduler *scheduler, const struct run *run,
                      const struct job *job)
{
    double share = scheduler->config.kv_share;
    uint64_t measured =
        run->kv_tokens_used + run->kv_tokens_new + run->kv_tokens_newer + job_prompt_tokens(job);

    if (run->jobs.count == 0)
        return true;
    if (share > 0)
        return (double)measured <= share * (double)run->hello.kv_tokens;
    return run->kv_tokens + job_kv_tokens(job, run->hello.max_context) <= run->hello.kv_tokens;
}

static void weigh(const struct scheduler *scheduler, struct run *run)
{
    const struct balance_worker worker = {.requests = (uint32_t)run->jobs.count,
                                          .room = room_of(scheduler, run),
                                          .kv_tokens = run->kv_tokens,
                                          .kv_capacity = run->hello.kv_tokens,
                                          .prefill_work = run->prefill_work,
                                          .prefill_mean = scheduler->prefill_mean};

    run->fill = balance_fill(&worker);
}

static void weigh_all(struct scheduler *scheduler)
{
    uint64_t work = 0, jobs = 0;

    for (uint32_t i = 0; i < scheduler->config.slots; i++) {
        const struct run *run = slot_current(&scheduler->slots[i]);
        work += run ? run->prefill_work : 0;
        jobs += run ? run->jobs.count : 0;
    }
    scheduler->prefill_mean = jobs > 0 ? work / jobs : 0;
    for (uint32_t i = 0; i < scheduler->config.slots; i++) {
        struct run *run = slot_current(&scheduler->slots[i]);
        if (run)
            weigh(scheduler, run);
    }
}

static double waiting_of(const struct model *model, enum service_class class)
{
    const uint64_t waiting = model->waiting_short[CLASS_INTERACTIVE];

    return (double)(class == CLASS_INTERACTIVE ? waiting
                                               : waiting + model->waiting_short[CLASS_BULK]);
}

/* The run at this slot if it takes requests, else NULL. */
static struct run *serving(const struct scheduler *scheduler, uint32_t slot)
{
    struct run *run = slot_current(&scheduler->slots[slot]);

    return run && run_serves(run, run->model, scheduler->model_any) ? run : NULL;
}

/* What short requests need of each worker now: the places of those that it has, and its part of
 * those that wait. */
static void note_short(struct scheduler *scheduler)
{
    struct model *any = scheduler->model_any;
    struct run *run;

    if (scheduler->config.long_request_tokens == 0)
        return;
    any->workers = 0;
    for (uint32_t i = 0; i < scheduler->config.slots; i++)
        if ((run = serving(scheduler, i)))
            run->model->workers = 0;
    for (uint32_t i = 0; i < scheduler->config.slots; i++)
        if ((run = serving(scheduler, i))) {
            any->workers++;
            run->model->workers += run->model != any;
        }
    for (uint32_t i = 0; i < scheduler->config.slots; i++)
        for (int kind = 0; (run = serving(scheduler, i)) && kind < CLASS_COUNT; kind++) {
            const enum service_class class = (enum service_class)kind;
            double waiting = waiting_of(any, class) / any->workers;
            if (run->model != any)
                waiting += waiting_of(run->model, class) / run->model->workers;
            long_share_note(&run->long_shares[kind],
                            held_of(run, class, LENGTH_SHORT) + ceil(waiting), scheduler->now_ms);
        }
}

/* The least filled run, the first of equals, or NULL. */
static struct run *emptier(struct run *a, struct run *b)
{
    if (!a || !b)
        return a ? a : b;
    return b->fill < a->fill ? b : a;
}

/* affinity_look() was at the job. */
static void assign(struct scheduler *scheduler, struct job *job, struct run *run)
{
    job_assign(scheduler, job, run, affinity_cached(scheduler, run));
    affinity_assigned(scheduler, job, run);
    compose_assigned(run, job->attempt->profile);
    weigh(scheduler, run);
}

/* A prefix goes on where the numbers are the same; if no such worker comes within model_wait, any
 * worker goes on with the very same prefix, and only what follows may differ in rounding. */
static bool same_numerics(const struct scheduler *scheduler, const struct run *run,
                          const struct attempt *attempt)
{
    return attempt->prefix_count == 0 || attempt->numerics == 0 ||
           attempt->numerics == run->numerics ||
           scheduler->now_ms - attempt->returned_ms > scheduler->config.model_wait_ms;
}

static bool takes_returned(const struct scheduler *scheduler, const struct run *run,
                           const struct job *job)
{
    return run_serves(run, job->model, scheduler->model_any) && heard_lately(scheduler, run) &&
           same_numerics(scheduler, run, job->attempt);
}

static struct run *find_for_returned(const struct scheduler *scheduler, const struct job *job)
{
    struct run *best = NULL;

    for (uint32_t i = 0; i < scheduler->config.slots; i++) {
        struct run *run = slot_current(&scheduler->slots[i]);
        if (run && !run->reserved_for && takes_returned(scheduler, run, job) &&
            has_room(scheduler, run, job->service_class) &&
            long_share_allows(scheduler, run, job, run->batch_limit) &&
            long_pace_keeps(scheduler, run, job) && kv_allows(scheduler, run, job))
            best = emptier(best, run);
    }
    return best;
}

/* Keeps a worker free for a job that runs alone and gives it to it once it is empty. Half of the
 * workers at most, but one, are kept so: a flood of deadly requests must not stop the rest. */
static struct run *find_for_alone(struct scheduler *scheduler, const struct job *job)
{
    struct run *best = NULL;
    uint32_t alive = 0, reserved = 0;

    for (uint32_t i = 0; i < scheduler->config.slots; i++) {
        struct run *run = slot_current(&scheduler->slots[i]);
        if (!run || run->state != RUN_ALIVE)
            continue;
        if (run->reserved_for == job)
            return run->jobs.count == 0 && takes_returned(scheduler, run, job) ? run : NULL;
        alive++;
        reserved += run->reserved_for != NULL;
        if (!run->reserved_for && takes_returned(scheduler, run, job))
            best = emptier(best, run);
    }
    if (!best || (reserved > 0 && reserved >= alive / 2))
        return NULL;
    best->reserved_for = (struct job *)job;
    return best->jobs.count == 0 ? best : NULL;
}

static void assign_returned(struct scheduler *scheduler, uint32_t *limit)
{
    struct job *job = scheduler->returned.head;

    while (job && *limit > 0) {
        struct job *next = job->links[LINK_STATE].next;
        if (job->payload && !job->attempt->held) {
            struct run *run = job_runs_alone(scheduler, job) ? find_for_alone(scheduler, job)
                                                             : find_for_returned(scheduler, job);
            if (run) {
                affinity_look(scheduler, job);
                assign(scheduler, job, run);
                (*limit)--;
            }
        }
        job = next;
    }
}

/* The next job for this run: by class, then in turn between its own model and "any", short and
 * long. NULL: nothing waits for it, or what is next does not fit its KV cache. That one is not
 * passed by: smaller ones would keep the cache full for ever. */
static struct job *next_for(struct scheduler *scheduler, struct run *run)
{
    struct model *models[2] = {run->model, scheduler->model_any};
    int models_count = run->model == scheduler->model_any ? 1 : 2;

    for (int kind = 0; kind < CLASS_COUNT; kind++) {
        for (uint32_t i = 0; i < 4 && has_room(scheduler, run, (enum service_class)kind); i++) {
            uint32_t turn = (run->turn + i) % 4;
            struct job *job, *chosen;
            if ((int)(turn / 2) >= models_count)
                continue;
            job = group_peek(&models[turn / 2]->groups[kind][turn % 2]);
            if (!job || !long_share_allows(scheduler, run, job, run->batch_limit) ||
                !long_pace_keeps(scheduler, run, job))
                continue;
            run->turn = turn + 1;
            if (!kv_allows(scheduler, run, job))
                return NULL;
            chosen = compose_choose(scheduler, run, job);
            return kv_allows(scheduler, run, chosen) ? chosen : job;
        }
    }
    return NULL;
}

static double cost_at(const struct scheduler *scheduler, const struct run *run,
                      const struct job *job)
{
    uint64_t all = job_prompt_work(job);
    uint64_t fresh = all - balance_prefill_work(affinity_cached(scheduler, run));

    return balance_cost((double)fresh, scheduler->affinity.prompt_mean, run->fill,
                        scheduler->config.prefix_affinity_weight);
}

/* May it get the job as well as the least filled run may? It has the beginning, and so reads less
 * than long_pace_keeps() is about; and a long one may be queued ahead here: under a full load no
 * holder had a place otherwise, and conversations found 20 % of their prompts cached, not 22. */
static bool may_take(const struct scheduler *scheduler, const struct run *run,
                     const struct job *job)
{
    return run->heap_at != not_open && run_serves(run, job->model, scheduler->model_any) &&
           has_room(scheduler, run, job->service_class) &&
           long_share_allows(scheduler, run, job, room_of(scheduler, run)) &&
           kv_allows(scheduler, run, job);
}

/* Of the run and those that are likely to hold the job's beginning, the cheapest for it. */
static struct run *cheapest(struct scheduler *scheduler, struct run *run, const struct job *job)
{
    const struct affinity *affinity = &scheduler->affinity;
    struct run *best = run;
    double best_cost;

    affinity_look(scheduler, job);
    if (affinity->found_count == 0)
        return run;
    best_cost = cost_at(scheduler, run, job);
    for (uint32_t i = 0; i < affinity->found_count; i++) {
        struct run *other = slot_current(&scheduler->slots[affinity->found[i].slot]);
        if (!other || other == run || !may_take(scheduler, other, job))
            continue;
        double cost = cost_at(scheduler, other, job);
        if (cost < best_cost) {
            best = other;
            best_cost = cost;
        }
    }
    scheduler->affinity.totals.affinity_assignments += best != run;
    return best;
}

/* A heap by fill, least filled first, then by slot. */
static bool emptier_first(const struct run *a, const struct run *b)
{
    return a->fill < b->fill || (a->fill <= b->fill && a->hello.slot < b->hello.slot);
}

static void sift_down(const struct scheduler *scheduler, size_t count, size_t at)
{
    struct run **heap = scheduler->by_fill, *run = heap[at];

    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= count)
            break;
        if (child + 1 < count && emptier_first(heap[child + 1], heap[child]))
            child++;
        if (!emptier_first(heap[child], run))
            break;
        heap[at] = heap[child];
        heap[at]->heap_at = (uint32_t)at;
        at = child;
    }
    heap[at] = run;
    run->heap_at = (uint32_t)at;
}

/* The workers that may get something now; returns how many. */
static size_t open_heap(struct scheduler *scheduler)
{
    enum service_class first =
        scheduler->classes[CLASS_INTERACTIVE].waiting_requests > 0 ? CLASS_INTERACTIVE : CLASS_BULK;
    size_t count = 0;

    for (uint32_t i = 0; i < scheduler->config.slots; i++) {
        struct run *run = slot_current(&scheduler->slots[i]);
        if (!run)
            continue;
        run->heap_at = not_open;
        if (!run->reserved_for && run_serves(run, run->model, scheduler->model_any) &&
            heard_lately(scheduler, run) && has_room(scheduler, run, first)) {
            run->heap_at = (uint32_t)count;
            scheduler->by_fill[count++] = run;
        }
    }
    for (size_t at = count / 2; at-- > 0;)
        sift_down(scheduler, count, at);
    return count;
}

static void assign_queued(struct scheduler *scheduler, uint32_t limit)
{
    size_t size = 0, count = open_heap(scheduler);

    while (limit > 0 && size < ASSIGNED_SIZE_MAX && count > 0) {
        struct run *run = scheduler->by_fill[0], *chosen;
        uint32_t turn = run->turn;
        struct job *job = next_for(scheduler, run);
        if (!job) {
            run->heap_at = not_open;
            scheduler->by_fill[0] = scheduler->by_fill[--count];
            if (count > 0)
                sift_down(scheduler, count, 0);
            continue;
        }
        chosen = cheapest(scheduler, run, job);
        if (chosen != run)
            run->turn = turn;
        size += job_payload_size(job);
        limit--;
        assign(scheduler, job, chosen);
        sift_down(scheduler, count, chosen->heap_at);
    }
}

void assign_all(struct scheduler *scheduler)
{
    uint32_t limit = ASSIGNMENTS_PER_TICK;

    scheduler->compose_budget = COMPOSED_CELLS_PER_TICK;
    affinity_begin_tick(scheduler);
    weigh_all(scheduler);
    note_short(scheduler);
    assign_returned(scheduler, &limit);
    assign_queued(scheduler, limit);
}
