/* SPDX-License-Identifier: Apache-2.0
 *
 * Request bodies: what is read, every refusal by name, the limits of the
 * context, and the token counts of all recorded demo requests.
 */
#include "worker/prompt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 1024, VOCAB = 2048 };

static int open_text(void **state)
{
    struct err err = {0};
    struct text *text;

    if (!text_open("ops/demo/model", &text, &err))
        return -1;
    *state = text;
    return 0;
}

static int close_text(void **state)
{
    text_close(*state);
    return 0;
}

static struct prompt_source source_of(const struct text *text, enum endpoint endpoint,
                                      const char *body)
{
    return (struct prompt_source){
        .text = text,
        .endpoint = endpoint,
        .body = {body, strlen(body)},
        .request_id = {{1, 2, 3}},
        .max_context = CONTEXT,
        .vocab_size = VOCAB,
    };
}

static struct prompt *open_body(const struct prompt_source *source)
{
    struct prompt *prompt = NULL;
    struct prompt_fault fault = {0};
    struct err err = {0};

    if (!prompt_open(&prompt, source, &fault, &err))
        fail_msg("%s", err.message);
    return prompt;
}

static struct prompt *open_raw(const struct text *text, const char *body)
{
    struct prompt_source source = source_of(text, ENDPOINT_COMPLETIONS, body);

    return open_body(&source);
}

static void the_recorded_requests_have_the_recorded_token_counts(void **state)
{
    FILE *requests = fopen("ops/demo/samples/bulk-2000.jsonl", "r");
    FILE *references = fopen("ops/demo/samples/bulk-2000.reference.jsonl", "r");
    char *line = NULL, *reference_line = NULL;
    size_t capacity = 0, reference_capacity = 0, count = 0;

    assert_non_null(requests);
    assert_non_null(references);
    while (getline(&line, &capacity, requests) > 0 &&
           getline(&reference_line, &reference_capacity, references) > 0) {
        json_t *request = json_loads(line, 0, NULL);
        json_t *reference = json_loads(reference_line, 0, NULL);
        char *body = json_dumps(json_object_get(request, "body"), 0);
        struct prompt_source source = source_of(*state, ENDPOINT_CHAT_COMPLETIONS, body);
        struct prompt *prompt = open_body(&source);

        assert_string_equal(json_string_value(json_object_get(request, "custom_id")),
                            json_string_value(json_object_get(reference, "custom_id")));
        assert_int_equal(prompt->count,
                         json_integer_value(json_object_get(reference, "prompt_tokens")));
        assert_true(prompt->sampling.temperature == 0.0f);
        prompt_close(prompt);
        free(body);
        json_decref(request);
        json_decref(reference);
        count++;
    }
    assert_int_equal(count, 2000);
    free(line);
    free(reference_line);
    fclose(requests);
    fclose(references);
}

static void all_settings_are_read(void **state)
{
    struct prompt *prompt = open_raw(
        *state, "{\"prompt\": [7, 8, 2047], \"max_tokens\": 5, \"temperature\": 0.5, \"top_p\": "
                "0.25, \"top_k\": 40, \"seed\": -1, \"stop\": [\"\\u0000a\", \"\xC3\xBC\"], "
                "\"ignore_eos\": true, \"n\": 1, \"stream\": false, \"presence_penalty\": 0.0, "
                "\"user\": \"u\", \"logit_bias\": {}, \"logprobs\": null}");

    assert_int_equal(prompt->count, 3);
    assert_int_equal(prompt->ids[2], 2047);
    assert_int_equal(prompt->max_tokens, 5);
    assert_true(prompt->sampling.temperature == 0.5f);
    assert_true(prompt->sampling.top_p == 0.25f);
    assert_int_equal(prompt->sampling.top_k, 40);
    assert_true(prompt->sampling.seed == UINT64_MAX);
    assert_int_equal(prompt->stops.count, 2);
    assert_int_equal(prompt->stops.items[0].size, 2);
    assert_memory_equal(prompt->stops.items[0].data, "\0a", 2);
    assert_memory_equal(prompt->stops.items[1].data, "\xC3\xBC", 2);
    assert_true(prompt->ignore_eos);
    prompt_close(prompt);
}

static void what_is_not_given_has_a_default(void **state)
{
    struct prompt *prompt =
        open_raw(*state, "{\"prompt\": [[7]], \"max_completion_tokens\": null}");

    assert_int_equal(prompt->count, 1);
    assert_int_equal(prompt->max_tokens, CONTEXT - 1);
    assert_true(prompt->sampling.temperature == 1.0f);
    assert_true(prompt->sampling.top_p == 1.0f);
    assert_int_equal(prompt->sampling.top_k, 0);
    assert_true(prompt->sampling.seed == sampler_seed((const uint8_t[16]){1, 2, 3}, 16));
    assert_int_equal(prompt->stops.count, 0);
    assert_false(prompt->ignore_eos);
    prompt_close(prompt);
}

