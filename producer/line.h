/* SPDX-License-Identifier: Apache-2.0
 *
 * line - is this a line of an OpenAI Batch file that we can run?
 *
 * Checked is what needs no model: JSON, the members custom_id, method, url and body, and of the
 * body model, messages or prompt, and stream. Everything else in the body is the worker's business.
 * Line numbers are the caller's.
 */
#ifndef PRODUCER_LINE_H
#define PRODUCER_LINE_H

#include <jansson.h>

#include "common/idmap.h"
#include "producer/lines.h"
#include "schemas/codec.h"
#include "schemas/records.h"

/* Text points into the raw line or into root. */
struct line {
    json_t *root; /* line_free() */
    struct str custom_id;
    enum endpoint endpoint;
    struct str model;
    struct str body; /* as it stands in the line */
};

/* Why a line was refused, as an OpenAI error object. */
struct line_error {
    char code[40];
    char message[320];
    char param[40];                         /* "" none */
    char custom_id[CUSTOM_ID_SIZE_MAX + 1]; /* "" unknown */
};

/* Nothing but blanks: to be passed over. */
bool line_is_blank(const struct raw_line *raw);
/* False: error is filled, and there is nothing to free. */
bool line_check(const struct raw_line *raw, struct line *line, struct line_error *error);
void line_free(struct line *line);

/* Is the line's custom_id the first of its kind? line_of maps request ids to line numbers; false:
 * error names both lines. number counts from 1; error is the one of line_check(), which knows the
 * custom_id. */
bool line_check_unique(struct idmap *line_of, const struct request_id *id, uint64_t number,
                       struct line_error *error);

#ifdef __GNUC__
__attribute__((format(printf, 4, 5)))
#endif
bool line_error_set(struct line_error *error, const char *code, const char *param,
                    const char *format, ...);

#endif
