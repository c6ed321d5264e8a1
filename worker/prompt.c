/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/prompt.h"

#include "common/check.h"
#include "worker/prompt_messages.h"
#include "worker/prompt_options.h"
#include "worker/prompt_parse.h"

#include <stdlib.h>
#include <string.h>

static const char *field_name(const struct prompt_parse *parse)
{
    return parse->source->endpoint == ENDPOINT_CHAT_COMPLETIONS ? "messages" : "prompt";
}

/* Copies the ids, if they leave room for an answer. */
static bool take_ids(struct prompt_parse *parse, struct prompt *prompt, const int32_t *ids,
                     size_t count)
{
    uint32_t max_context = parse->source->max_context;
    int32_t *copy;

    if (count == 0)
        return prompt_bad(parse, "invalid_value", field_name(parse), "%s is empty",
                          field_name(parse));
    if (count >= max_context)
        return prompt_bad(parse, "context_length_exceeded", field_name(parse),
                          "%s has %zu tokens; the context of %u tokens allows %u and one to answer",
                          field_name(parse), count, max_context, max_context - 1);
    copy = malloc(count * sizeof *copy);
    CHECK(copy != NULL);
    memcpy(copy, ids, count * sizeof *copy);
    prompt->ids = copy;
    prompt->count = (uint32_t)count;
    return true;
}

/* No token is longer than text_piece_size_max, so a larger text cannot fit. Tokenising 16 MB takes
 * seconds, in which the worker would answer nobody. */
static bool check_size(struct prompt_parse *parse, size_t size)
{
    size_t limit = parse->source->max_context * text_piece_size_max(parse->source->text);

    return size <= limit ||
           prompt_bad(parse, "context_length_exceeded", field_name(parse),
                      "%s has %zu bytes; the context of %u tokens holds at most %zu",
                      field_name(parse), size, parse->source->max_context, limit);
}

/* What text_encode() or text_chat() gave. */
static bool take_encoded(struct prompt_parse *parse, struct prompt *prompt, bool encoded,
                         struct text_ids *ids)
{
    bool ok = encoded && take_ids(parse, prompt, ids->ids, ids->count);

    if (!encoded)
        *parse->fault = (struct prompt_fault){"invalid_value", field_name(parse)};
    text_ids_free(ids);
    return ok;
}

static bool chat(struct prompt_parse *parse, struct prompt *prompt)
{
    const struct prompt_source *source = parse->source;
    struct text_ids ids = {0};
    json_t *messages = NULL;
    char *dumped = NULL;
    size_t size = 0;
    bool ok = false;

    if (prompt_messages(parse, &messages, &size) && check_size(parse, size)) {
        dumped = json_dumps(messages, JSON_COMPACT);
        CHECK(dumped != NULL);
        ok = take_encoded(
            parse, prompt,
            text_chat(source->text, dumped, strlen(dumped), source->now_s, &ids, parse->err), &ids);
    }
    free(dumped);
    json_decref(messages);
    return ok;
}

static bool array_ids(struct prompt_parse *parse, struct prompt *prompt, const json_t *list)
{
    size_t count = json_array_size(list);
    int32_t *ids = malloc(count * sizeof *ids);
    bool ok = true;

    CHECK(ids != NULL);
    for (size_t i = 0; i < count && ok; i++) {
        const json_t *item = json_array_get(list, i);
        json_int_t id = json_integer_value(item);

        if (!json_is_integer(item) || id < 0 || id >= parse->source->vocab_size)
            ok = prompt_bad(parse, "invalid_value", "prompt",
                            "prompt[%zu] is no token id; ids are whole numbers from 0 to %u", i,
                            parse->source->vocab_size - 1);
        ids[i] = (int32_t)id;
    }
    ok = ok && take_ids(parse, prompt, ids, count);
    free(ids);
    return ok;
}

static bool raw(struct prompt_parse *parse, struct prompt *prompt)
{
    const json_t *value = prompt_field(parse, "prompt");
    const json_t *first = json_array_get(value, 0);
    struct text_ids ids = {0};

    if (value == NULL)
        return prompt_bad(parse, "missing_required_parameter", "prompt", "prompt is missing");
    if (json_is_array(value) && json_array_size(value) > 1 && !json_is_integer(first))
        return prompt_bad(parse, "unsupported_value", "prompt",
                          "prompt has %zu elements; one request answers one prompt",
                          json_array_size(value));
    if (json_is_string(first) || json_is_array(first))
        value = first;
    if (json_is_array(value) && json_array_size(value) > 0)
        return array_ids(parse, prompt, value);
    if (!json_is_string(value) && !json_is_array(value))
        return prompt_bad(parse, "invalid_type", "prompt",
                          "prompt must be a string or an array of token ids");
    if (json_string_length(value) == 0)
        return take_ids(parse, prompt, NULL, 0);
    return check_size(parse, json_string_length(value)) &&
           take_encoded(parse, prompt,
                        text_encode(parse->source->text, json_string_value(value),
                                    json_string_length(value), &ids, parse->err),
                        &ids);
}

static bool parse_body(struct prompt_parse *parse, struct prompt *prompt)
{
    uint32_t rest;

    if (!prompt_options(parse, prompt))
        return false;
    if (!(parse->source->endpoint == ENDPOINT_CHAT_COMPLETIONS ? chat(parse, prompt)
                                                               : raw(parse, prompt)))
        return false;
    rest = parse->source->max_context - prompt->count;
    if (prompt->max_tokens == 0 || prompt->max_tokens > rest)
        prompt->max_tokens = rest;
    return true;
}

bool prompt_open(struct prompt **prompt, const struct prompt_source *source,
                 struct prompt_fault *fault, struct err *err)
{
    struct prompt_parse parse = {.source = source, .fault = fault, .err = err};
    struct prompt *made;
    json_error_t json_error;

    parse.body = json_loadb(source->body.data, source->body.size,
                            JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &json_error);
    if (!json_is_object(parse.body)) {
        json_decref(parse.body);
        return prompt_bad(&parse, "invalid_json", "", "the body is no JSON object: %s",
                          parse.body == NULL ? json_error.text : "it is an array");
    }
    made = calloc(1, sizeof *made);
    CHECK(made != NULL);
    made->body = parse.body;
    if (!parse_body(&parse, made)) {
        prompt_close(made);
        return false;
    }
    *prompt = made;
    return true;
}

void prompt_close(struct prompt *prompt)
{
    if (prompt == NULL)
        return;
    json_decref(prompt->body);
    free((void *)prompt->ids);
    free(prompt);
}
