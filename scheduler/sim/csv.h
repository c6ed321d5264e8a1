/* SPDX-License-Identifier: Apache-2.0
 *
 * csv - one line of comma-separated values, cut in place (RFC 4180).
 *
 * A field may stand in double quotes, a quote in it is doubled. A field has no line breaks: lines
 * are the caller's, and no public trace has any.
 */
#ifndef SCHEDULER_SIM_CSV_H
#define SCHEDULER_SIM_CSV_H

#include <stdbool.h>
#include <stddef.h>

/* Cuts line (NUL-terminated, changed) into at most max fields that point into it; what comes behind
 * them is left out. Returns how many. */
size_t csv_split(char *line, char **fields, size_t max);

/* Where a field with that name stands. */
bool csv_find(char *const *fields, size_t count, const char *name, size_t *at);

/* The fields as "a, b, c" in a buffer of that size, with "..." where they do not fit. */
void csv_names(char *const *fields, size_t count, char *buffer, size_t size);

/* The whole text as a finite number. */
bool csv_number(const char *text, double *number);

#endif
