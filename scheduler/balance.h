/* SPDX-License-Identifier: Apache-2.0
 *
 * balance - the costs by which a worker and a request find each other.
 *
 * Which worker: the one least filled, where three things fill it: requests over
 * the room of its batch, the KV cache they may need over what it has, and the
 * prefill that is queued at it over its share. The mean of the three is equalised;
 * prefill counts attention, which grows with the square of a prompt.
 *
 * Which request: among the next of the queue, by w * expert balance + (1 - w) *
 * order. Balance is how near the experts' load at the worker comes to that of all
 * that waits (0 for the best candidate, 1 for the worst); order is how many that
 * wait longer it would overtake, over the most that are allowed. With w = 0.4 the
 * best is taken if it overtakes up to two thirds of what is allowed; with 0
 * arrival decides. The mix that waits is the aim, not an even load, because what
 * is flatter than it now leaves what is worse for later.
 *
 * Caches come before both: a candidate whose beginning other workers have and this one has not is
 * left to them, by the share of its prompt that it is, times the weight of affinity. What is not
 * computed saves all its work, while flatter experts make the same work some percent cheaper. Where
 * everybody has everything, or nobody anything, there is no difference and experts decide.
 *
 * Which worker, where some have the request's beginning in their prefix caches: by the tokens that
 * are to be computed there and the worker's fill, in tokens. The cost grows with the root of the
 * fill, which is steep near 0: no cache is worth much while another worker idles, and among workers
 * that are half full it decides. With the weight 1 an empty worker gets a prompt of mean length
 * that a worker with a ninth of its room filled has whole, and one that is half filled never does;
 * so a prefix that everybody has cannot pile all requests on one worker.
 *
 * Pure functions. Source: the aims published for DeepSeek-V3's inference system
 * (equal KV use and request count in decode, equal attention work and input
 * tokens in prefill), and the published key expert_balance_weight, 0.3 to 0.5. The
 * cost of a worker is w * new blocks + load as in known routers by prefix; its form
 * was chosen among twelve on a public trace (docs/DECISIONS.md).
 */
#ifndef SCHEDULER_BALANCE_H
#define SCHEDULER_BALANCE_H

#include <stdbool.h>
#include <stdint.h>

struct balance_worker {
    uint32_t requests;
    uint32_t room; /* requests it may have, at least 1 */
    uint64_t kv_tokens;
    uint64_t kv_capacity;  /* 0: unknown, KV is left out */
    uint64_t prefill_work; /* balance_prefill_work() of what has not begun to answer */
    uint64_t prefill_mean; /* of a request in flight, over all workers; 0: none */
};

/* 0 is empty, 1 is full. */
double balance_fill(const struct balance_worker *worker);

/* What it costs to answer a request at a worker, in tokens of prefill work: those that are fresh to
 * it, and its fill. mean: prefill work of a request, over those that came lately. */
double balance_cost(double fresh, double mean, double fill, double weight);

/* Input tokens, and the attention among them in units of a token's other work. Saturates. */
uint64_t balance_prefill_work(uint64_t tokens);

/* Adds what waits to the mix: a profile's shares (cells), times the requests that are like it. */
void balance_mix(double *mix, const uint16_t *shares, double weight, uint32_t cells);

/* How far the shares of totals + extra are from those of the mix: squares of the differences,
 * summed over experts and layers; 0 is equal. All (cells), layers of experts each. */
double balance_distance(const uint32_t *totals, const uint16_t *extra, const double *mix,
                        uint32_t cells, uint32_t experts);

struct balance_candidate {
    double distance;    /* balance_distance() with it; below 0: nothing is known of it */
    uint32_t overtakes; /* at most overtakes_max */
    double missing;     /* share of its prompt that others have cached and this worker has not */
};

struct balance_weights {
    double experts;  /* 0 to 1, against order */
    double affinity; /* beside both */
};

/* The index of the best, the first of equals; count is at least 1. Those of which nothing is known
 * stand in the middle between best and worst. */
uint32_t balance_choose(const struct balance_candidate *candidates, uint32_t count,
                        const struct balance_weights *weights, uint32_t overtakes_max);

#endif
