/* SPDX-License-Identifier: Apache-2.0 */
#include "common/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct safetensors {
    char *path;
    json_t *header; /* owns the names */
    struct tensor *tensors;
    size_t count;
    const unsigned char *bytes;
    size_t size;
    size_t header_size;
    bool mapped; /* bytes are ours to unmap */
};

static const struct {
    const char *name;
    size_t size;
} dtypes[TENSOR_DTYPE_COUNT] = {
    [TENSOR_BOOL] = {"BOOL", 1},       [TENSOR_U8] = {"U8", 1},
    [TENSOR_I8] = {"I8", 1},           [TENSOR_F8_E5M2] = {"F8_E5M2", 1},
    [TENSOR_F8_E4M3] = {"F8_E4M3", 1}, [TENSOR_F8_E8M0] = {"F8_E8M0", 1},
    [TENSOR_U16] = {"U16", 2},         [TENSOR_I16] = {"I16", 2},
    [TENSOR_F16] = {"F16", 2},         [TENSOR_BF16] = {"BF16", 2},
    [TENSOR_U32] = {"U32", 4},         [TENSOR_I32] = {"I32", 4},
    [TENSOR_F32] = {"F32", 4},         [TENSOR_U64] = {"U64", 8},
    [TENSOR_I64] = {"I64", 8},         [TENSOR_F64] = {"F64", 8},
};

const char *tensor_dtype_name(enum tensor_dtype dtype)
{
    return dtypes[dtype].name;
}

static bool parse_dtype(struct tensor *tensor, const json_t *value)
{
    const char *name = json_string_value(value);

    for (size_t i = 0; name && i < TENSOR_DTYPE_COUNT; i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            tensor->dtype = (enum tensor_dtype)i;
            return true;
        }
    }
    return false;
}

/* Fills dims and size; false when a dimension is no count or the product does not fit. */
static bool parse_shape(struct tensor *tensor, const json_t *value)
{
    size_t size = dtypes[tensor->dtype].size;
    bool empty = false;

    if (!json_is_array(value) || json_array_size(value) > TENSOR_DIMS_MAX)
        return false;
    tensor->dim_count = (uint32_t)json_array_size(value);
    for (uint32_t i = 0; i < tensor->dim_count; i++) {
        const json_t *dim = json_array_get(value, i);
        json_int_t n = json_integer_value(dim);

        if (!json_is_integer(dim) || n < 0)
            return false;
        tensor->dims[i] = (uint64_t)n;
        if (n == 0)
            empty = true;
        else if (__builtin_mul_overflow(size, (size_t)n, &size))
            return false;
    }
    tensor->size = empty ? 0 : size;
    return true;
}

static bool parse_tensor(struct safetensors *file, struct tensor *tensor, const json_t *entry,
                         struct err *err)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *first = json_array_get(offsets, 0);
    const json_t *last = json_array_get(offsets, 1);
    size_t data_size = file->size - 8 - file->header_size;
    const char *what = NULL;
    json_int_t begin = json_integer_value(first);
    json_int_t end = json_integer_value(last);

    if (!json_is_object(entry))
        what = "its entry is not an object";
    else if (!parse_dtype(tensor, json_object_get(entry, "dtype")))
        what = "its dtype is missing or unknown";
    else if (!parse_shape(tensor, json_object_get(entry, "shape")))
        what = "its shape is not a list of at most 8 counts whose product fits";
    else if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last))
        what = "its data_offsets are not two integers";
    else if (begin < 0 || end < begin || (size_t)end > data_size)
        what = "its data_offsets lie outside the file";
    else if ((size_t)(end - begin) != tensor->size)
        what = "its span is not its shape times its element size";
    else if ((8 + file->header_size + (size_t)begin) % dtypes[tensor->dtype].size != 0)
        what = "its data is not aligned to its elements";
    if (what)
        return err_set(err, ERR_REJECT, "%s: tensor %.100s: %s", file->path, tensor->name, what);
    tensor->data = file->bytes + 8 + file->header_size + begin;
    return true;
}

static int by_place(const void *a, const void *b)
{
    const struct tensor *x = a;
    const struct tensor *y = b;

    if (x->data != y->data)
        return (const char *)x->data < (const char *)y->data ? -1 : 1;
    return (x->size > y->size) - (x->size < y->size); /* an empty one before its neighbour */
}

static int by_name(const void *a, const void *b)
{
    const struct tensor *x = a;
    const struct tensor *y = b;

    return strcmp(x->name, y->name);
}

