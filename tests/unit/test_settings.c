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

static void read_block(const char *name, char *text, size_t text_size)
{
    char path[200];

    snprintf(path, sizeof path, "tests/golden/published-config/%s", name);
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
    char text[4096];

    read_block(name, text, sizeof text);
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
    assert_int_equal(core.batch.kind, BATCH_FORMULA);
    assert_int_equal(core.batch.base, 32);
    assert_int_equal(core.batch.max, 128);
    assert_int_equal(core.batch.window_ms, 500);
    assert_true(core.batch.threshold == 0.75);
    assert_int_equal(settings.micro_batch_size, 16);
    assert_true(reports_no_effect(config, "batch_processing.micro_batch_size"));
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
    assert_string_equal(settings.low_precision, "fp16");
    config_free(config);

    config = load_block("prediction.yaml", &settings);
    assert_true(settings.traffic_prediction);
    assert_true(settings.prediction_window_us == INT64_C(900000000));
    assert_string_equal(settings.prediction_model_path, "models/traffic_prediction_lstm.pth");
    assert_true(reports_no_effect(config, "enable_traffic_prediction"));
    config_free(config);
}

/* Keys that the published text names outside its blocks. */
static void test_published_text(void **state)
{
    static const char yaml[] = "batch_processing:\n"
                               "  dynamic_batch_window: 1s\n"
                               "  max_batch_size: auto\n"
                               "expert_load_balancing: true\n"
                               "load_balance_interval: 100ms\n"
                               "expert_balance_weight: 0.3\n"
                               "kv_cache_external: true\n"
                               "cache_eviction_policy: lru\n";
    struct settings settings;
    struct config *config = load("text.yaml", yaml, &settings);

    (void)state;
    assert_int_equal(settings.batch_window_us, 1000000);
    assert_int_equal(settings.batch_max, SETTINGS_BATCH_AUTO);
    assert_true(settings.batch_threshold == 0.8);
    assert_int_equal(settings.load_balance_interval_us, 100000);
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
    assert_true(core.trim_requests);
    assert_string_equal(settings.common.topic_prefix, "pelton.");
    config_free(config);
}

static void test_adaptive_batch(void **state)
{
    static const char yaml[] = "batch_processing:\n"
                               "  rule: adaptive\n"
                               "  kv_share: 80%\n"
                               "  step_target: 50ms\n";
    const uint32_t partitions[CLASS_COUNT] = {1, 1};
    struct settings settings;
    struct config *config = load("adaptive.yaml", yaml, &settings);
    struct scheduler_config core = settings_core(&settings, 1, partitions);

    (void)state;
    assert_int_equal(core.batch.kind, BATCH_ADAPTIVE);
    assert_true(core.batch.kv_share == 0.8 && core.batch.pressure_gain == 1.0);
    assert_true(core.batch.step_us_target == 50000.0);
    config_free(config);
}

static void test_refused(void **state)
{
    (void)state;
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
        cmocka_unit_test(test_adaptive_batch),  cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
