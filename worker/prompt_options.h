/* SPDX-License-Identifier: Apache-2.0
 *
 * prompt_options - the fields of a request body that say how to answer, and
 * those that we refuse. Internal to worker/prompt.c.
 */
#ifndef WORKER_PROMPT_OPTIONS_H
#define WORKER_PROMPT_OPTIONS_H

#include "worker/prompt_parse.h"

/* Fills sampling, stops (borrowing from parse->body), ignore_eos and max_tokens (0: not given). */
bool prompt_options(struct prompt_parse *parse, struct prompt *prompt);

#endif
