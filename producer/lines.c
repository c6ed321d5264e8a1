/* SPDX-License-Identifier: Apache-2.0 */
#include "producer/lines.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/check.h"

enum { CHUNK_SIZE = 256 * 1024 };

struct lines {
    FILE *file;
    char *path;
    struct sha256 *sha;
    char *buffer;
    size_t capacity;
    size_t start, end; /* of what is read and not yet handed out */
    size_t line_size_max;
    size_t skipped; /* bytes of the current line that were passed over */
    uint64_t number;
    uint64_t bytes_read;
    bool at_end;
};

bool lines_open(struct lines **lines, const char *path, size_t line_size_max, struct err *err)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    struct lines *opened;

    if (!file)
        return err_set(err, ERR_REJECT, "%.150s: %s", path, strerror(errno));
    opened = calloc(1, sizeof *opened);
    CHECK(opened);
    *opened = (struct lines){.file = file,
                             .path = strdup(path),
                             .sha = sha256_open(),
                             .capacity = CHUNK_SIZE,
                             .line_size_max = line_size_max};
    opened->buffer = malloc(opened->capacity);
    CHECK(opened->buffer);
    CHECK(opened->path);
    *lines = opened;
    return true;
}

void lines_close(struct lines *lines, uint8_t digest[SHA256_SIZE])
{
    uint8_t unwanted[SHA256_SIZE];

    if (!lines)
        return;
    sha256_close(lines->sha, digest ? digest : unwanted);
    if (lines->file != stdin)
        fclose(lines->file);
    free(lines->buffer);
    free(lines->path);
    free(lines);
}

uint64_t lines_bytes_read(const struct lines *lines)
{
    return lines->bytes_read;
}

/* Makes room for a chunk: moves what is left to the front, passes over what is too long, grows. */
static void make_room(struct lines *lines)
{
    size_t size = lines->end - lines->start;

    if (size > lines->line_size_max || lines->skipped > 0) {
        lines->skipped += size;
        lines->start = lines->end = size = 0;
    }
    memmove(lines->buffer, lines->buffer + lines->start, size);
    lines->start = 0;
    lines->end = size;
    if (lines->capacity - size < CHUNK_SIZE) {
        lines->capacity = lines->capacity * 2;
        lines->buffer = realloc(lines->buffer, lines->capacity);
        CHECK(lines->buffer);
    }
}

static bool read_chunk(struct lines *lines, struct err *err)
{
    size_t got;

    make_room(lines);
    got = fread(lines->buffer + lines->end, 1, CHUNK_SIZE, lines->file);
    if (got == 0 && ferror(lines->file))
        return err_set(err, ERR_REJECT, "%.150s: %s", lines->path, strerror(errno));
    lines->at_end = got == 0;
    sha256_update(lines->sha, lines->buffer + lines->end, got);
    lines->end += got;
    lines->bytes_read += got;
    return true;
}

/* Hands out the size bytes at start. */
static void take(struct lines *lines, size_t size, struct raw_line *line)
{
    const char *data = lines->buffer + lines->start;

    lines->number++;
    *line = (struct raw_line){.data = data, .size = size, .number = lines->number};
    if (lines->skipped + size > lines->line_size_max) {
        line->size = lines->skipped + size;
        line->data = NULL;
        line->too_long = true;
        lines->skipped = 0;
        return;
    }
    if (lines->number == 1 && size >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0) {
        line->data += 3;
        line->size -= 3;
    }
    if (line->size > 0 && line->data[line->size - 1] == '\r')
        line->size--;
}

bool lines_next(struct lines *lines, struct raw_line *line, bool *end, struct err *err)
{
    *end = false;
    for (;;) {
        const char *from = lines->buffer + lines->start;
        const char *newline = memchr(from, '\n', lines->end - lines->start);

        if (newline) {
            size_t size = (size_t)(newline - from);
            take(lines, size, line);
            lines->start += size + 1;
            return true;
        }
        if (lines->at_end) {
            size_t size = lines->end - lines->start;
            *end = size == 0 && lines->skipped == 0;
            if (*end)
                *line = (struct raw_line){.number = lines->number};
            else
                take(lines, size, line);
            lines->start = lines->end;
            return true;
        }
        if (!read_chunk(lines, err))
            return false;
    }
}

bool lines_is_stream(const char *path)
{
    struct stat status;

    return strcmp(path, "-") == 0 ||
           (stat(path, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode));
}

bool lines_hash_file(const char *path, uint8_t digest[SHA256_SIZE], uint64_t *size, struct err *err)
{
    struct lines *lines;
    struct stat status;
    bool ok = true;

    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode))
        return err_set(err, ERR_REJECT, "%.120s is no regular file", path);
    if (!lines_open(&lines, path, 0, err))
        return false;
    while (ok && !lines->at_end) {
        lines->start = lines->end = lines->skipped = 0;
        ok = read_chunk(lines, err);
    }
    *size = lines->bytes_read;
    lines_close(lines, digest);
    return ok;
}
