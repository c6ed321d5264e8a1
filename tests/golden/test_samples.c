/* SPDX-License-Identifier: Apache-2.0
 *
 * The demo model's sample requests, from request bodies to answer texts, 64 at
 * a time: in mode f32 all 24 and all 2,000 answers are those that the
 * reference implementation gives, token counts included; in mode bf16 at most
 * half a point fewer are right.
 */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "worker/answer.h"
#include "worker/engine.h"
#include "worker/prompt.h"

enum { TOGETHER = 64, LINE_SIZE_MAX = 1 << 16 };

struct runner {
    struct engine *engine;
    struct text *text;
    struct engine_info info;
    FILE *requests;
    FILE *expected;  /* reference or answers, line by line as requests */
    const char *key; /* of the expected text */
    struct prompt *prompts[TOGETHER];
    struct answer *answers[TOGETHER];
    json_t *right[TOGETHER];
    size_t asked;
    size_t equal;
};

static FILE *open_sample(const char *name)
{
    char path[256];
    FILE *file;

    snprintf(path, sizeof path, "ops/demo/samples/%s", name);
    file = fopen(path, "r");
    assert_non_null(file);
    return file;
}

static json_t *read_line(FILE *file)
{
    static char line[LINE_SIZE_MAX];
    json_t *value;

    if (!fgets(line, sizeof line, file))
        return NULL;
    value = json_loads(line, 0, NULL);
    assert_non_null(value);
    return value;
}

/* Asks the next request in a free place; false at the end of the file. */
static bool ask(struct runner *runner, uint32_t place)
{
    json_t *line = read_line(runner->requests);
    char *body;
    struct prompt_source source = {.text = runner->text,
                                   .endpoint = ENDPOINT_CHAT_COMPLETIONS,
                                   .max_context = runner->info.max_context,
                                   .vocab_size = runner->info.vocab_size};
    struct prompt_fault fault;
    struct err err;

    if (!line)
        return false;
    runner->right[place] = read_line(runner->expected);
    assert_string_equal(json_string_value(json_object_get(line, "custom_id")),
                        json_string_value(json_object_get(runner->right[place], "custom_id")));
    body = json_dumps(json_object_get(line, "body"), 0);
    source.body = (struct str){.data = body, .size = strlen(body)};
    if (!prompt_open(&runner->prompts[place], &source, &fault, &err))
        fail_msg("%s", err.message);
    free(body);
    json_decref(line);
    runner->answers[place] = answer_open(runner->text, &runner->prompts[place]->stops);

    const struct engine_request request = {.tag = place,
                                           .prompt = runner->prompts[place]->ids,
                                           .prompt_count = runner->prompts[place]->count,
                                           .max_tokens = runner->prompts[place]->max_tokens,
                                           .sampling = runner->prompts[place]->sampling};
    if (!engine_submit(runner->engine, &request, &err))
        fail_msg("%s", err.message);
    runner->asked++;
    return true;
}

static void compare(struct runner *runner, uint32_t place)
{
    const json_t *right = runner->right[place];
    const json_t *prompt_tokens = json_object_get(right, "prompt_tokens");
    const json_t *output_tokens = json_object_get(right, "completion_tokens");
    const char *text = json_string_value(json_object_get(right, runner->key));
    struct answer_view view;
    struct engine_usage usage;

    assert_non_null(text);
    assert_true(engine_remove(runner->engine, place, &usage));
    answer_finish(runner->answers[place]);
    view = answer_view(runner->answers[place]);
    if (view.size == strlen(text) && memcmp(view.text, text, view.size) == 0 &&
        (!prompt_tokens || json_integer_value(prompt_tokens) == usage.prompt_tokens) &&
        (!output_tokens || json_integer_value(output_tokens) == usage.output_tokens))
        runner->equal++;
    answer_close(runner->answers[place]);
    prompt_close(runner->prompts[place]);
    json_decref(runner->right[place]);
}

/* Requests of one file whose answer is that of the other; asked says how many there were. */
static size_t count_equal(const char *requests, const char *expected, const char *key,
                          enum engine_numerics numerics, size_t *asked)
{
    static struct runner runner;
    struct engine_token tokens[TOGETHER];
    const struct engine_config config = {.model_dir = "ops/demo/model",
                                         .backend = "auto",
                                         .numerics = numerics,
                                         .threads = 2,
                                         .max_seqs = TOGETHER};
    struct err err;
    size_t count;

    runner = (struct runner){
        .requests = open_sample(requests), .expected = open_sample(expected), .key = key};
    if (!engine_open(&runner.engine, &config, &err) ||
        !text_open("ops/demo/model", &runner.text, &err))
        fail_msg("%s", err.message);
    engine_info(runner.engine, &runner.info);
    for (uint32_t place = 0; place < TOGETHER; place++)
        ask(&runner, place);
    while (engine_has_work(runner.engine)) {
        if (!engine_step(runner.engine, tokens, &count, &err))
            fail_msg("%s", err.message);
        for (size_t i = 0; i < count; i++) {
            const uint32_t place = (uint32_t)tokens[i].tag;

            answer_push(runner.answers[place], tokens[i].id, tokens[i].finish == ENGINE_EOS);
            if (tokens[i].finish != ENGINE_RUNNING) {
                compare(&runner, place);
                ask(&runner, place);
            }
        }
    }
    text_close(runner.text);
    engine_close(runner.engine);
    fclose(runner.expected);
    fclose(runner.requests);
    *asked = runner.asked;
    return runner.equal;
}

static void test_demo_f32(void **state)
{
    size_t asked;

    (void)state;
    assert_int_equal(count_equal("demo.jsonl", "demo.reference.jsonl", "text", ENGINE_F32, &asked),
                     24);
    assert_int_equal(asked, 24);
}

static void test_bulk_f32(void **state)
{
    size_t asked;

    (void)state;
    assert_int_equal(
        count_equal("bulk-2000.jsonl", "bulk-2000.reference.jsonl", "text", ENGINE_F32, &asked),
        2000);
    assert_int_equal(asked, 2000);
}

static void test_bulk_bf16(void **state)
{
    size_t asked;
    size_t right =
        count_equal("bulk-2000.jsonl", "bulk-2000.answers.jsonl", "answer", ENGINE_BF16, &asked);

    (void)state;
    print_message("bf16: %zu of %zu right\n", right, asked);
    assert_int_equal(asked, 2000);
    assert_true(right >= 1983 - 10); /* f32 has 1,983; half a point is 10 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_demo_f32),
        cmocka_unit_test(test_bulk_f32),
        cmocka_unit_test(test_bulk_bf16),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
