/* SPDX-License-Identifier: Apache-2.0 */
#include "producer/render.h"

#include <stdlib.h>

#include "common/check.h"

static json_t *text(struct str str)
{
    json_t *value = json_stringn(str.data ? str.data : "", str.size);

    CHECK(value); /* the codec lets only UTF-8 pass */
    return value;
}

static json_t *text_or_null(struct str str)
{
    return str.size > 0 ? text(str) : json_null();
}

static char *dump(json_t *root)
{
    char *line = json_dumps(root, JSON_COMPACT);

    CHECK(line);
    json_decref(root);
    return line;
}

static json_t *usage_of(const struct token_usage *usage)
{
    json_int_t prompt =
        (json_int_t)usage->prompt_tokens_uncached + (json_int_t)usage->prompt_tokens_cached;

    return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", prompt, "completion_tokens",
                     (json_int_t)usage->output_tokens, "total_tokens",
                     prompt + (json_int_t)usage->output_tokens, "prompt_tokens_details",
                     "cached_tokens", (json_int_t)usage->prompt_tokens_cached);
}

static json_t *body_of(const struct result *result, const char *uuid)
{
    static const char *const reasons[] = {NULL, "stop", "length"};
    const bool is_chat = result->endpoint == ENDPOINT_CHAT_COMPLETIONS;
    json_t *choice = json_pack("{s:i, s:n, s:s?}", "index", 0, "logprobs", "finish_reason",
                               reasons[result->finish_reason]);

    if (is_chat)
        json_object_set_new(
            choice, "message",
            json_pack("{s:s, s:o}", "role", "assistant", "content", text(result->text)));
    else
        json_object_set_new(choice, "text", text(result->text));
    return json_pack("{s:s+, s:s, s:I, s:o, s:[o], s:o}", "id", is_chat ? "chatcmpl-" : "cmpl-",
                     uuid, "object", is_chat ? "chat.completion" : "text_completion", "created",
                     (json_int_t)(result->finished_ms / 1000), "model", text(result->model),
                     "choices", choice, "usage", usage_of(&result->usage));
}

char *render_result(const struct result *result)
{
    static const char *const codes[] = {"", "request_failed", "batch_expired", "batch_cancelled"};
    char uuid[REQUEST_ID_TEXT_SIZE + 1];
    json_t *response = NULL, *error = NULL;

    request_id_format(&result->request_id, uuid);
    if (result->status == RESULT_COMPLETED)
        response = json_pack("{s:i, s:s, s:o}", "status_code", 200, "request_id", uuid, "body",
                             body_of(result, uuid));
    else
        error = json_pack("{s:o, s:o, s:o}", "code",
                          result->failure.code.size > 0 ? text(result->failure.code)
                                                        : json_string(codes[result->status]),
                          "message", text(result->failure.message), "param",
                          text_or_null(result->failure.param));
    return dump(json_pack("{s:s+, s:o, s:o?, s:o?}", "id", "batch_req_", uuid, "custom_id",
                          text(result->custom_id), "response", response, "error", error));
}

char *render_rejected(const struct line_error *error, uint64_t line)
{
    json_t *details = json_pack(
        "{s:s, s:s, s:o, s:I}", "code", error->code, "message", error->message, "param",
        *error->param ? json_string(error->param) : json_null(), "line", (json_int_t)line);

    return dump(json_pack("{s:n, s:o, s:n, s:o}", "id", "custom_id",
                          *error->custom_id ? json_string(error->custom_id) : json_null(),
                          "response", "error", details));
}

void render_event(FILE *out, const char *event, json_t *members)
{
    json_t *root = json_pack("{s:s}", "event", event);
    char *line;

    json_object_update(root, members);
    json_decref(members);
    line = dump(root);
    fprintf(out, "%s\n", line);
    fflush(out);
    free(line);
}
