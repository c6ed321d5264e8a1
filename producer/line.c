/* SPDX-License-Identifier: Apache-2.0 */
#include "producer/line.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/check.h"
#include "common/utf8.h"
#include "schemas/codec.h"

bool line_error_set(struct line_error *error, const char *code, const char *param,
                    const char *format, ...)
{
    va_list args;

    snprintf(error->code, sizeof error->code, "%s", code);
    snprintf(error->param, sizeof error->param, "%s", param);
    va_start(args, format);
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    /* What is quoted may have been cut inside a character. */
    for (size_t size = strlen(error->message), at = 0;; error->message[at] = '?') {
        at += utf8_valid_size(error->message + at, size - at);
        if (at == size)
            return false;
    }
}

bool line_is_blank(const struct raw_line *raw)
{
    for (size_t i = 0; !raw->too_long && i < raw->size; i++)
        if (raw->data[i] != ' ' && raw->data[i] != '\t')
            return false;
    return !raw->too_long;
}

static const char *type_name(const json_t *value)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array", [JSON_STRING] = "a string",
        [JSON_INTEGER] = "a number", [JSON_REAL] = "a number",  [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",      [JSON_NULL] = "null"};

    return names[json_typeof(value)];
}

/* ---- the body's own text ----
 * jansson has accepted the line, so brackets match and strings end. */

