/* SPDX-License-Identifier: Apache-2.0
 *
 * escape - foreign text for a terminal or an output of lines.
 *
 * Who names a batch or writes an answer must not move the cursor, ring the bell or begin a line of
 * its own on somebody else's screen. Control characters (C0, DEL, C1), the marks that turn the
 * direction of text and bytes that are no UTF-8 come out as \n, \t, \r or \xNN, byte by byte; all
 * other text as it is. A backslash stays single: this is for eyes, JSON is for programs.
 */
#ifndef COMMON_ESCAPE_H
#define COMMON_ESCAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Does text hold anything that would be escaped? */
bool escape_needed(const char *data, size_t size);
/* kept: control characters that pass as they are, such as "\t"; "" none. */
void escape_print(FILE *out, const char *data, size_t size, const char *kept);
/* Escapes what the format gives and ends the line. On an unbuffered stream it is one write, so that
 * programs that share standard error do not write into each other's lines. */
__attribute__((format(printf, 2, 3))) void escape_line(FILE *out, const char *format, ...);

#endif
