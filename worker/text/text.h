/* SPDX-License-Identifier: Apache-2.0
 *
 * text - tokenizer and chat template of a model directory, behind a C border.
 *
 * The work is done by the Rust crates `tokenizers` and `minijinja`, because a
 * model answers well only if its prompt is tokenised exactly as in training,
 * and those crates are what the files in a model directory are written for.
 *
 * What users write stays text: a control token spelled out in the content of a
 * chat message ("<|im_end|>") is encoded as the characters it consists of.
 * Only the template may set control tokens. A raw prompt (text_encode) is the
 * caller's own template, so there control tokens act.
 *
 * A struct text is constant after text_open(); every function on it may be
 * called from any thread at the same time. Nothing here panics or exits.
 */
#ifndef WORKER_TEXT_TEXT_H
#define WORKER_TEXT_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

struct text;

/* Token ids of a prompt. Owned by the caller, given back with text_ids_free();
 * { NULL, 0 } is valid and empty. */
struct text_ids {
    int32_t *ids; /* (count) */
    size_t count;
};

/* What one token adds to the output. Borrowed from struct text. */
struct text_piece {
    const char *bytes; /* (size) not terminated; may be a part of a UTF-8 character */
    size_t size;
    bool special; /* a control token: adds nothing to the text that users see */
};

/* Read tokenizer.json (required), tokenizer_config.json, chat_template.jinja,
 * generation_config.json and config.json of model_dir. A file that is broken
 * or of a kind we do not support is ERR_REJECT and names the file. */
bool text_open(const char *model_dir, struct text **text, struct err *err);
void text_close(struct text *text);

/* A raw prompt to ids. Control tokens spelled out in it act; the beginning-of-
 * sequence token is added where the model wants one, and never twice.
 * prompt (size) must be UTF-8. ERR_REJECT on failure. */
bool text_encode(const struct text *text, const char *prompt, size_t size, struct text_ids *ids,
                 struct err *err);

/* Render a conversation with the model's chat template, including the opening
 * of the assistant's turn, and encode it. messages (size) is a JSON array of
 * objects with `role` and `content`, roles already checked by the caller.
 * now_s (Unix time) is what templates that print a date see: pass the time of
 * the request, so that a second attempt has the same prompt. ERR_REJECT on
 * failure, with the template's own words if it refuses the conversation. */
bool text_chat(const struct text *text, const char *messages, size_t size, int64_t now_s,
               struct text_ids *ids, struct err *err);

void text_ids_free(struct text_ids *ids);

/* Whole ids to text by the reference decoder, control tokens left out. This is
 * what worker/detok.h must agree with. Writes at most capacity bytes to out;
 * ERR_REJECT if that is too small. */
bool text_decode(const struct text *text, const int32_t *ids, size_t count, char *out,
                 size_t capacity, size_t *size, struct err *err);

/* Ids that no token has give an empty piece. */
struct text_piece text_piece(const struct text *text, int32_t id);

/* Largest text_piece size. */
size_t text_piece_size_max(const struct text *text);

/* True if the model's decoder drops one space at the very start of an output. */
bool text_strips_first_space(const struct text *text);

/* One more than the highest id that the tokenizer knows. */
int32_t text_vocab_count(const struct text *text);

/* Ids that end an answer: (count), borrowed from text; count may be 0. */
const int32_t *text_eos_ids(const struct text *text, size_t *count);

#endif
