/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_fixture - a simulated fleet for tests: the preset node, seven tasks with skewed experts, and
 * settings that do not follow the defaults, so that numbers in tests stay what they are.
 */
#ifndef TESTS_UNIT_SIM_FIXTURE_H
#define TESTS_UNIT_SIM_FIXTURE_H

#include "scheduler/sim/run.h"

struct sim_fixture {
    struct step_model model;
    struct routing routing;
};

bool sim_fixture_open(struct sim_fixture *fixture);

/* Of so many nodes with a batch of `base`; the fixture outlives it. */
struct run_config sim_fixture_config(const struct sim_fixture *fixture, uint32_t nodes,
                                     enum batch_policy_kind kind, uint32_t base);

#endif