static const char *skip_blanks(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

/* at: the opening quote. Returns what is behind the closing one. */
static const char *skip_string(const char *at)
{
    for (at++; *at != '"'; at++)
        if (*at == '\\')
            at++;
    return at + 1;
}

static const char *skip_value(const char *at)
{
    size_t depth = 0;

    do {
        if (*at == '"') {
            at = skip_string(at);
        } else if (*at == '{' || *at == '[') {
            depth++;
            at++;
        } else if (*at == '}' || *at == ']') {
            depth--;
            at++;
        } else if (depth > 0) {
            at++;
        } else {
            at += strcspn(at, ",}] \t\r\n");
        }
    } while (depth > 0);
    return at;
}

/* Text of the member with this index. jansson keeps members in the order of the text. */
static struct str member_text(const char *object, size_t index)
{
    const char *at = skip_blanks(object) + 1;

    for (;;) {
        const char *value;
        at = skip_blanks(skip_string(skip_blanks(at)));
        value = skip_blanks(at + 1); /* behind the colon */
        at = skip_value(value);
        if (index-- == 0)
            return (struct str){value, (size_t)(at - value)};
        at = skip_blanks(at) + 1; /* behind the comma */
    }
}

static size_t member_index(json_t *object, const char *name)
{
    size_t index = 0;

    for (void *i = json_object_iter(object); strcmp(json_object_iter_key(i), name) != 0;
         i = json_object_iter_next(object, i))
        index++;
    return index;
}

/* ---- the rules ---- */

static bool check_custom_id(struct line *line, struct line_error *error)
{
    const json_t *value = json_object_get(line->root, "custom_id");

    if (!value)
        return line_error_set(error, "missing_required_parameter", "custom_id",
                              "custom_id is missing");
    if (!json_is_string(value))
        return line_error_set(error, "invalid_value", "custom_id",
                              "custom_id is %s: it must be a string", type_name(value));
    line->custom_id = (struct str){json_string_value(value), json_string_length(value)};
    if (line->custom_id.size == 0)
        return line_error_set(error, "invalid_value", "custom_id", "custom_id is empty");
    if (line->custom_id.size > CUSTOM_ID_SIZE_MAX)
        return line_error_set(error, "invalid_value", "custom_id",
                              "custom_id has %zu bytes: the limit is %d", line->custom_id.size,
                              CUSTOM_ID_SIZE_MAX);
    memcpy(error->custom_id, line->custom_id.data, line->custom_id.size);
    error->custom_id[line->custom_id.size] = '\0';
    return true;
}

/* A string member with one of two values. */
static bool check_words(const json_t *root, const char *name, const char *const words[2],
                        size_t *which, struct line_error *error)
{
    const json_t *value = json_object_get(root, name);

    if (!value)
        return line_error_set(error, "missing_required_parameter", name, "%s is missing", name);
    if (!json_is_string(value))
        return line_error_set(error, "invalid_value", name, "%s is %s: it must be a string", name,
                              type_name(value));
    for (*which = 0; *which < 2 && words[*which]; ++*which)
        if (strcmp(json_string_value(value), words[*which]) == 0)
            return true;
    return line_error_set(error, strcmp(name, "url") == 0 ? "invalid_url" : "invalid_value", name,
                          "%s is \"%.60s\": it must be %s%s%s", name, json_string_value(value),
                          words[0], words[1] ? " or " : "", words[1] ? words[1] : "");
}

static bool check_body(struct line *line, struct line_error *error)
{
    const json_t *body = json_object_get(line->root, "body");
    const bool is_chat = line->endpoint == ENDPOINT_CHAT_COMPLETIONS;
    const char *input_name = is_chat ? "messages" : "prompt";
    const json_t *model, *input, *stream;

    if (!json_is_object(body))
        return line_error_set(error, body ? "invalid_value" : "missing_required_parameter", "body",
                              "body is %s", body ? type_name(body) : "missing");
    model = json_object_get(body, "model");
    if (!json_is_string(model))
        return line_error_set(error, model ? "invalid_value" : "missing_required_parameter",
                              "model", "body.model is %s", model ? type_name(model) : "missing");
    line->model = (struct str){json_string_value(model), json_string_length(model)};
    if (line->model.size > MODEL_ID_SIZE_MAX)
        return line_error_set(error, "invalid_value", "model",
                              "body.model has %zu bytes: the limit is %d", line->model.size,
                              MODEL_ID_SIZE_MAX);
    input = json_object_get(body, input_name);
    if (!input)
        return line_error_set(error, "missing_required_parameter", input_name, "body.%s is missing",
                              input_name);
    if (is_chat && !(json_is_array(input) && json_array_size(input) > 0))
        return line_error_set(error, "invalid_value", input_name,
                              "body.messages must be an array with at least one message");
    if (!is_chat && !json_is_string(input) && !json_is_array(input))
        return line_error_set(error, "invalid_value", input_name, "body.prompt is %s",
                              type_name(input));
    stream = json_object_get(body, "stream");
    if (stream && !json_is_false(stream) && !json_is_null(stream))
        return line_error_set(error, "invalid_value", "stream",
                              "body.stream is %s: a batch answers whole (see `pelton tail`)",
                              type_name(stream));
    return true;
}

static bool check_members(const struct raw_line *raw, struct line *line, struct line_error *error)
{
    static const char *const methods[2] = {"POST", NULL};
    static const char *const urls[2] = {"/v1/chat/completions", "/v1/completions"};
    size_t which;

    if (!json_is_object(line->root))
        return line_error_set(error, "invalid_json_line", "",
                              "the line is %s: it must be an object", type_name(line->root));
    if (!check_custom_id(line, error) ||
        !check_words(line->root, "method", methods, &which, error) ||
        !check_words(line->root, "url", urls, &which, error))
        return false;
    line->endpoint = which == 0 ? ENDPOINT_CHAT_COMPLETIONS : ENDPOINT_COMPLETIONS;
    if (!check_body(line, error))
        return false;
    line->body = member_text(raw->data, member_index(line->root, "body"));
    return true;
}

/* Behind the string that begins here, or the line's end. */
static const char *string_end(const char *at, const char *end)
{
    for (at++; at < end && *at != '"'; at++)
        if (*at == '\\')
            at++;
    return at < end ? at + 1 : end;
}

/* The custom_id of a line that is refused for something else. jansson gives nothing of a line with
 * a repeated key or 1e999 in it, so the member is looked for in the text. */
static void recover_custom_id(const struct raw_line *raw, struct line_error *error)
{
    static const char name[] = "\"custom_id\"";
    const char *at = raw->data, *end = raw->data + raw->size;
    size_t depth = 0;

    while (at < end) {
        const char *next = *at == '"' ? string_end(at, end) : at + 1;
        bool is_name = depth == 1 && (size_t)(next - at) == sizeof name - 1 &&
                       memcmp(at, name, sizeof name - 1) == 0;
        if (is_name) {
            /* A colon and blanks, within the line. */
            while (next < end && strchr(" \t:", *next))
                next++;
        }
        if (is_name && next < end && *next == '"') {
            const char *behind = string_end(next, end);
            json_t *value = json_loadb(next, (size_t)(behind - next), JSON_DECODE_ANY, NULL);
            if (json_string_length(value) <= CUSTOM_ID_SIZE_MAX && json_is_string(value))
                snprintf(error->custom_id, sizeof error->custom_id, "%s", json_string_value(value));
            json_decref(value);
            return;
        }
        depth += *at == '{' || *at == '[';
        depth -= depth > 0 && (*at == '}' || *at == ']');
        at = next;
    }
}

static bool refuse_json(const struct raw_line *raw, const json_error_t *why,
                        struct line_error *error)
{
    switch (json_error_code(why)) {
    case json_error_null_character:
    case json_error_null_byte_in_key:
        recover_custom_id(raw, error);
        return line_error_set(error, "invalid_json_line", "",
                              "byte %d of the line: a text holds the character NUL (\\u0000)",
                              why->position);
    case json_error_duplicate_key:
        recover_custom_id(raw, error);
        return line_error_set(error, "invalid_json_line", "", "not JSON: %.150s (byte %d)",
                              why->text, why->position);
    case json_error_numeric_overflow:
        recover_custom_id(raw, error);
        return line_error_set(error, "invalid_json_line", "",
                              "byte %d of the line: a number is out of range", why->position);
    default:
        return line_error_set(error, "invalid_json_line", "", "not JSON: %.150s (byte %d)",
                              why->text, why->position);
    }
}

bool line_check(const struct raw_line *raw, struct line *line, struct line_error *error)
{
    json_error_t json_error;
    size_t valid;

    *line = (struct line){.root = NULL};
    *error = (struct line_error){.code = ""};
    if (raw->too_long)
        return line_error_set(error, "request_too_large", "",
                              "the line has %zu bytes: the limit is %d", raw->size,
                              CODEC_REQUEST_SIZE_MAX);
    valid = utf8_valid_size(raw->data, raw->size);
    if (valid < raw->size)
        return line_error_set(error, "invalid_json_line", "", "byte %zu of the line is not UTF-8",
                              valid + 1);
    line->root =
        json_loadb(raw->data, raw->size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &json_error);
    if (!line->root)
        return refuse_json(raw, &json_error, error);
    if (check_members(raw, line, error))
        return true;
    line_free(line);
    return false;
}

bool line_check_unique(struct idmap *line_of, const struct request_id *id, uint64_t number,
                       struct line_error *error)
{
    bool is_new;
    union idmap_value *line = idmap_put(line_of, id->bytes, &is_new);

    if (is_new) {
        line->number = number;
        return true;
    }
    return line_error_set(error, "duplicate_custom_id", "custom_id",
                          "custom_id \"%.100s\" is on line %llu already", error->custom_id,
                          (unsigned long long)line->number);
}

void line_free(struct line *line)
{
    json_decref(line->root);
    *line = (struct line){.root = NULL};
}
