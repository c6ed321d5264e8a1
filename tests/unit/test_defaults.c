/* SPDX-License-Identifier: Apache-2.0
 *
 * Without options pelton-sim runs what pelton-scheduler ships: the same core, planner and policy.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "scheduler/settings.h"
#include "scheduler/sim/compare.h"

static struct settings settings;
static struct sim_options options;
static struct sim_setup setup;
static struct config *shipped, *simulated;

static int load(void **state)
{
    struct err err;

    (void)state;
    setup.options = &options;
    return config_load_text(&shipped, &settings_program, "shipped", "", &settings, &err) &&
                   config_load_text(&simulated, &sim_program, "simulated", "", &options, &err)
               ? 0
               : -1;
}

static int unload(void **state)
{
    (void)state;
    config_free(shipped);
    config_free(simulated);
    return 0;
}

static void the_same_policy(void **state)
{
    const struct scheduler_config core =
        settings_core(&settings, 1, (const uint32_t[CLASS_COUNT]){1, 1});
    struct run_config config;

    (void)state;
    sim_run_config(&setup, SIM_ADAPTIVE, core.batch.base, &config);
    assert_int_equal(core.batch.kind, BATCH_ADAPTIVE);
    assert_int_equal(config.policy.kind, core.batch.kind);
    assert_int_equal(config.policy.max, core.batch.max);
    assert_int_equal(config.policy.max_auto, core.batch.max_auto);
    assert_int_equal(config.policy.window_ms, core.batch.window_ms);
    assert_true(config.policy.alpha == core.batch.alpha);
    assert_true(config.policy.threshold == core.batch.threshold);
    assert_true(config.policy.smoothing == core.batch.smoothing);
    assert_true(config.policy.kv_share == core.batch.kv_share);
    assert_true(config.policy.pressure_gain == core.batch.pressure_gain);
    assert_true(config.policy.step_us_target == core.batch.step_us_target);
    assert_true(config.kv_share == core.kv_share);
    assert_int_equal(config.assign_ahead_percent, core.assign_ahead_percent);
    assert_int_equal(config.long_request_tokens, core.long_request_tokens);
    assert_int_equal(config.long_share_percent, core.long_share_percent);
    assert_true(options.prefix_affinity_weight == core.prefix_affinity_weight);
}

static void the_same_planner(void **state)
{
    const struct capacity_config plan = settings_capacity(&settings, (uint32_t)options.nodes, NULL);
    struct run_config config;

    (void)state;
    sim_run_config(&setup, SIM_ADAPTIVE, (uint32_t)settings.batch_base, &config);
    const struct planner_config *planner = &config.capacity.planner;
    assert_int_equal(planner->workers_min, plan.planner.workers_min);
    assert_int_equal(planner->workers_max, plan.planner.workers_max);
    assert_int_equal(planner->base_batch, plan.planner.base_batch);
    assert_true(planner->utilisation == plan.planner.utilisation);
    assert_int_equal(planner->drain_ms, plan.planner.drain_ms);
    assert_int_equal(planner->scale_down_ms, plan.planner.scale_down_ms);
    assert_int_equal(config.capacity.predictor.kind, plan.predictor.kind);
    assert_int_equal(config.capacity.forecasts, plan.forecasts);
    assert_int_equal(config.capacity.windows_ahead, plan.windows_ahead);
    assert_int_equal(config.capacity.window_ms, plan.window_ms);
    assert_int_equal(config.capacity.interval_ms, plan.interval_ms);
    assert_int_equal(config.capacity.step_us_target, plan.step_us_target);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_policy),
        cmocka_unit_test(the_same_planner),
    };

    return cmocka_run_group_tests(tests, load, unload);
}
