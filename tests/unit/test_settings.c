/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler's configuration: every published block parses as it stands and means what it says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "scheduler/settings.h"

static void read_file(const char *path, char *text, size_t text_size)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t size = fread(text, 1, text_size - 1, file);
    fclose(file);
    assert_true(size > 0 && size < text_size - 1);
    text[size] = '\0';
}

static struct config *load(const char *name, const char *yaml, struct settings *settings)
{
    struct config *config;
    struct err err;

    if (!config_load_text(&config, &settings_program, name, yaml, settings, &err))
        fail_msg("%s", err.message);
    if (!settings_check(settings, &err))
        fail_msg("%s", err.message);
    return config;
}

static struct config *load_block(const char *name, struct settings *settings)
{
    char path[200], text[4096];

    snprintf(path, sizeof path, "tests/golden/published-config/%s", name);
    read_file(path, text, sizeof text);
    return load(name, text, settings);
}

static bool reports_no_effect(const struct config *config, const char *key)
{
    struct config_list keys = config_no_effect(config);

    for (size_t i = 0; i < keys.count; i++) {
        if (strcmp(keys.items[i], key) == 0)
            return true;
    }
    return false;
}

static void refuses(const char *yaml, const char *reason)
{
    struct settings settings;
    struct config *config = NULL;
    struct err err = {0};

    bool ok = config_load_text(&config, &settings_program, "test.yaml", yaml, &settings, &err) &&
              settings_check(&settings, &err);
    config_free(config);
    assert_false(ok);
    if (!strstr(err.message, reason))
        fail_msg("\"%s\" does not name \"%s\"", err.message, reason);
}

static void test_published_batch(void **state)
{
    struct settings settings;
    struct config *config = load_block("batch.yaml", &settings);
    const uint32_t partitions[CLASS_COUNT] = {2, 4};
    struct scheduler_config core = settings_core(&settings, 3, partitions);

    (void)state;
    assert_int_equal(core.batch.kind, BATCH_ADAPTIVE);
    assert_int_equal(core.batch.base, 32);
    assert_int_equal(core.batch.max, 128);
    assert_false(core.batch.max_auto);
    assert_true(core.kv_share == 0.75); /* planned by use, as adaptive is the default */
    assert_true(core.batch.kv_share == 0.75 && core.batch.pressure_gain == 1);
    assert_true(core.batch.step_us_target == 0);
    assert_int_equal(core.batch.window_ms, 500);
    assert_true(core.batch.threshold == 0.75);
    assert_int_equal(settings.micro_batch_size, 16);
    assert_false(reports_no_effect(config, "batch_processing.micro_batch_size"));
    assert_int_equal(core.micro_batch_size, 16);
    assert_false(reports_no_effect(config, "batch_processing.base_batch_size"));
    assert_int_equal(core.slots, 3);
    assert_int_equal(core.request_partitions[CLASS_INTERACTIVE], 2);
    assert_int_equal(core.request_partitions[CLASS_BULK], 4);
    config_free(config);
}

static void test_published_others(void **state)
{
    struct settings settings;
    struct config *config = load_block("kv-cache.yaml", &settings);

    (void)state;
    assert_int_equal(settings.kv_levels, 3);
    assert_true(settings.kv_l1_share == 0.2 && settings.kv_l2_share == 0.5);
    assert_true(settings.kv_l3_share == 0.3);
    assert_true(reports_no_effect(config, "kv_cache.l3_size"));
    config_free(config);

    config = load_block("precision.yaml", &settings);
    assert_true(settings.dynamic_precision);
    assert_true(settings.precision_load_threshold == 0.85);
    assert_int_equal(settings.low_precision, 1); /* fp16 */
    config_free(config);

    config = load_block("prediction.yaml", &settings);
    assert_true(settings.traffic_prediction);
    assert_true(settings.prediction_window_us == INT64_C(900000000));
    assert_string_equal(settings.prediction_model_path, "models/traffic_prediction_lstm.pth");
    assert_false(reports_no_effect(config, "enable_traffic_prediction"));
    assert_int_equal(settings_predictor(&settings), PREDICT_LSTM);
    /* The file is looked at when the program starts, and this name is refused there. */
    struct lstm lstm;
    struct err err;
    assert_false(lstm_read(&lstm, settings.prediction_model_path, &err));
    assert_non_null(strstr(err.message, "ops/train-predictor --convert"));
    config_free(config);
}

