/* SPDX-License-Identifier: Apache-2.0
 *
 * speed - how fast a worker would be with a larger batch than it has.
 *
 * A worker that has one sequence is as busy as one that has a hundred: it makes
 * step after step. Its tokens a second say what it does, not what it could do,
 * and a planner that divides by them wants more workers the more there are. So
 * the time of a step is taken as a constant (reading weights, launches) and a
 * cost for each of its rows, fitted to what workers report, with older reports
 * forgotten. Prompts are in the row's cost, as many as come with an answer.
 *
 * Where all reports show the same batch there is no line to fit: what is not
 * known of the constant is taken for row cost, which promises too little.
 *
 * A pure function of values.
 */
#ifndef SCHEDULER_SPEED_H
#define SCHEDULER_SPEED_H

#include <stdint.h>

struct speed {
    /* Sums over reports, weighted by age: steps, their rows, their time, and by step rows * rows
     * and rows * time. */
    double steps, rows, us, rows2, rows_us;
    double rows_now; /* of a step, newest reports first */
};

/* What all workers did in the last seconds: so many steps that decoded so many rows and took so
 * long. Without steps or rows it says nothing, and nothing is forgotten. */
void speed_observe(struct speed *speed, uint64_t steps, uint64_t rows, uint64_t us, double seconds);

/* Tokens a second of a worker whose steps have so many rows (at least 1); 0: nothing observed. */
double speed_at(const struct speed *speed, double rows);

/* Rows of a step that takes so long; INFINITY where rows cost nothing, 0: nothing observed. */
double speed_rows(const struct speed *speed, double step_us);

#endif