static void forms_of_one_prompt_are_equal(void **state)
{
    struct prompt *string = open_raw(*state, "{\"prompt\": \"77\"}");
    struct prompt *list = open_raw(*state, "{\"prompt\": [\"77\"]}");
    struct prompt_source parts = source_of(
        *state, ENDPOINT_CHAT_COMPLETIONS,
        "{\"messages\": [{\"role\": \"developer\", \"content\": \"x\"}, {\"role\": \"user\", "
        "\"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": \"text\", \"text\": "
        "\"b\"}]}]}");
    struct prompt_source whole = source_of(
        *state, ENDPOINT_CHAT_COMPLETIONS,
        "{\"messages\": [{\"role\": \"system\", \"content\": \"x\"}, {\"role\": \"user\", "
        "\"content\": \"a\\nb\"}]}");
    struct prompt *a = open_body(&parts), *b = open_body(&whole);

    assert_int_equal(string->count, 2);
    assert_int_equal(list->count, 2);
    assert_memory_equal(string->ids, list->ids, 2 * sizeof *list->ids);
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->ids, b->ids, a->count * sizeof *a->ids);
    prompt_close(string);
    prompt_close(list);
    prompt_close(a);
    prompt_close(b);
}

static void assert_refused(const struct prompt_source *source, const char *code, const char *param,
                           const char *words)
{
    struct prompt *prompt = NULL;
    struct prompt_fault fault = {0};
    struct err err = {0};

    assert_false(prompt_open(&prompt, source, &fault, &err));
    assert_null(prompt);
    assert_int_equal(err.kind, ERR_REJECT);
    assert_string_equal(fault.code, code);
    assert_string_equal(fault.param, param);
    if (strstr(err.message, words) == NULL)
        fail_msg("\"%s\" is not in: %s", words, err.message);
}

