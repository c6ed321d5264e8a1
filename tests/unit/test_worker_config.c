/* SPDX-License-Identifier: Apache-2.0
 *
 * The worker's options: the shipped file, roles that cannot run yet, what is
 * missing.
 */
#include "worker/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "schemas/codec.h"

static bool check(const char *yaml, struct worker_config *values, struct err *err)
{
    struct config *config = NULL;
    bool ok = config_load_text(&config, &worker_program, "test.yaml", yaml, values, err) &&
              worker_config_check(values, err);

    config_free(config);
    return ok;
}

static void the_shipped_file_holds_the_defaults(void **state)
{
    FILE *file = fopen("ops/config/worker.yaml", "r");
    char yaml[16384];
    struct worker_config values, defaults;
    struct err err;

    (void)state;
    assert_non_null(file);
    yaml[fread(yaml, 1, sizeof yaml - 1, file)] = '\0';
    fclose(file);
    if (!check(yaml, &values, &err) || !check("model: x", &defaults, &err))
        fail_msg("%s", err.message);
    assert_int_equal(values.max_batch_size, defaults.max_batch_size);
    assert_int_equal(values.lease_us, 3000000);
    assert_int_equal(values.keep_us, defaults.keep_us);
    assert_int_equal(values.stream_tokens, 8);
    assert_int_equal(values.stream_us, 100000);
    assert_int_equal(values.chunk_tokens, defaults.chunk_tokens);
    assert_int_equal(values.numerics, ENGINE_F32);
    assert_true(values.prefix_cache && defaults.prefix_cache);
    assert_false(values.prefix_cache_shared || defaults.prefix_cache_shared);
}

static void a_model_name_is_one_that_requests_can_give(void **state)
{
    char yaml[64 + MODEL_ID_SIZE_MAX + 1];
    struct worker_config values;
    struct err err;

    (void)state;
    for (size_t more = 0; more < 2; more++) {
        int at = sprintf(yaml, "model: x\nmodel_name: ");
        memset(yaml + at, 'n', MODEL_ID_SIZE_MAX + more);
        yaml[(size_t)at + MODEL_ID_SIZE_MAX + more] = '\0';
        assert_int_equal(check(yaml, &values, &err), more == 0);
    }
    assert_non_null(strstr(err.message, "at most 256 bytes"));
    assert_false(check("model: x\nmodel_name: \"a\\nb\"", &values, &err));
    assert_true(check("model: x\nmodel_name: Modèle/7 B", &values, &err));
}

static void bad_values_are_one_line(void **state)
{
    static const struct {
        const char *yaml, *words;
    } cases[] = {
        {"model: x\nrole: prefill", "role prefill hands KV caches over through the external KV"},
        {"model: x\nrole: decode", "role decode"},
        {"slot: 1", "model directory is missing"},
        {"model: x\nmodel_name: \"a\\x7f\"", "without control characters"},
        {"model: x\nmax_batch_size: 0", "max_batch_size"},
        {"model: x\nnumerics: f64", "numerics"},
        {"model: x\nmax_batch_sizes: 4", "max_batch_size"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct worker_config values;
        struct err err = {0};

        assert_false(check(cases[i].yaml, &values, &err));
        if (strstr(err.message, cases[i].words) == NULL)
            fail_msg("\"%s\" is not in: %s", cases[i].words, err.message);
        assert_null(strchr(err.message, '\n'));
    }
}

static void the_published_key_is_known(void **state)
{
    struct worker_config values;
    struct err err;

    (void)state;
    assert_true(check("model: x\nbatch_processing: {max_batch_size: 128}", &values, &err));
    assert_int_equal(values.max_batch_size, 128);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_shipped_file_holds_the_defaults),
        cmocka_unit_test(a_model_name_is_one_that_requests_can_give),
        cmocka_unit_test(bad_values_are_one_line),
        cmocka_unit_test(the_published_key_is_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