/* Do the tensors tile the data: each one beginning where the one before ended? */
static bool check_tiling(struct safetensors *file, struct err *err)
{
    const unsigned char *place = file->bytes + 8 + file->header_size;

    qsort(file->tensors, file->count, sizeof *file->tensors, by_place);
    for (size_t i = 0; i < file->count; i++) {
        const struct tensor *tensor = &file->tensors[i];
        const unsigned char *data = tensor->data;

        if (data != place)
            return err_set(err, ERR_REJECT, "%s: tensor %.100s: it %s", file->path, tensor->name,
                           data < place ? "overlaps another tensor" : "comes after unused bytes");
        place += tensor->size;
    }
    if (place != file->bytes + file->size)
        return err_set(err, ERR_REJECT, "%s: %zu bytes after the last tensor", file->path,
                       (size_t)(file->bytes + file->size - place));
    return true;
}

static bool parse_header(struct safetensors *file, struct err *err)
{
    uint64_t length = 0;
    json_error_t error;
    const char *name;
    json_t *entry;

    if (file->size < 8)
        return err_set(err, ERR_REJECT, "%s: %zu bytes are too few for a safetensors file",
                       file->path, file->size);
    for (int i = 7; i >= 0; i--)
        length = length << 8 | file->bytes[i];
    if (length > SAFETENSORS_HEADER_SIZE_MAX || length > file->size - 8)
        return err_set(
            err, ERR_REJECT, "%s: header of %llu bytes in a file of %zu (at most %d are allowed)",
            file->path, (unsigned long long)length, file->size, SAFETENSORS_HEADER_SIZE_MAX);
    file->header_size = (size_t)length;
    file->header = json_loadb((const char *)file->bytes + 8, file->header_size,
                              JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(file->header))
        return err_set(err, ERR_REJECT, "%s: header is not a JSON object: %.100s", file->path,
                       file->header ? "another type" : error.text);

    file->tensors = calloc(json_object_size(file->header) + 1, sizeof *file->tensors);
    if (!file->tensors)
        return err_set(err, ERR_FATAL, "%s: no memory for its header", file->path);
    json_object_foreach(file->header, name, entry)
    {
        struct tensor *tensor = &file->tensors[file->count];

        if (strcmp(name, "__metadata__") == 0)
            continue;
        tensor->name = name;
        if (!parse_tensor(file, tensor, entry, err))
            return false;
        file->count++;
    }
    if (!check_tiling(file, err))
        return false;
    qsort(file->tensors, file->count, sizeof *file->tensors, by_name);
    return true;
}

bool safetensors_parse(struct safetensors **file, const char *name, const void *bytes, size_t size,
                       struct err *err)
{
    struct safetensors *made = calloc(1, sizeof *made);

    if (made)
        made->path = strdup(name);
    if (!made || !made->path) {
        free(made);
        return err_set(err, ERR_FATAL, "%s: no memory", name);
    }
    made->bytes = bytes;
    made->size = size;
    if (!parse_header(made, err)) {
        safetensors_close(made);
        return false;
    }
    *file = made;
    return true;
}

bool safetensors_open(struct safetensors **file, const char *path, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat stat;
    void *bytes;

    if (fd < 0)
        return err_set(err, ERR_REJECT, "%s: %s", path, strerror(errno));
    if (fstat(fd, &stat) < 0 || !S_ISREG(stat.st_mode) || stat.st_size < 8) {
        close(fd);
        return err_set(err, ERR_REJECT, "%s: not a safetensors file", path);
    }
    bytes = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (bytes == MAP_FAILED)
        return err_set(err, ERR_FATAL, "%s: cannot be mapped: %s", path, strerror(errno));
    if (!safetensors_parse(file, path, bytes, (size_t)stat.st_size, err)) {
        munmap(bytes, (size_t)stat.st_size);
        return false;
    }
    (*file)->mapped = true;
    return true;
}

void safetensors_close(struct safetensors *file)
{
    if (!file)
        return;
    if (file->mapped)
        munmap((void *)(uintptr_t)file->bytes, file->size);
    json_decref(file->header);
    free(file->tensors);
    free(file->path);
    free(file);
}

const char *safetensors_path(const struct safetensors *file)
{
    return file->path;
}

const void *safetensors_header(const struct safetensors *file, size_t *size)
{
    *size = file->header_size;
    return file->bytes + 8;
}

const struct tensor *safetensors_tensors(const struct safetensors *file, size_t *count)
{
    *count = file->count;
    return file->tensors;
}

const struct tensor *safetensors_find(const struct safetensors *file, const char *name)
{
    struct tensor key = {.name = name};

    return bsearch(&key, file->tensors, file->count, sizeof key, by_name);
}
