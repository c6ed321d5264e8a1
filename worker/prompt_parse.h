/* SPDX-License-Identifier: Apache-2.0
 *
 * prompt_parse - what the readers of a request body share: where they read
 * from and where the first fault goes. Internal to worker/prompt*.c.
 */
#ifndef WORKER_PROMPT_PARSE_H
#define WORKER_PROMPT_PARSE_H

#include <jansson.h>

#include "worker/prompt.h"

struct prompt_parse {
    const struct prompt_source *source;
    json_t *body; /* an object */
    struct prompt_fault *fault;
    struct err *err;
};

/* Fill fault and err (REJECT) and return false. code and param are static strings. */
#ifdef __GNUC__
__attribute__((format(printf, 4, 5)))
#endif
bool prompt_bad(struct prompt_parse *parse, const char *code, const char *param,
                const char *format, ...);

/* A member of the body; NULL where it is absent or null. */
json_t *prompt_field(const struct prompt_parse *parse, const char *name);

enum { PROMPT_SHOWN_SIZE = 48 };
/* A JSON value for a message, cut to what fits. */
const char *prompt_show(const json_t *value, char shown[PROMPT_SHOWN_SIZE]);

#endif
