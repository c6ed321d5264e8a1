/* SPDX-License-Identifier: Apache-2.0
 *
 * arrivals - the requests of a trace as the core gets to see them: ids, bodies
 * and the moments at which they are read. Source: scheduler/sim/run.h.
 */
#ifndef SCHEDULER_SIM_ARRIVALS_H
#define SCHEDULER_SIM_ARRIVALS_H

#include "scheduler/sim/run_state.h"

/* Of the request at this place of the trace. */
struct request_id arrivals_id(uint64_t index);
uint64_t arrivals_index(const struct request_id *id);

/* By lot, as the seed has it. */
enum service_class arrivals_class(const struct run *run, uint64_t index);

/* As the core estimates it: the prompt and max_tokens. */
uint32_t arrivals_tokens(const struct run *run, uint64_t index);

/* Gives the core what has come until now, unless it has no room. */
void arrivals_due(struct run *run);
/* Requests that have come and are not read, since the core has no room. */
uint64_t arrivals_unread(const struct run *run);

#endif
