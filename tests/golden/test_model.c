/* SPDX-License-Identifier: Apache-2.0
 *
 * The forward pass against what transformers says in fp32 (golden.jsonl in
 * demo/ and tiny/): chosen experts exactly, logits within 2e-3, greedy tokens
 * exactly, going on past the end mark; on the back end named by the argument.
 */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "worker/model.h"

enum { TOKENS_MAX = 1024 };

static const char *backend_name;

/* One sequence in pages 0, 1, 2... */
struct runner {
    struct model *model;
    uint32_t tokens[TOKENS_MAX];
    uint32_t positions[TOKENS_MAX];
    uint32_t pages[TOKENS_MAX / KV_PAGE_TOKENS];
    uint32_t fed;
};

static void feed(struct runner *runner, uint32_t count)
{
    const uint32_t first_row = 0;
    const uint32_t last = count - 1;
    const struct model_batch batch = {
        .tokens = runner->tokens + runner->fed,
        .positions = runner->positions + runner->fed,
        .first_row = &first_row,
        .seq_rows = &count,
        .first_position = &runner->fed,
        .pages = runner->pages,
        .logit_rows = &last,
        .pages_stride = kv_pages_needed(model_context_max(runner->model)),
        .n_rows = count,
        .n_seqs = 1,
        .n_logits = 1,
        .pipeline = &pipeline_sequential,
    };
    struct err err;

    if (!model_forward(runner->model, &batch, &err))
        fail_msg("%s", err.message);
    runner->fed += count;
}

static uint32_t largest(const float *logits, uint32_t count)
{
    uint32_t best = 0;

    for (uint32_t i = 1; i < count; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

static int by_number(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a;
    const uint32_t y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* layers: per expert layer the rising ids of every token, or an object that holds them as ids. */
static void check_experts(const struct model *model, const json_t *layers, uint32_t n_tokens)
{
    const uint32_t top_k = model_config(model)->top_k;

    assert_int_equal(json_array_size(layers), model_config_expert_layers(model_config(model)));
    for (uint32_t l = 0; l < json_array_size(layers); l++) {
        const json_t *layer = json_array_get(layers, l);
        const json_t *ids = json_is_object(layer) ? json_object_get(layer, "ids") : layer;

        assert_int_equal(json_array_size(ids), n_tokens);
        for (uint32_t t = 0; t < n_tokens; t++) {
            uint32_t experts[64];

            memcpy(experts, model_experts(model, l) + (size_t)t * top_k, top_k * sizeof *experts);
            qsort(experts, top_k, sizeof *experts, by_number);
            for (uint32_t k = 0; k < top_k; k++)
                assert_int_equal(experts[k],
                                 json_integer_value(json_array_get(json_array_get(ids, t), k)));
        }
    }
}

static void check_logit(float logit, double right)
{
    if (!(fabs(logit - right) <= 2e-3))
        fail_msg("logit %.6f, expected %.6f", (double)logit, right);
}

static void check_logits(const struct model *model, const char *dir, const json_t *line)
{
    const float *logits = model_logits(model);
    const json_t *all = json_object_get(line, "logits");
    const json_t *top_ids = json_object_get(line, "top20_ids");
    const json_t *top = json_object_get(line, "top20_logits");
    const char *full = json_string_value(json_object_get(line, "full_logits"));

    assert_true(all || top);
    for (size_t i = 0; i < json_array_size(all); i++)
        check_logit(logits[i], json_number_value(json_array_get(all, i)));
    for (size_t i = 0; i < json_array_size(top); i++)
        check_logit(logits[json_integer_value(json_array_get(top_ids, i))],
                    json_number_value(json_array_get(top, i)));
    if (full) {
        char path[512];
        float right;
        FILE *file;

        snprintf(path, sizeof path, "%s/%s", dir, full);
        file = fopen(path, "rb");
        assert_non_null(file);
        for (uint32_t i = 0; i < model_config(model)->vocab_size; i++) {
            assert_int_equal(fread(&right, sizeof right, 1, file), 1);
            check_logit(logits[i], right);
        }
        fclose(file);
    }
}

static void check_line(struct model *model, const char *dir, const json_t *line)
{
    const json_t *ids = json_object_get(line, "input_ids");
    const json_t *greedy = json_object_get(line, "greedy_ids");
    const uint32_t n_prompt = (uint32_t)json_array_size(ids);
    static struct runner runner;

    memset(&runner, 0, sizeof runner);
    runner.model = model;
    for (uint32_t i = 0; i < TOKENS_MAX; i++)
        runner.positions[i] = i;
    for (uint32_t i = 0; i < TOKENS_MAX / KV_PAGE_TOKENS; i++)
        runner.pages[i] = i;
    for (uint32_t i = 0; i < n_prompt; i++)
        runner.tokens[i] = (uint32_t)json_integer_value(json_array_get(ids, i));

    feed(&runner, n_prompt);
    check_experts(model, json_object_get(line, "experts"), n_prompt);
    check_logits(model, dir, line);
    assert_true(json_array_size(greedy) > 0);
    for (size_t i = 0; i < json_array_size(greedy); i++) {
        uint32_t id = largest(model_logits(model), model_config(model)->vocab_size);

        assert_int_equal(id, json_integer_value(json_array_get(greedy, i)));
        runner.tokens[runner.fed] = id;
        feed(&runner, 1);
    }
}

static void check_model(const char *model_dir, const char *golden_dir, size_t lines_expected)
{
    static char text[1 << 20];
    const struct model_options options = {.dir = model_dir,
                                          .backend = backend_name,
                                          .numerics = NUMERICS_F32,
                                          .threads = 2,
                                          .rows_max = TOKENS_MAX,
                                          .seqs_max = 1};
    struct model *model;
    struct err err;
    char path[512];
    size_t lines = 0;
    FILE *file;

    if (!model_open(&model, &options, &err) ||
        !model_cache_open(model, TOKENS_MAX / KV_PAGE_TOKENS, &err))
        fail_msg("%s", err.message);
    snprintf(path, sizeof path, "%s/golden.jsonl", golden_dir);
    file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(text, sizeof text, file)) {
        json_t *line = json_loads(text, 0, NULL);

        assert_non_null(line);
        check_line(model, golden_dir, line);
        json_decref(line);
        lines++;
    }
    fclose(file);
    model_close(model);
    assert_int_equal(lines, lines_expected);
}

static void test_demo(void **state)
{
    (void)state;
    check_model("ops/demo/model", "tests/golden/demo", 16);
}

static void test_yarn(void **state)
{
    (void)state;
    check_model("tests/golden/tiny/yarn", "tests/golden/tiny/yarn", 4);
}

static void test_plain_query(void **state)
{
    (void)state;
    check_model("tests/golden/tiny/plain-query", "tests/golden/tiny/plain-query", 4);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_demo),
        cmocka_unit_test(test_yarn),
        cmocka_unit_test(test_plain_query),
    };

    const struct backend *backend;
    struct err err;

    backend_name = argc > 1 ? argv[1] : "auto";
    if (!backend_find(backend_name, &backend, &err)) {
        print_message("skipped: %s\n", err.message);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