static void bad_fields_are_named(void **state)
{
    static const struct {
        const char *field, *code, *words;
    } cases[] = {
        {"\"max_tokens\": 0", "invalid_value", "max_tokens is 0; it must be a whole number from 1"},
        {"\"max_tokens\": -1", "invalid_value", "max_tokens is -1"},
        {"\"max_tokens\": 1.5", "invalid_value", "max_tokens is 1.5"},
        {"\"max_completion_tokens\": \"5\"", "invalid_value", "max_completion_tokens is \"5\""},
        {"\"n\": 0", "unsupported_value", "n is 0; only 1 is supported"},
        {"\"n\": 2", "unsupported_value", "n is 2"},
        {"\"stream\": true", "unsupported_value", "stream is true; only false is supported"},
        {"\"temperature\": 2.1", "invalid_value", "temperature is 2.1"},
        {"\"temperature\": -0.1", "invalid_value", "a number from 0 to 2"},
        {"\"top_p\": 1.01", "invalid_value", "a number from 0 to 1"},
        {"\"top_k\": -2", "invalid_value", "top_k is -2"},
        {"\"seed\": 1.0", "invalid_value", "seed is 1.0"},
        {"\"stop\": \"\"", "invalid_value", "1 to 256 bytes; string 1"},
        {"\"stop\": [\"a\", 5]", "invalid_value", "string 2"},
        {"\"stop\": [\"a\", \"b\", \"c\", \"d\", \"e\"]", "invalid_value",
         "5 strings; the limit is 4"},
        {"\"ignore_eos\": 1", "invalid_type", "true or false"},
        {"\"logprobs\": 0", "unsupported_value", "logprobs is 0"},
        {"\"presence_penalty\": 0.5", "unsupported_value", "presence_penalty is 0.5"},
        {"\"logit_bias\": {\"5\": 1}", "unsupported_value", "logit_bias is {\"5\":1}"},
        {"\"tools\": [{\"type\": \"function\"}]", "unsupported_value", "tools is"},
        {"\"response_format\": {\"type\": \"json_object\"}", "unsupported_value",
         "response_format"},
        {"\"guided_json\": {}", "unsupported_parameter", "guided_json is not supported"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[256], param[32];
        struct prompt_source source;

        snprintf(body, sizeof body, "{\"prompt\": \"x\", %s}", cases[i].field);
        source = source_of(*state, ENDPOINT_COMPLETIONS, body);
        snprintf(param, sizeof param, "%.*s", (int)strcspn(cases[i].field + 1, "\""),
                 cases[i].field + 1);
        assert_refused(&source, cases[i].code, param, cases[i].words);
    }
}

static void bad_prompts_are_one_error(void **state)
{
    static const struct {
        const char *body, *code, *param, *words;
    } cases[] = {
        {"{\"prompt\": \"\"}", "invalid_value", "prompt", "prompt is empty"},
        {"{\"prompt\": [\"\"]}", "invalid_value", "prompt", "prompt is empty"},
        {"{\"prompt\": []}", "invalid_value", "prompt", "prompt is empty"},
        {"{\"prompt\": [\"a\", \"b\"]}", "unsupported_value", "prompt", "2 elements"},
        {"{\"prompt\": [1, 2048]}", "invalid_value", "prompt", "prompt[1] is no token id"},
        {"{\"prompt\": [1, \"a\"]}", "invalid_value", "prompt", "prompt[1] is no token id"},
        {"{\"prompt\": 5}", "invalid_type", "prompt", "a string or an array"},
        {"{}", "missing_required_parameter", "prompt", "prompt is missing"},
        {"[]", "invalid_json", "", "no JSON object"},
        {"{\"prompt\": \"a\", \"prompt\": \"b\"}", "invalid_json", "", "duplicate"},
        {"{\"prompt\": \"a\xFF\"}", "invalid_json", "", "no JSON object"},
        {"", "invalid_json", "", "no JSON object"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct prompt_source source = source_of(*state, ENDPOINT_COMPLETIONS, cases[i].body);

        assert_refused(&source, cases[i].code, cases[i].param, cases[i].words);
    }
}

static void bad_messages_are_named_by_index(void **state)
{
    static const struct {
        const char *messages, *code, *words;
    } cases[] = {
        {"null", "missing_required_parameter", "at least one message"},
        {"[]", "invalid_value", "at least one message"},
        {"[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"bot\", \"content\": \"a\"}]",
         "invalid_value", "messages[1].role"},
        {"[5]", "invalid_value", "messages[0].role"},
        {"[{\"role\": \"user\"}]", "invalid_type", "messages[0].content"},
        {"[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]", "unsupported_value",
         "messages[0].content[0] is no text part"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[256];
        struct prompt_source source;

        snprintf(body, sizeof body, "{\"messages\": %s}", cases[i].messages);
        source = source_of(*state, ENDPOINT_CHAT_COMPLETIONS, body);
        assert_refused(&source, cases[i].code, "messages", cases[i].words);
    }
}

static void a_prompt_leaves_room_for_one_id(void **state)
{
    struct prompt_source source =
        source_of(*state, ENDPOINT_COMPLETIONS, "{\"prompt\": [7, 7, 7, 7], \"max_tokens\": 9}");
    struct prompt_source text =
        source_of(*state, ENDPOINT_COMPLETIONS, "{\"prompt\": \"7777\", \"max_tokens\": 9}");
    struct prompt *prompt;

    source.max_context = text.max_context = 4;
    assert_refused(&source, "context_length_exceeded", "prompt",
                   "prompt has 4 tokens; the context of 4 tokens allows 3");
    assert_refused(&text, "context_length_exceeded", "prompt", "prompt has 4 tokens");
    source.max_context = 5;
    prompt = open_body(&source);
    assert_int_equal(prompt->max_tokens, 1); /* cut to the rest of the context */
    prompt_close(prompt);
}

static void a_huge_prompt_is_refused_unread(void **state)
{
    size_t size = 4 << 20;
    char *body = malloc(size + 1);
    struct prompt_source source;

    memset(body, 'a', size);
    body[size] = '\0';
    memcpy(body, "{\"prompt\": \"", 12);
    memcpy(body + size - 2, "\"}", 2);
    source = source_of(*state, ENDPOINT_COMPLETIONS, body);
    assert_refused(&source, "context_length_exceeded", "prompt", "4194290 bytes");
    free(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_recorded_requests_have_the_recorded_token_counts),
        cmocka_unit_test(all_settings_are_read),
        cmocka_unit_test(what_is_not_given_has_a_default),
        cmocka_unit_test(forms_of_one_prompt_are_equal),
        cmocka_unit_test(bad_fields_are_named),
        cmocka_unit_test(bad_prompts_are_one_error),
        cmocka_unit_test(bad_messages_are_named_by_index),
        cmocka_unit_test(a_prompt_leaves_room_for_one_id),
        cmocka_unit_test(a_huge_prompt_is_refused_unread),
    };

    return cmocka_run_group_tests(tests, open_text, close_text);
}
