/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/planner.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/check.h"

void planner_init(struct planner *planner, const struct planner_config *config)
{
    CHECK(config->base_batch >= 1);
    CHECK(config->drain_ms > 0);
    CHECK(config->utilisation > 0);
    CHECK(config->workers_min <= config->workers_max);
    *planner = (struct planner){.config = *config};
}

static uint64_t ceil_div(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* So many are worth having: a base batch for each that is started, a request for each that runs. */
static uint32_t worth(const struct planner_config *config, const struct planner_load *load,
                      uint32_t running)
{
    bool small = load->batch_most > 0 && load->batch_most < config->base_batch;
    uint64_t batches =
        ceil_div(load->outstanding_requests, small ? load->batch_most : config->base_batch);
    uint64_t kept = load->outstanding_requests < running ? load->outstanding_requests : running;
    uint64_t most = batches > kept ? batches : kept;

    return most < UINT32_MAX ? (uint32_t)most : UINT32_MAX;
}

/* What is wanted now, and the bound that decided it. */
static uint32_t wish(const struct planner_config *config, const struct planner_load *load,
                     uint32_t running, const char **bound)
{
    const uint32_t most = worth(config, load, running);
    double rate =
        load->forecast_tokens_per_s + load->waiting_tokens * 1000 / (double)config->drain_ms;
    double speed = load->speed_tokens_per_s * config->utilisation;
    /* Before anything was measured the backlog's size is all there is to go by. */
    double wanted = load->speed_tokens_per_s > 0 ? ceil(rate / speed) : (double)most;

    *bound = "rate";
    if (load->outstanding_requests > 0 && wanted < 1)
        wanted = 1;
    if (wanted > most) {
        wanted = most;
        *bound = "outstanding requests";
    }
    if (wanted > config->workers_max) {
        wanted = config->workers_max;
        *bound = "workers_max";
    }
    if (wanted < config->workers_min) {
        wanted = config->workers_min;
        *bound = "workers_min";
    }
    return (uint32_t)wanted;
}

/* Keep the wishes of the window in decreasing order, so that the first is the largest. When the
 * table is full the two newest are merged, which only delays a scale-down. */
static uint32_t largest_in_window(struct planner *planner, uint32_t wanted, int64_t now_ms)
{
    uint32_t expired = 0;

    while (expired < planner->wish_count &&
           planner->wishes[expired].at_ms + planner->config.scale_down_ms <= now_ms)
        expired++;
    planner->wish_count -= expired;
    memmove(planner->wishes, planner->wishes + expired,
            planner->wish_count * sizeof *planner->wishes);

    while (planner->wish_count > 0 && planner->wishes[planner->wish_count - 1].wanted <= wanted)
        planner->wish_count--;
    if (planner->wish_count == PLANNER_WISHES)
        planner->wishes[PLANNER_WISHES - 1].at_ms = now_ms;
    else
        planner->wishes[planner->wish_count++] =
            (struct planner_wish){.at_ms = now_ms, .wanted = wanted};
    return planner->wishes[0].wanted;
}

void planner_keep(struct planner *planner, uint32_t workers, int64_t now_ms)
{
    uint32_t max = planner->config.workers_max;

    planner->wanted = largest_in_window(planner, workers < max ? workers : max, now_ms);
}

void planner_decide(struct planner *planner, const struct planner_load *load, int64_t now_ms,
                    struct planner_decision *decision)
{
    uint32_t running = load->workers > planner->wanted ? load->workers : planner->wanted;
    const char *bound;

    decision->wish = wish(&planner->config, load, running, &bound);
    decision->wanted = planner->wanted = largest_in_window(planner, decision->wish, now_ms);
    snprintf(decision->reason, sizeof decision->reason,
             "forecast %.0f tok/s + %.0f waiting tok, %.0f tok/s a worker, %llu outstanding: %u by "
             "%s%s",
             load->forecast_tokens_per_s, load->waiting_tokens, load->speed_tokens_per_s,
             (unsigned long long)load->outstanding_requests, decision->wish, bound,
             decision->wanted > decision->wish ? ", kept for the scale-down window" : "");
}
