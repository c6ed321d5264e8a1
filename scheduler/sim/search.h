/* SPDX-License-Identifier: Apache-2.0
 *
 * search - two questions that need many runs: which fixed cap is the best, and
 * how much traffic a policy bears.
 *
 * The cap: powers of two from what the node's buffers hold down to 8, on the
 * first half of the trace. Best is the lowest P99 latency among the caps whose
 * tokens/s are within 2 % of the highest. Two caps run at a time, whatever the
 * threads; a run is given up once it cannot beat the best one, and the sweep
 * ends with the first pair that does not improve it.
 *
 * The traffic: the highest arrival scale at which at least 99 % of the requests
 * are in time: a request has limit_first, and step_target for every output
 * token. (A limit on the plain latency would be decided by the longest answers
 * alone.) An open-loop trace shows a policy's throughput in no other way: as
 * long as it keeps up, it makes the tokens that arrive.
 */
#ifndef SCHEDULER_SIM_SEARCH_H
#define SCHEDULER_SIM_SEARCH_H

#include "scheduler/sim/compare.h"

bool search_base(const struct sim_setup *setup, enum sim_policy policy, uint32_t *base,
                 struct err *err);

/* Fills the row's limit_scale (of the trace's own rate) and limit_tokens_per_s; 0 when no scale
 * holds. */
bool search_limit(const struct sim_setup *setup, struct sim_row *row, struct err *err);

#endif
