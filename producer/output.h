/* SPDX-License-Identifier: Apache-2.0
 *
 * output - a file of results that gets its name only when it is complete.
 *
 * Where the name is free or a regular file's, the text goes to "NAME.part", which is moved there at
 * the end. Anything else, a device, a pipe, a symbolic link such as /dev/stdout, is written to as
 * it is and stays what it is. "-" is standard output.
 */
#ifndef PRODUCER_OUTPUT_H
#define PRODUCER_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

#include "common/err.h"

struct output {
    FILE *file; /* NULL: not open */
    const char *path;
    char part[4096]; /* "": written in place */
};

/* path lives as long as output. */
bool output_open(struct output *output, const char *path, struct err *err);
/* Takes over line, which is from malloc(). */
bool output_write_line(struct output *output, char *line, struct err *err);
/* Moves the file to its place if keep is true, else removes it; what is written in place stays.
 * False: something could not be written. What is not open is no error. */
bool output_close(struct output *output, bool keep, struct err *err);

/* Would both be one file, that there is or that there would be? "", "-" and character devices are
 * none. */
bool output_same(const char *a, const char *b);

#endif
