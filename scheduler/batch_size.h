/* SPDX-License-Identifier: Apache-2.0
 *
 * batch_size - how many sequences a worker may run at once: three policies
 * behind one function.
 *
 *   static    always the base.
 *   formula   the published rule: base * (1 + alpha * (1 - load / threshold)), recomputed once a
 *             window, smoothed, and clamped to [1, max] after rounding, so that a load far above
 *             the threshold gives 1, never less.
 *   adaptive  the formula's answer or what runs, whichever is more, grown by lag pressure; then
 *             capped by the KV memory that batches may plan with and by the step time that still
 *             meets the token latency wanted (half more while requests wait). So it grows window
 *             by window to what memory and latency allow, and the base need not be tuned.
 *
 * max_auto bounds all three by memory: what kv_share of the worker's KV cache
 * holds of sequences that need as much as those it was given.
 *
 * load is what the worker reports: the EWMA of its busiest expert's tokens per step over what that
 * expert can do in the target step time; 0 is idle, 1 is full.
 *
 *   base 32, alpha 0.5, threshold 0.75: load 0 -> 48, 0.75 -> 32, 1.5 -> 16.
 *
 * A pure function of values; each worker has a struct batch_size of its own.
 * Source: the published description of dynamic batching (keys in
 * tests/golden/published-config).
 */
#ifndef SCHEDULER_BATCH_SIZE_H
#define SCHEDULER_BATCH_SIZE_H

#include <stdbool.h>
#include <stdint.h>

enum batch_policy_kind { BATCH_STATIC, BATCH_FORMULA, BATCH_ADAPTIVE };

struct batch_policy {
    enum batch_policy_kind kind; /* STATIC: always base */
    uint32_t base;               /* base_batch_size, 1..max */
    uint32_t max;                /* max_batch_size */
    bool max_auto;               /* and what kv_share of the KV memory holds at the mean need */
    double alpha;                /* 0.2 to 0.8 */
    double threshold;            /* expert_load_threshold, above 0 */
    double smoothing;            /* weight of the newest answer, 0 < s <= 1; 1: no smoothing */
    int64_t window_ms;           /* dynamic_adjust_window */
    double kv_share;             /* of the worker's KV memory, 0.7 to 0.8 advised; 0: no cap */
    /* ADAPTIVE only. */
    double pressure_gain;  /* growth under full pressure: 1 doubles the answer */
    double step_us_target; /* slowest step that meets the token latency; 0: no cap */
};

/* What is known of a worker, and of the requests that wait. */
struct batch_signal {
    double load;
    double pressure;         /* waiting requests over what all workers may run; full from 1 on */
    double step_us;          /* 0 unknown */
    uint32_t running;        /* sequences in its batch */
    double steady_running;   /* the same, averaged over as long as step_us; 0 unknown */
    uint64_t kv_tokens_used; /* by them */
    uint64_t kv_tokens;      /* capacity; 0 unknown */
    double kv_tokens_need;   /* estimated for one sequence, mean of those it holds; 0 unknown */
    uint32_t max_seqs;       /* the worker's own limit */
};

struct batch_size {
    double smoothed;
    double running, step_us; /* averages over some 20 windows, both from 0 on */
    int64_t adjusted_ms;
    uint32_t size;
    uint32_t memory; /* what max_auto allows; UINT32_MAX: no limit known */
};

/* Starts at base. */
void batch_size_init(struct batch_size *batch, const struct batch_policy *policy, int64_t now_ms);

/* The formula alone, not smoothed, clamped after rounding. */
uint32_t batch_size_formula(const struct batch_policy *policy, double load);

/* The answer of the policy now, not smoothed, at least 1. */
uint32_t batch_size_answer(const struct batch_policy *policy, const struct batch_signal *signal);

/* The most that the policy may come to allow such a worker, at least 1: its upper limit, the
 * worker's own, and what the memory holds at the need of the sequences it has now. */
uint32_t batch_size_most(const struct batch_policy *policy, const struct batch_signal *signal);

/* The size to use now; changes at most once a window. Averages the signal's running and step_us
 * itself; its steady_running is not looked at. */
uint32_t batch_size_update(struct batch_size *batch, const struct batch_policy *policy,
                           const struct batch_signal *signal, int64_t now_ms);

#endif
