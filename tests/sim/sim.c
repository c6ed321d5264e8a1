/* SPDX-License-Identifier: Apache-2.0
 *
 * sim [--seed N] [--seeds COUNT] [--verbose]: simulations with the seeds N, N + 1, ...
 *
 * A failure prints its seed; `sim --seed THAT --verbose` shows what led to it.
 */
#include "tests/sim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"

enum { STORM_MS = 25000, LIMIT_MS = 400000, STEP_MS = 10 };

uint64_t sim_random(struct sim *sim)
{
    uint64_t x = sim->random += 0x9e3779b97f4a7c15u; /* splitmix64 */

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint32_t sim_below(struct sim *sim, uint32_t limit)
{
    return (uint32_t)(sim_random(sim) % limit);
}

bool sim_chance(struct sim *sim, uint32_t in, uint32_t of)
{
    return sim_below(sim, of) < in;
}

bool sim_trouble(struct sim *sim, uint32_t of)
{
    if (sim->now_ms >= sim->calm_ms)
        return false;
    return sim_below(sim, of * 100) < sim->chaos;
}

int64_t sim_between(struct sim *sim, int64_t a, int64_t b)
{
    return a + (int64_t)(sim_random(sim) % (uint64_t)(b - a + 1));
}

int32_t sim_token(uint32_t number, uint32_t index)
{
    return (int32_t)((number * 7919 + index * 104729) % 32000);
}

struct request_id sim_id(uint32_t kind, uint32_t number)
{
    struct request_id id = {{0}};

    id.bytes[0] = (uint8_t)kind;
    id.bytes[15] = (uint8_t)number;
    return id;
}

uint32_t sim_number(const struct sim *sim, const struct request_id *id)
{
    if (id->bytes[0] != 1 || id->bytes[15] >= sim->requests_count)
        sim_fail(sim, "a message names a request that nobody sent");
    return id->bytes[15];
}

void sim_fail(const struct sim *sim, const char *format, ...)
{
    va_list args;

    printf("seed %llu fails at %lld ms: ", (unsigned long long)sim->seed, (long long)sim->now_ms);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    exit(1);
}

void sim_log(const struct sim *sim, const char *format, ...)
{
    va_list args;

    if (!sim->verbose)
        return;
    printf("%8lld ", (long long)sim->now_ms);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
}

static void open_sim(struct sim *sim, uint64_t seed, bool verbose)
{
    *sim = (struct sim){.seed = seed, .random = seed, .verbose = verbose, .now_ms = 1000000};
    sim->processes = calloc(PROCESSES_MAX, sizeof *sim->processes);
    CHECK(sim->processes);
    sim->calm_ms = sim->now_ms + STORM_MS;
    sim->chaos = sim_chance(sim, 1, 5) ? 0 : 20 + sim_below(sim, 300);
    sim->tears = sim_chance(sim, 1, 6);
    sim->config = (struct scheduler_config){
        .slots = SIM_SLOTS,
        .request_partitions = {1 + sim_below(sim, 2)},
        .lease_ms = LEASE_MS,
        .dedupe_window_ms = sim_chance(sim, 1, 4) ? 20000 : 7 * 24 * 3600 * 1000LL,
        .waiting_size_max = sim_chance(sim, 1, 3) ? 400 : 1000000,
        .crashes_max = 1 + sim_below(sim, 4),
        .model_wait_ms = 8000,
        .assign_ahead_percent = sim_below(sim, 100),
        .long_request_tokens = 20,
        .long_share_percent = 50,
        .trim_requests = sim_chance(sim, 1, 2),
        .expert_balance_weight = 0.4,
        .prefix_affinity_weight = 1,
        .overtakes_max = {2, 16},
        .batch = {.kind = BATCH_STATIC, .base = 4, .max = 8, .threshold = 0.75, .smoothing = 1},
    };
    sim->config.request_partitions[1] = sim->config.request_partitions[0];
    clients_open(sim);
}

static void close_sim(struct sim *sim)
{
    leader_close(sim);
    broker_close(&sim->broker);
    free(sim->processes);
}

static void run(struct sim *sim)
{
    int64_t limit_ms = sim->now_ms + LIMIT_MS;

    while (sim->now_ms < sim->calm_ms || !checker_complete(sim)) {
        if (sim->now_ms > limit_ms)
            sim_fail(sim, "requests are left over");
        clients_step(sim);
        workers_step(sim);
        leader_step(sim);
        checker_step(sim);
        sim->now_ms += STEP_MS;
    }
    checker_finish(sim);
}

int main(int argc, char **argv)
{
    uint64_t seed = 1, seeds = 1, takeovers = 0;
    bool verbose = false;
    struct sim sim;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--verbose") == 0) {
            verbose = true;
        } else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0) {
            seed = strtoull(argv[++i], NULL, 10);
        } else if (i + 1 < argc && strcmp(argv[i], "--seeds") == 0) {
            seeds = strtoull(argv[++i], NULL, 10);
        } else {
            fprintf(stderr, "usage: sim [--seed N] [--seeds COUNT] [--verbose]\n");
            return 64;
        }
    }
    printf("seeds %llu to %llu\n", (unsigned long long)seed,
           (unsigned long long)(seed + seeds - 1));
    for (uint64_t i = 0; i < seeds; i++) {
        open_sim(&sim, seed + i, verbose);
        run(&sim);
        takeovers += sim.takeovers;
        close_sim(&sim);
    }
    printf("all promises kept; %llu takeovers\n", (unsigned long long)takeovers);
    return 0;
}
