/* SPDX-License-Identifier: Apache-2.0
 *
 * prompt_messages - the conversation of a chat request, checked and in the form
 * that chat templates are written for. Internal to worker/prompt.c.
 */
#ifndef WORKER_PROMPT_MESSAGES_H
#define WORKER_PROMPT_MESSAGES_H

#include "worker/prompt_parse.h"

/* *messages (for json_decref) holds objects of role, content (a string or null) and, where given,
 * name, tool_call_id and tool_calls. *size is the sum of the
 * contents' bytes. */
bool prompt_messages(struct prompt_parse *parse, json_t **messages, size_t *size);

#endif
