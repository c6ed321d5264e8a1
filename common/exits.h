/* SPDX-License-Identifier: Apache-2.0
 *
 * exits - how programs end: one meaning for each exit code, one form for the last words.
 *
 * Codes are those of sysexits.h, the same in every program; docs/ARCHITECTURE.md has the table for
 * people and supervisors. The last words are one line on standard error, "PROGRAM: sentence".
 */
#ifndef COMMON_EXITS_H
#define COMMON_EXITS_H

#include <sysexits.h>

#include "common/config.h"
#include "common/err.h"

/* Prints the last words and returns code, for main() to return. */
int exits_with(int code, const char *program, const struct err *err);

/* The code for the end of what was started with good options: RETRY and ABORT (69, another try may
 * go well), REJECT (78, the settings cannot work here), FATAL (70). */
int exits_code(const struct err *err);

/* The code for what config_load() refused: 64 for the command line, 78 for a file. */
int exits_config_code(enum config_outcome outcome);

#endif
