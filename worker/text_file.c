/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/text_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool read_open_file(FILE *file, const char *path, char **text, struct err *err)
{
    long size;
    char *made;

    if (fseek(file, 0, SEEK_END) < 0 || (size = ftell(file)) < 0 || fseek(file, 0, SEEK_SET) < 0)
        return err_set(err, ERR_REJECT, "%s: cannot be read: %s", path, strerror(errno));
    if (size > TEXT_FILE_SIZE_MAX)
        return err_set(err, ERR_REJECT, "%s: %ld bytes, allowed are %d", path, size,
                       TEXT_FILE_SIZE_MAX);
    made = malloc((size_t)size + 1);
    if (!made)
        return err_set(err, ERR_FATAL, "%s: no memory", path);
    if (fread(made, 1, (size_t)size, file) != (size_t)size) {
        free(made);
        return err_set(err, ERR_REJECT, "%s: cannot be read", path);
    }
    made[size] = 0;
    *text = made;
    return true;
}

bool text_file_read(const char *dir, const char *name, char **text, struct err *err)
{
    char path[4096];
    FILE *file;
    bool ok;

    *text = NULL;
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
        return err_set(err, ERR_REJECT, "%.100s: path is too long", dir);
    file = fopen(path, "rb");
    if (!file && errno == ENOENT)
        return true;
    if (!file)
        return err_set(err, ERR_REJECT, "%s: %s", path, strerror(errno));
    ok = read_open_file(file, path, text, err);
    fclose(file);
    return ok;
}
