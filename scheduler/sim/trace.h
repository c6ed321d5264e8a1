/* SPDX-License-Identifier: Apache-2.0
 *
 * trace - requests as others recorded them, for the simulator.
 *
 * The format is known by the file's first line:
 *
 * - TIMESTAMP,ContextTokens,GeneratedTokens: Azure LLM inference trace (CSV, local time).
 * - {"timestamp": ms, "input_length": ...}: Mooncake (JSON lines). Its hash_ids name the prompt's
 *   blocks of 512 tokens, the last one in part: equal ids are equal prompts up to the block's end.
 * - window_start_s,rate_rps,...: a day by windows (ServeGen, aggregated). Poisson arrivals at the
 *   window's rate, log-normal lengths of the window's means, with the sigmas of two more columns;
 *   without them 0.9 and 1.0, which match the mean-to-median ratios of the Azure trace.
 * - any CSV of which columns are named: an offline job of these lengths, all there at 0.
 *
 * Times start at 0 with the first request, in microseconds, non-decreasing.
 * scale multiplies the arrival rate by dividing the times; the requests stay
 * the same, except for a trace by windows, which draws more of them.
 */
#ifndef SCHEDULER_SIM_TRACE_H
#define SCHEDULER_SIM_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "scheduler/sim/trace_windows.h"

/* Seven times the requests of the largest public day; they and a run's results take 1 GB. */
enum { TRACE_BLOCK_TOKENS = 512, TRACE_BLOCKS_MAX = 1 << 24, TRACE_REQUESTS_MAX = 10000000 };

struct trace_request {
    int64_t arrival_us;
    uint32_t prompt_tokens; /* at least 1 */
    uint32_t output_tokens; /* at least 1 */
    uint32_t blocks;        /* 0: the trace does not say how prompts begin */
    size_t blocks_at;       /* of them in struct trace */
};

struct trace_options {
    const char *path;
    const char *column_prompt; /* of a CSV as an offline job; NULL otherwise */
    const char *column_output;
    double scale;      /* of the arrival rate, above 0 */
    int64_t from_us;   /* only requests of [from, from + length) of the unscaled trace ... */
    int64_t length_us; /* ... 0: to its end */
    uint64_t seed;
};

struct trace {
    struct trace_request *requests;
    size_t count;
    size_t capacity;
    bool offline;        /* without arrival times */
    int64_t duration_us; /* of what was selected, scaled; windows count whole */
    uint64_t prompt_tokens;
    uint64_t output_tokens;
    double context_tokens; /* read by all output tokens together, each at its place */
    uint32_t *blocks;      /* ids, all below blocks_limit */
    size_t blocks_count;
    size_t blocks_capacity;
    uint32_t blocks_limit;    /* 0: the trace names none */
    uint64_t repeated_tokens; /* of the prompts: in leading blocks that came before */
};

/* A trace by windows as it stands, for the fluid mode. REJECT also for any other format. */
bool trace_read_windows(struct trace_windows *windows, const struct trace_options *options,
                        struct err *err);

/* Tokens of context that the output tokens of a request read, added up. */
double trace_request_context(const struct trace_request *request);

/* REJECT names file and line; also for more than TRACE_REQUESTS_MAX requests. */
bool trace_read(struct trace *trace, const struct trace_options *options, struct err *err);
void trace_free(struct trace *trace);

#endif