/* Keys that the published text names outside its blocks, and one of ours beside them. */
static void test_published_text(void **state)
{
    static const char yaml[] = "batch_processing:\n"
                               "  dynamic_batch_window: 1s\n"
                               "  max_batch_size: auto\n"
                               "expert_load_balancing: true\n"
                               "load_balance_interval: 100ms\n"
                               "expert_balance_weight: 0.3\n"
                               "prefix_affinity_weight: 0\n"
                               "kv_cache_external: true\n"
                               "cache_eviction_policy: lru\n";
    struct settings settings;
    struct config *config = load("text.yaml", yaml, &settings);

    (void)state;
    assert_int_equal(settings.batch_window_us, 1000000);
    assert_int_equal(settings.batch_max, SETTINGS_BATCH_AUTO);
    const uint32_t partitions[CLASS_COUNT] = {1, 1};
    assert_true(settings_core(&settings, 1, partitions).batch.max_auto);
    assert_true(settings.batch_threshold == 0.75);
    assert_int_equal(settings.load_balance_interval_us, 100000);
    assert_false(reports_no_effect(config, "expert_balance_weight"));
    assert_true(settings_core(&settings, 1, (uint32_t[CLASS_COUNT]){1, 1}).expert_balance_weight ==
                0.3);
    assert_true(settings_core(&settings, 1, partitions).prefix_affinity_weight == 0);
    assert_true(settings.external_kv_cache);
    config_free(config);
}

static void test_defaults_and_static_batch(void **state)
{
    static const char yaml[] = "batch_processing: {enable_dynamic_batch: false}\n"
                               "lease: 5s\nassign_ahead: 25%\n";
    const uint32_t partitions[CLASS_COUNT] = {1, 1};
    struct settings settings;
    struct config *config = load("static.yaml", yaml, &settings);
    struct scheduler_config core = settings_core(&settings, 1, partitions);

    (void)state;
    assert_int_equal(core.batch.kind, BATCH_STATIC);
    assert_int_equal(core.lease_ms, 5000);
    assert_int_equal(core.assign_ahead_percent, 25);
    assert_int_equal(core.dedupe_window_ms, 7 * 86400 * INT64_C(1000));
    assert_int_equal(core.crashes_max, 3);
    assert_true(core.expert_balance_weight == 0.4);
    assert_true(core.prefix_affinity_weight == 1);
    assert_int_equal(core.overtakes_max[CLASS_BULK], 1024);
    assert_int_equal(core.overtakes_max[CLASS_INTERACTIVE], 16);
    assert_true(core.trim_requests);
    assert_string_equal(settings.common.topic_prefix, "pelton.");
    config_free(config);
}

static void test_policies(void **state)
{
    static const struct {
        const char *yaml;
        enum batch_policy_kind kind;
    } cases[] = {
        {"batch_processing: {policy: static}\n", BATCH_STATIC},
        {"batch_processing: {policy: formula}\n", BATCH_FORMULA},
        {"batch_processing: {policy: adaptive, step_target: 80ms, kv_share: 80%}\n",
         BATCH_ADAPTIVE},
        {"batch_processing: {policy: adaptive, enable_dynamic_batch: false}\n", BATCH_STATIC},
    };
    const uint32_t partitions[CLASS_COUNT] = {1, 1};
    struct settings settings;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct config *config = load("policy.yaml", cases[i].yaml, &settings);
        struct batch_policy batch = settings_core(&settings, 1, partitions).batch;
        assert_int_equal(batch.kind, cases[i].kind);
        assert_true(batch.step_us_target == (i == 2 ? 80000 : 0));
        assert_true(batch.kv_share == (i == 2 ? 0.8 : 0.75));
        config_free(config);
    }
}

