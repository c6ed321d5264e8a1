/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/sim_fixture.h"

bool sim_fixture_open(struct sim_fixture *fixture)
{
    *fixture = (struct sim_fixture){
        .routing = {.tasks = 7, .experts = 256, .ranks = 8, .replicas = 288, .top_k = 8}};
    routing_skewed(&fixture->routing, 0.6, 1);
    return step_model_preset("h800-node", &fixture->model);
}

struct run_config sim_fixture_config(const struct sim_fixture *fixture, uint32_t nodes,
                                     enum batch_policy_kind kind, uint32_t base)
{
    return (struct run_config){.model = &fixture->model,
                               .routing = &fixture->routing,
                               .policy = {.kind = kind,
                                          .base = base,
                                          .max = 4096,
                                          .alpha = 0.5,
                                          .threshold = 0.75,
                                          .smoothing = 0.3,
                                          .window_ms = 500,
                                          .pressure_gain = 1,
                                          .kv_share = 0.75,
                                          .step_us_target = 100000},
                               .nodes = nodes,
                               .kv_share = 0.75,
                               .assign_ahead_percent = 25,
                               .tick_us = 100000,
                               .heartbeat_us = 1000000,
                               .step_us_target = 100000,
                               .balance_us = 10000000,
                               .balance_gain_min = 1.02,
                               .capacity = {.planner = {.workers_min = 1,
                                                        .workers_max = nodes,
                                                        .base_batch = 32,
                                                        .utilisation = 0.8,
                                                        .drain_ms = 60000,
                                                        .scale_down_ms = 60000},
                                            .predictor = predict_defaults(PREDICT_EWMA),
                                            .forecasts = true,
                                            .windows_ahead = 1,
                                            .window_ms = 10000,
                                            .interval_ms = 5000},
                               .node_start_us = 20000000,
                               .horizon_us = (int64_t)3600 * 1000000,
                               .seed = 1};
}
