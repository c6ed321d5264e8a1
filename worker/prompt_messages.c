/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/prompt_messages.h"

#include "common/check.h"

#include <stdlib.h>
#include <string.h>

/* The role as templates know it; NULL for a role that is none. */
static const char *known_role(const char *role)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool"};

    if (strcmp(role, "developer") == 0) /* OpenAI's newer name; templates do not have it */
        return "system";
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (strcmp(role, roles[i]) == 0)
            return roles[i];
    }
    return NULL;
}

/* Join text parts into out, a growing JSON string. */
static bool join_parts(struct prompt_parse *parse, size_t index, const json_t *parts, json_t **out)
{
    char *joined;
    size_t size = 0;

    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        const char *type = json_string_value(json_object_get(part, "type"));

        if (type == NULL || strcmp(type, "text") != 0 ||
            !json_is_string(json_object_get(part, "text")))
            return prompt_bad(parse, "unsupported_value", "messages",
                              "messages[%zu].content[%zu] is no text part; only "
                              "{\"type\": \"text\", \"text\": ...} is supported",
                              index, i);
        size += json_string_length(json_object_get(part, "text")) + 1;
    }
    joined = malloc(size + 1);
    CHECK(joined != NULL);
    size = 0;
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_object_get(json_array_get(parts, i), "text");

        if (i > 0)
            joined[size++] = '\n';
        memcpy(joined + size, json_string_value(part), json_string_length(part));
        size += json_string_length(part);
    }
    *out = json_stringn_nocheck(joined, size);
    free(joined);
    CHECK(*out != NULL);
    return true;
}

static bool content(struct prompt_parse *parse, size_t index, const json_t *message, json_t **out)
{
    json_t *value = json_object_get(message, "content");
    bool calls = json_is_array(json_object_get(message, "tool_calls"));

    if (json_is_string(value)) {
        *out = json_incref(value);
        return true;
    }
    if (json_is_array(value) && json_array_size(value) > 0)
        return join_parts(parse, index, value, out);
    if (calls && (value == NULL || json_is_null(value))) {
        *out = json_null();
        return true;
    }
    return prompt_bad(parse, "invalid_type", "messages",
                      "messages[%zu].content must be a string or an array of text parts", index);
}

static bool append(struct prompt_parse *parse, size_t index, const json_t *message, json_t *out,
                   size_t *size)
{
    static const char *const passed[] = {"name", "tool_call_id"};
    const char *given = json_string_value(json_object_get(message, "role"));
    const char *role = given == NULL ? NULL : known_role(given);
    json_t *text = NULL;
    json_t *copy;

    if (role == NULL)
        return prompt_bad(parse, "invalid_value", "messages",
                          "messages[%zu].role must be system, developer, user, assistant or tool",
                          index);
    if (!content(parse, index, message, &text))
        return false;
    *size += json_string_length(text);
    copy = json_object();
    CHECK(copy != NULL);
    json_object_set_new(copy, "role", json_string(role));
    json_object_set_new(copy, "content", text);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) {
        json_t *value = json_object_get(message, passed[i]);

        *size += json_string_length(value);
        if (json_is_string(value))
            json_object_set(copy, passed[i], value);
    }
    if (json_is_array(json_object_get(message, "tool_calls")))
        json_object_set(copy, "tool_calls", json_object_get(message, "tool_calls"));
    json_array_append_new(out, copy);
    return true;
}

bool prompt_messages(struct prompt_parse *parse, json_t **messages, size_t *size)
{
    const json_t *given = prompt_field(parse, "messages");
    json_t *out;

    if (!json_is_array(given) || json_array_size(given) == 0)
        return prompt_bad(parse, given == NULL ? "missing_required_parameter" : "invalid_value",
                          "messages", "messages must be an array of at least one message");
    out = json_array();
    CHECK(out != NULL);
    *size = 0;
    for (size_t i = 0; i < json_array_size(given); i++) {
        if (!append(parse, i, json_array_get(given, i), out, size)) {
            json_decref(out);
            return false;
        }
    }
    *messages = out;
    return true;
}
