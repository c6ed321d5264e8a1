/* SPDX-License-Identifier: Apache-2.0
 *
 * prompt - the body of a request becomes token ids and sampling settings.
 *
 * Bodies are those of OpenAI's /v1/chat/completions and /v1/completions. What
 * we do not do but what would change the answer (tools, logit_bias, penalties,
 * n > 1, ...) is refused by name unless it has its neutral value; fields that
 * would not change the answer are ignored, as OpenAI ignores them. null is the
 * same as absent.
 *
 * messages: roles system, developer (rendered as system), user, assistant and
 * tool; content a string or text parts, which are joined by a newline. prompt:
 * a string, an array of ids, or an array with one of these.
 *
 * max_tokens (or max_completion_tokens) counts all generated ids. Its default
 * is the rest of the context, and what is larger is cut to that. A prompt must
 * leave room for one id: one that fills the context is refused.
 *
 * Extensions: top_k (0 or -1: off) and ignore_eos (go on to max_tokens).
 */
#ifndef WORKER_PROMPT_H
#define WORKER_PROMPT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "schemas/records.h"
#include "worker/sampler.h"
#include "worker/stop_strings.h"
#include "worker/text/text.h"

/* Constant after prompt_open(). */
struct prompt {
    const int32_t *ids;  /* (count) all below vocab_size */
    uint32_t count;      /* at least 1 */
    uint32_t max_tokens; /* at least 1; count + max_tokens <= max_context */
    struct sampling sampling;
    struct stop_strings stops;
    bool ignore_eos;
    struct json_t *body; /* owns the bytes of stops */
};

struct prompt_source {
    const struct text *text;
    enum endpoint endpoint;
    struct str body;
    struct request_id request_id; /* its hash is the default seed */
    int64_t now_s;                /* time of the request, for templates that print a date */
    uint32_t max_context;         /* tokens of prompt and answer */
    uint32_t vocab_size;          /* of the model: ids in an array prompt are below it */
};

/* The fields of OpenAI's error object beside its message. */
struct prompt_fault {
    const char *code;  /* static */
    const char *param; /* static: the body's field, "" if it is none */
};

/* REJECT fills fault, too; the message is a sentence with field, value and limit. Any thread. */
bool prompt_open(struct prompt **prompt, const struct prompt_source *source,
                 struct prompt_fault *fault, struct err *err);
void prompt_close(struct prompt *prompt); /* NULL is allowed */

#endif
