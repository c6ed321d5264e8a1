/* SPDX-License-Identifier: Apache-2.0
 *
 * Step times by hand, a fit that must find the numbers its samples were made
 * of, and files with every kind of fault.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "scheduler/sim/step_model.h"

static const struct step_model model = {.name = "test",
                                        .fixed_us = 1000,
                                        .decode_us = 10,
                                        .prefill_us = 20,
                                        .kv_us = 0.5,
                                        .expert_share = 0.5,
                                        .kv_tokens = 1000,
                                        .max_seqs = 8,
                                        .chunk_tokens = 64,
                                        .usd_per_hour = 2.5};

static void test_the_work_of_a_step_by_hand(void **state)
{
    struct step_work work = {4, 3, 200, 100};

    (void)state;
    /* 4 of 8 rows, a tenth of the memory: half of the 1000, and 4 * 10 + 3 * 20 + 0.5 * 200. */
    assert_true(step_model_work_us(&model, &work) == 700);
    work.memory_tokens = 750;
    assert_true(step_model_work_us(&model, &work) == 950);
    work.memory_tokens = 1500; /* one sequence that is longer than the memory */
    assert_true(step_model_work_us(&model, &work) == 1200);
    assert_true(step_model_work_us(&model, &(struct step_work){0}) == 0);
}

static void test_a_step_by_hand(void **state)
{
    (void)state;
    assert_true(step_model_us(&model, &(struct step_shape){0, 0, 0, 1}) == 1000);
    /* 1000 + 4 * 10 + 3 * 20 + 0.5 * 200 */
    assert_true(step_model_us(&model, &(struct step_shape){4, 3, 200, 1}) == 1200);
    /* The experts' half of the 100 us for rows takes three times as long. */
    assert_true(step_model_us(&model, &(struct step_shape){4, 3, 200, 3}) == 1300);
}

static void test_fit_finds_what_made_the_samples(void **state)
{
    struct step_sample samples[60];
    struct step_model fitted = {.expert_share = 0.5};
    struct err err;
    double error;

    (void)state;
    for (uint32_t i = 0; i < 60; i++) {
        samples[i].shape = (struct step_shape){i % 7, i % 5 * 16, i * i % 97 * 10, 1 + i % 3};
        samples[i].us = step_model_us(&model, &samples[i].shape);
    }
    assert_true(step_model_fit(&fitted, samples, 60, &error, &err));
    assert_true(error < 1e-6);
    assert_true(fabs(fitted.fixed_us - 1000) < 1e-3);
    assert_true(fabs(fitted.decode_us - 10) < 1e-4);
    assert_true(fabs(fitted.prefill_us - 20) < 1e-4);
    assert_true(fabs(fitted.kv_us - 0.5) < 1e-4);
}

static void test_fit_is_never_negative(void **state)
{
    struct step_sample samples[20];
    struct step_model fitted = {0};
    struct err err;
    double error;

    (void)state;
    /* More rows, less time: nothing non-negative explains it but a constant. */
    for (uint32_t i = 0; i < 20; i++)
        samples[i] = (struct step_sample){{i, 0, 0, 1}, 2000 - 10.0 * i};
    assert_true(step_model_fit(&fitted, samples, 20, &error, &err));
    assert_true(fitted.decode_us == 0);
    assert_true(fitted.fixed_us > 1800 && fitted.fixed_us < 2000);
    assert_false(step_model_fit(&fitted, samples, 7, &error, &err));
    assert_int_equal(err.kind, ERR_REJECT);
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void test_files(void **state)
{
    static const struct {
        const char *text, *part;
    } bad[] = {
        {"", "a key is missing (first: fixed_us)"}, {"fixed_us=1\nfixed_us=2\n", "line 2"},
        {"# comment\nspeed=1\n", "line 2"},         {"decode_us=-1\n", "line 1"},
        {"max_seqs=5000000000\n", "line 1"},        {"kv_us=nan\n", "line 1"},
    };
    char path[] = "/tmp/step_model_XXXXXX";
    struct step_model again;
    struct err err;

    (void)state;
    close(mkstemp(path));
    assert_true(step_model_write(&model, path, &err));
    assert_true(step_model_read(&again, path, &err));
    assert_string_equal(again.name, "fitted");
    snprintf(again.name, sizeof again.name, "test");
    assert_memory_equal(&again.fixed_us, &model.fixed_us,
                        sizeof model - offsetof(struct step_model, fixed_us));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_text(path, bad[i].text);
        assert_false(step_model_read(&again, path, &err));
        assert_non_null(strstr(err.message, bad[i].part));
    }
    unlink(path);
    assert_false(step_model_read(&again, path, &err));
}

static void test_presets(void **state)
{
    struct step_model preset;

    (void)state;
    /* The published operating point: 700 sequences of 4,989 tokens make 14.8 k tokens/s. */
    assert_true(step_model_preset("h800-node", &preset));
    double us = step_model_us(&preset, &(struct step_shape){700, 0, 700 * 4989, 1});
    assert_true(fabs(700 / (us / 1e6) / 14800 - 1) < 0.03);
    assert_true(step_model_preset("h100-node", &preset));
    assert_false(step_model_preset("abacus", &preset));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_step_by_hand),
        cmocka_unit_test(test_the_work_of_a_step_by_hand),
        cmocka_unit_test(test_fit_finds_what_made_the_samples),
        cmocka_unit_test(test_fit_is_never_negative),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_presets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
