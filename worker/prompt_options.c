/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/prompt_options.h"

#include <limits.h>
#include <string.h>

/* Fields that would change the answer, and the values that do not. Floats as jansson writes them.
 */
static const struct neutral {
    const char *name;
    const char *values[3]; /* compact JSON; null is always neutral */
} neutral_fields[] = {
    {"n", {"1"}},
    {"best_of", {"1"}},
    {"stream", {"false"}},
    {"echo", {"false"}},
    {"suffix", {"\"\""}},
    {"logprobs", {"false"}},
    {"top_logprobs", {"0"}},
    {"prompt_logprobs", {NULL}},
    {"logit_bias", {"{}"}},
    {"presence_penalty", {"0", "0.0"}},
    {"frequency_penalty", {"0", "0.0"}},
    {"repetition_penalty", {"1", "1.0"}},
    {"length_penalty", {"1", "1.0"}},
    {"min_p", {"0", "0.0"}},
    {"typical_p", {"1", "1.0"}},
    {"min_tokens", {"0"}},
    {"stop_token_ids", {"[]"}},
    {"bad_words", {"[]"}},
    {"use_beam_search", {"false"}},
    {"tools", {"[]"}},
    {"tool_choice", {"\"none\"", "\"auto\""}},
    {"functions", {"[]"}},
    {"function_call", {"\"none\"", "\"auto\""}},
    {"response_format", {"{\"type\":\"text\"}"}},
    {"structured_outputs", {"{}"}},
    {"guided_json", {NULL}},
    {"guided_regex", {NULL}},
    {"guided_choice", {NULL}},
    {"guided_grammar", {NULL}},
    {"modalities", {"[\"text\"]"}},
    {"audio", {NULL}},
    {"prediction", {NULL}},
    {"reasoning_effort", {NULL}},
    {"verbosity", {"\"medium\""}},
    {"web_search_options", {NULL}},
    {"chat_template", {NULL}},
    {"chat_template_kwargs", {"{}"}},
    {"documents", {"[]"}},
    {"add_generation_prompt", {"true"}},
    {"continue_final_message", {"false"}},
    {"include_stop_str_in_output", {"false"}},
    {"skip_special_tokens", {"true"}},
    {"truncate_prompt_tokens", {NULL}},
    {"prompt_embeds", {NULL}},
};

static bool check_neutral(struct prompt_parse *parse, const struct neutral *field)
{
    const json_t *value = prompt_field(parse, field->name);
    char shown[PROMPT_SHOWN_SIZE];

    if (value == NULL)
        return true;
    prompt_show(value, shown);
    for (size_t i = 0; i < 3 && field->values[i] != NULL; i++) {
        if (strcmp(shown, field->values[i]) == 0)
            return true;
    }
    if (field->values[0] == NULL)
        return prompt_bad(parse, "unsupported_parameter", field->name, "%s is not supported",
                          field->name);
    return prompt_bad(parse, "unsupported_value", field->name, "%s is %s; only %s is supported",
                      field->name, shown, field->values[0]);
}

static bool read_real(struct prompt_parse *parse, const char *name, double max, float *out)
{
    const json_t *value = prompt_field(parse, name);
    char shown[PROMPT_SHOWN_SIZE];

    if (value == NULL)
        return true;
    if (!json_is_number(value) || !(json_number_value(value) >= 0.0) ||
        json_number_value(value) > max)
        return prompt_bad(parse, "invalid_value", name,
                          "%s is %s; it must be a number from 0 to %g", name,
                          prompt_show(value, shown), max);
    *out = (float)json_number_value(value);
    return true;
}

static bool read_whole(struct prompt_parse *parse, const char *name, json_int_t min, json_int_t max,
                       json_int_t *out)
{
    const json_t *value = prompt_field(parse, name);
    char shown[PROMPT_SHOWN_SIZE];

    if (value == NULL)
        return true;
    if (!json_is_integer(value) || json_integer_value(value) < min ||
        json_integer_value(value) > max)
        return prompt_bad(parse, "invalid_value", name,
                          "%s is %s; it must be a whole number from %" JSON_INTEGER_FORMAT
                          " to %" JSON_INTEGER_FORMAT,
                          name, prompt_show(value, shown), min, max);
    *out = json_integer_value(value);
    return true;
}

static bool read_max_tokens(struct prompt_parse *parse, uint32_t *max_tokens)
{
    json_int_t older = 0, newer = 0;

    if (!read_whole(parse, "max_tokens", 1, INT32_MAX, &older) ||
        !read_whole(parse, "max_completion_tokens", 1, INT32_MAX, &newer))
        return false;
    if (older > 0 && newer > 0 && older != newer)
        return prompt_bad(parse, "invalid_value", "max_tokens",
                          "max_tokens and max_completion_tokens differ; give one of them");
    *max_tokens = (uint32_t)(older > 0 ? older : newer);
    return true;
}

static bool add_stop(struct prompt_parse *parse, const json_t *value, struct stop_strings *stops)
{
    size_t size = json_string_length(value);

    if (!json_is_string(value) || size == 0 || size > STOP_STRINGS_SIZE_MAX)
        return prompt_bad(parse, "invalid_value", "stop",
                          "stop must hold strings of 1 to %d bytes; string %zu does not",
                          STOP_STRINGS_SIZE_MAX, stops->count + 1);
    stops->items[stops->count++] = (struct str){json_string_value(value), size};
    return true;
}

static bool read_stops(struct prompt_parse *parse, struct stop_strings *stops)
{
    const json_t *value = prompt_field(parse, "stop");

    if (value == NULL)
        return true;
    if (!json_is_array(value))
        return add_stop(parse, value, stops);
    if (json_array_size(value) > STOP_STRINGS_MAX)
        return prompt_bad(parse, "invalid_value", "stop", "stop has %zu strings; the limit is %d",
                          json_array_size(value), STOP_STRINGS_MAX);
    for (size_t i = 0; i < json_array_size(value); i++) {
        if (!add_stop(parse, json_array_get(value, i), stops))
            return false;
    }
    return true;
}

bool prompt_options(struct prompt_parse *parse, struct prompt *prompt)
{
    const json_t *ignore_eos = prompt_field(parse, "ignore_eos");
    struct sampling *sampling = &prompt->sampling;
    json_int_t top_k = 0, seed;

    for (size_t i = 0; i < sizeof neutral_fields / sizeof *neutral_fields; i++) {
        if (!check_neutral(parse, &neutral_fields[i]))
            return false;
    }
    *sampling = (struct sampling){.temperature = 1.0f, .top_p = 1.0f};
    sampling->seed =
        sampler_seed(parse->source->request_id.bytes, sizeof parse->source->request_id.bytes);
    seed = (json_int_t)sampling->seed;
    if (!read_max_tokens(parse, &prompt->max_tokens) ||
        !read_real(parse, "temperature", 2.0, &sampling->temperature) ||
        !read_real(parse, "top_p", 1.0, &sampling->top_p) ||
        !read_whole(parse, "top_k", -1, INT32_MAX, &top_k) ||
        !read_whole(parse, "seed", LLONG_MIN, LLONG_MAX, &seed) ||
        !read_stops(parse, &prompt->stops))
        return false;
    if (ignore_eos != NULL && !json_is_boolean(ignore_eos))
        return prompt_bad(parse, "invalid_type", "ignore_eos", "ignore_eos must be true or false");
    sampling->top_k = top_k > 0 ? (uint32_t)top_k : 0;
    sampling->seed = (uint64_t)seed;
    prompt->ignore_eos = json_is_true(ignore_eos);
    return true;
}
