/* SPDX-License-Identifier: Apache-2.0
 *
 * crew - several simulated runs side by side, each on one thread. What they
 * find does not depend on how many threads there are.
 */
#ifndef SCHEDULER_SIM_CREW_H
#define SCHEDULER_SIM_CREW_H

#include "scheduler/sim/run.h"

struct crew_job {
    struct run_config config;
    const struct trace *trace;
    struct run_result result; /* the caller's, once ok */
    struct err err;
    bool ok;
};

/* Runs all of them, at most threads (64) at a time. False: the first failure in their order. */
bool crew_run(struct crew_job *jobs, uint32_t count, int64_t threads, struct err *err);
/* Frees the results. */
void crew_free(struct crew_job *jobs, uint32_t count);

#endif
