/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_lines - a trace file line by line, with complaints that name file and line.
 *
 * A byte order mark at its beginning and carriage returns are no part of a line.
 */
#ifndef SCHEDULER_SIM_TRACE_LINES_H
#define SCHEDULER_SIM_TRACE_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/err.h"

enum { TRACE_FIELDS_MAX = 256 };

struct trace_lines {
    const char *path;
    FILE *file;
    char *line; /* the last one read; the reader's to change */
    size_t capacity;
    uint64_t number;                /* of that line, from 1 */
    char *fields[TRACE_FIELDS_MAX]; /* of that line, once split */
    size_t field_count;
};

/* Close it also when this fails. REJECT for what is no readable file. */
bool trace_lines_open(struct trace_lines *lines, const char *path, struct err *err);
/* False at the end of the file, or where it cannot be read, which trace_lines_close() says. */
bool trace_lines_next(struct trace_lines *lines);
/* The first line; REJECT says why there is none. */
bool trace_lines_first(struct trace_lines *lines, struct err *err);
/* Cuts the line into its fields (csv.h). */
void trace_lines_split(struct trace_lines *lines);
/* Has the line, once split, this text in that field? */
bool trace_lines_field_is(const struct trace_lines *lines, size_t at, const char *text);
/* False, with a REJECT of "trace FILE, line N: what". */
bool trace_lines_reject(const struct trace_lines *lines, const char *what, struct err *err);
/* ok, unless reading has failed on the way. */
bool trace_lines_close(struct trace_lines *lines, bool ok, struct err *err);

#endif
