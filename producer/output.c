/* SPDX-License-Identifier: Apache-2.0 */
#include "producer/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool failed(const char *path, struct err *err)
{
    return err_set(err, ERR_REJECT, "%.150s: %s", path, strerror(errno));
}

bool output_open(struct output *output, const char *path, struct err *err)
{
    struct stat status;
    int size, fd;

    *output = (struct output){.path = path};
    if (strcmp(path, "-") == 0) {
        output->path = "standard output";
        output->file = stdout;
        return true;
    }
    if (lstat(path, &status) == 0 && !S_ISREG(status.st_mode)) {
        output->file = fopen(path, "wb");
        return output->file || failed(path, err);
    }
    size = snprintf(output->part, sizeof output->part, "%s.part", path);
    if (size < 0 || (size_t)size >= sizeof output->part)
        return err_set(err, ERR_REJECT, "%.100s...: the path is too long", path);
    /* Never through a link that lies there: it is what will be moved. */
    fd = open(output->part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) /* a reason that only the file beside it has names that one */
        return failed(errno == EISDIR || errno == ELOOP ? output->part : path, err);
    output->file = fdopen(fd, "wb");
    return output->file || failed(output->part, err);
}

bool output_write_line(struct output *output, char *line, struct err *err)
{
    bool ok = fprintf(output->file, "%s\n", line) > 0;

    free(line);
    return ok || failed(output->path, err);
}

bool output_close(struct output *output, bool keep, struct err *err)
{
    FILE *file = output->file;
    bool ok;

    if (!file)
        return true;
    output->file = NULL;
    errno = EIO; /* where only an earlier write has failed */
    ok = ferror(file) == 0;
    ok = fflush(file) == 0 && ok;
    if (!ok)
        failed(output->path, err);
    if (file != stdout && fclose(file) != 0 && ok)
        ok = failed(output->path, err);
    if (!*output->part)
        return ok;
    if (!keep || !ok) {
        remove(output->part);
        return ok;
    }
    return rename(output->part, output->path) == 0 || failed(output->path, err);
}

/* The path with its folder resolved, for a file that is not there yet. */
static bool resolve(const char *path, char resolved[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    char folder[PATH_MAX] = ".";
    size_t size;

    if (slash && (size_t)(slash - path) + 2 > sizeof folder)
        return false;
    if (slash)
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path) + 1, path);
    if (!realpath(folder, resolved))
        return false;
    size = strlen(resolved);
    return snprintf(resolved + size, PATH_MAX - size, "/%s", name) < (int)(PATH_MAX - size);
}

bool output_same(const char *a, const char *b)
{
    char path_a[PATH_MAX], path_b[PATH_MAX];
    struct stat status_a, status_b;
    bool is_there_a, is_there_b;

    if (!*a || !*b || strcmp(a, "-") == 0 || strcmp(b, "-") == 0)
        return false;
    is_there_a = stat(a, &status_a) == 0;
    is_there_b = stat(b, &status_b) == 0;
    if (is_there_a && is_there_b)
        return status_a.st_dev == status_b.st_dev && status_a.st_ino == status_b.st_ino &&
               !S_ISCHR(status_a.st_mode);
    return !is_there_a && !is_there_b && resolve(a, path_a) && resolve(b, path_b) &&
           strcmp(path_a, path_b) == 0;
}
