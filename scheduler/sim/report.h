/* SPDX-License-Identifier: Apache-2.0
 *
 * report - the simulator's table, its JSON and its plots.
 *
 * Everything printed derives from the comparison alone, so that the same seed
 * gives the same bytes.
 */
#ifndef SCHEDULER_SIM_REPORT_H
#define SCHEDULER_SIM_REPORT_H

#include <stdio.h>

#include "scheduler/sim/compare.h"
#include "scheduler/sim/fluid.h"

void report_table(FILE *out, const struct sim_setup *setup,
                  const struct sim_comparison *comparison);
/* One object on one line. */
bool report_json(FILE *out, const struct sim_setup *setup, const struct sim_comparison *comparison,
                 struct err *err);

void report_fluid_table(FILE *out, const struct sim_setup *setup, const char *const *names,
                        const struct fluid_result *results, uint32_t count);
bool report_fluid_json(FILE *out, const struct sim_setup *setup, const char *const *names,
                       const struct fluid_result *results, uint32_t count, struct err *err);

/* US dollars of an hour's tokens at the published prices of DeepSeek-R1: per million 0.14 input
 * from the cache, 0.55 other input, 2.19 output. */
double report_revenue_usd(const struct sim_setup *setup, uint64_t prompt_tokens,
                          uint64_t output_tokens);

#endif
