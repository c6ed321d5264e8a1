/* SPDX-License-Identifier: Apache-2.0
 *
 * render - outcomes as lines of an OpenAI Batch output file.
 *
 *     {"id", "custom_id", "response": {"status_code", "request_id", "body"}, "error": null}
 *     {"id", "custom_id", "response": null, "error": {"code", "message", "param", "line"}}
 *
 * Every line carries either a response or an error. "line" is there only for lines that never
 * became a request.
 */
#ifndef PRODUCER_RENDER_H
#define PRODUCER_RENDER_H

#include <stdio.h>

#include "producer/line.h"
#include "schemas/codec.h"

/* One JSON text without a newline, for free(). */
char *render_result(const struct result *result);
char *render_rejected(const struct line_error *error, uint64_t line);

/* A line of --json output: {"event": event, ...}; takes over members. */
void render_event(FILE *out, const char *event, json_t *members);

#endif
