/* SPDX-License-Identifier: Apache-2.0
 *
 * engine_prefix - what the prefix cache saves: a burst of requests that begin
 * alike and end with some tokens of their own, without the cache, with it, and
 * once more when it knows the beginning.
 */
#ifndef OPS_BENCH_ENGINE_PREFIX_H
#define OPS_BENCH_ENGINE_PREFIX_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "common/err.h"
#include "worker/engine.h"

enum { PREFIX_TAIL_TOKENS = 32, PREFIX_ANSWER_TOKENS = 16 };

struct prefix_job {
    uint32_t requests;
    uint32_t batch;
    uint32_t
        prefix_tokens; /* that all requests begin with; PREFIX_TAIL_TOKENS of their own follow */
    double seconds; /* each way is repeated for at least so long, taking turns; the best counts */
    clockid_t clock;
};

/* Prints a table. config: max_seqs, max_waiting, max_context and prefix_cache are the job's. */
bool prefix_table(const struct engine_config *config, const struct prefix_job *job,
                  struct err *err);

#endif