static void test_planner(void **state)
{
    struct settings settings;
    struct config *config = load("planner.yaml",
                                 "planner: {workers_min: 2, drain: 1min, interval: 1s}\n"
                                 "prediction_window: 25min\n"
                                 "batch_processing: {base_batch_size: 8}\n",
                                 &settings);
    struct capacity_config capacity = settings_capacity(&settings, 5, NULL);

    (void)state;
    assert_int_equal(capacity.planner.workers_min, 2);
    assert_int_equal(capacity.planner.workers_max, 5); /* the slots */
    assert_int_equal(capacity.planner.base_batch, 8);
    assert_int_equal(capacity.planner.drain_ms, 60000);
    assert_int_equal(capacity.predictor.kind, PREDICT_EWMA);
    assert_int_equal(capacity.window_ms, 60000);
    assert_int_equal(capacity.windows_ahead, 26); /* 25 minutes lie in the 26th */
    assert_true(capacity.forecasts);
    assert_int_equal(settings_capacity(&settings, 1, NULL).planner.workers_min, 1);
    config_free(config);

    config = load("lstm.yaml", "prediction_model_path: ops/models/traffic-lstm.safetensors\n",
                  &settings);
    assert_int_equal(settings_predictor(&settings), PREDICT_LSTM);
    capacity = settings_capacity(&settings, 1, NULL);
    assert_int_equal(capacity.window_ms, 600000);
    assert_int_equal(capacity.windows_ahead, 2); /* of ten minutes: 15 minutes lie in the second */
    config_free(config);
    config = load("off.yaml",
                  "enable_traffic_prediction: false\npredictor: constant\n"
                  "planner: {workers_max: 3}\n",
                  &settings);
    capacity = settings_capacity(&settings, 5, NULL);
    assert_false(capacity.forecasts);
    assert_int_equal(capacity.predictor.kind, PREDICT_CONSTANT);
    assert_int_equal(capacity.planner.workers_max, 3);
    config_free(config);
}

static void test_presets(void **state)
{
    static const struct {
        const char *name;
        uint32_t base, max, micro, window_ms;
    } presets[] = {
        {"a100-40", 16, 64, 8, 300}, {"h100-80", 32, 128, 16, 500}, {"h800-80", 32, 128, 16, 500},
        {"a10-24", 8, 32, 4, 200},   {"cpu", 8, 32, 8, 300},
    };
    const uint32_t partitions[CLASS_COUNT] = {1, 1};
    char path[64], text[4096];
    struct settings settings;

    (void)state;
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        snprintf(path, sizeof path, "ops/presets/%s.yaml", presets[i].name);
        read_file(path, text, sizeof text);
        struct config *config = load(path, text, &settings);
        struct batch_policy batch = settings_core(&settings, 1, partitions).batch;
        assert_int_equal(batch.base, presets[i].base);
        assert_int_equal(batch.max, presets[i].max);
        assert_int_equal(batch.window_ms, presets[i].window_ms);
        assert_int_equal(settings.micro_batch_size, presets[i].micro);
        config_free(config);
    }
}

/* Switched off, the weight has no say. */
static void test_no_expert_balance(void **state)
{
    const uint32_t partitions[CLASS_COUNT] = {1, 1};
    struct settings settings;
    struct config *config = load("off.yaml", "expert_load_balancing: false\n", &settings);

    (void)state;
    assert_true(settings_core(&settings, 1, partitions).expert_balance_weight == 0);
    config_free(config);
}

static void test_refused(void **state)
{
    (void)state;
    refuses("planner: {workers_min: 4, workers_max: 3}\n", "workers_max 3");
    refuses("predictor: lstm\n", "prediction_model_path");
    refuses("predictor: lstm\nprediction_model_path: x\nprediction_window: 60min\n",
            "6 traffic_windows");
    refuses("prediction_window: 61min\n", "prediction_window");
    refuses("kv_cache: {l1_size: 90%, l2_size: 90%, l3_size: 90%}\n", "270% together");
    refuses("precision: {low_precision: banana}\n", "fp32|fp16|bf16");
    refuses("batch_processing: 5\n", "batch_processing takes a mapping");
    refuses("batch_processing: [1, 2]\n", "batch_processing takes a mapping");
    refuses("batch_processing:\n", "batch_processing takes a mapping");
    refuses("kafka: 5\n", "kafka takes a mapping");
    refuses("batch_processin: 5\n", "unknown key");
    refuses("predictor: best\n", "holt-winters");
    refuses("batch_processing: {policy: dynamic}\n", "adaptive");
    refuses("batch_processing: {kv_share: 120%}\n", "kv_share");
    refuses("batch_processing: {base_batch_size: 64, max_batch_size: 32}\n", "max_batch_size 32");
    refuses("batch_processing: {micro_batch_size: 129}\n", "micro_batch_size");
    refuses("tick_min: 300ms\n", "tick_max 250 ms");
    refuses("lease: 500ms\n", "four times tick_max");
    refuses("batch_processing: {base_batch_sise: 3}\n", "base_batch_size");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_batch), cmocka_unit_test(test_published_others),
        cmocka_unit_test(test_published_text),  cmocka_unit_test(test_defaults_and_static_batch),
        cmocka_unit_test(test_policies),        cmocka_unit_test(test_planner),
        cmocka_unit_test(test_presets),         cmocka_unit_test(test_no_expert_balance),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
