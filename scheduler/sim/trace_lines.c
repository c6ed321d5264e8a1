/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/trace_lines.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "scheduler/sim/csv.h"

bool trace_lines_open(struct trace_lines *lines, const char *path, struct err *err)
{
    struct stat status;

    *lines = (struct trace_lines){.path = path, .file = fopen(path, "r")};
    if (!lines->file)
        return err_set(err, ERR_REJECT, "trace %s: %s", path, strerror(errno));
    return fstat(fileno(lines->file), &status) != 0 || !S_ISDIR(status.st_mode) ||
           err_set(err, ERR_REJECT, "trace %s: a folder, not a file", path);
}

bool trace_lines_next(struct trace_lines *lines)
{
    static const char mark[] = "\xef\xbb\xbf";
    const size_t mark_size = sizeof mark - 1;
    ssize_t size = getline(&lines->line, &lines->capacity, lines->file);

    if (size < 0)
        return false;
    lines->number++;
    while (size > 0 && (lines->line[size - 1] == '\n' || lines->line[size - 1] == '\r'))
        lines->line[--size] = 0;
    if (lines->number == 1 && strncmp(lines->line, mark, mark_size) == 0)
        memmove(lines->line, lines->line + mark_size, (size_t)size - mark_size + 1);
    return true;
}

bool trace_lines_first(struct trace_lines *lines, struct err *err)
{
    return trace_lines_next(lines) ||
           err_set(err, ERR_REJECT, "trace %s: %s", lines->path,
                   ferror(lines->file) ? "it cannot be read" : "the file is empty");
}

void trace_lines_split(struct trace_lines *lines)
{
    lines->field_count = csv_split(lines->line, lines->fields, TRACE_FIELDS_MAX);
}

bool trace_lines_field_is(const struct trace_lines *lines, size_t at, const char *text)
{
    return at < lines->field_count && strcmp(lines->fields[at], text) == 0;
}

bool trace_lines_reject(const struct trace_lines *lines, const char *what, struct err *err)
{
    return err_set(err, ERR_REJECT, "trace %s, line %" PRIu64 ": %s", lines->path, lines->number,
                   what);
}

bool trace_lines_close(struct trace_lines *lines, bool ok, struct err *err)
{
    if (ok && ferror(lines->file))
        ok = err_set(err, ERR_REJECT, "trace %s: it cannot be read beyond line %" PRIu64,
                     lines->path, lines->number);
    free(lines->line);
    if (lines->file)
        fclose(lines->file);
    return ok;
}
