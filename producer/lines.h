/* SPDX-License-Identifier: Apache-2.0
 *
 * lines - a JSONL file, line by line, in bounded memory.
 *
 * A byte order mark before the first line and a carriage return at the end of a line are not part
 * of it. A line beyond the limit is passed over without being kept. The file's SHA-256 is taken on
 * the way.
 */
#ifndef PRODUCER_LINES_H
#define PRODUCER_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/ids.h"

struct lines;

struct raw_line {
    const char *data; /* valid until the next call; may hold any bytes */
    size_t size;      /* of the whole line, also where it was too long */
    uint64_t number;  /* 1-based, blank lines counted */
    bool too_long;    /* data is NULL */
};

/* path "-" is standard input. line_size_max in bytes. */
bool lines_open(struct lines **lines, const char *path, size_t line_size_max, struct err *err);
/* *line->data is NULL and *end true after the last line. */
bool lines_next(struct lines *lines, struct raw_line *line, bool *end, struct err *err);
uint64_t lines_bytes_read(const struct lines *lines);
/* digest (may be NULL) receives the hash of everything read. NULL is allowed. */
void lines_close(struct lines *lines, uint8_t digest[SHA256_SIZE]);

/* Can it be read only once? "-", a pipe, a device; not a directory, nor what is not there. */
bool lines_is_stream(const char *path);

/* Hash of a regular file. REJECT for what cannot be read twice: a pipe, a directory. */
bool lines_hash_file(const char *path, uint8_t digest[SHA256_SIZE], uint64_t *size,
                     struct err *err);

#endif
