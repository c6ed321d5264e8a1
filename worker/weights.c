/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/weights.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/safetensors.h"

enum {
    FILES_MAX = 1024, /* DeepSeek-V3 has 163 */
    COPIES_MAX = 1 << 18,
};

struct weights {
    char *dir;
    struct safetensors **files; /* (file_count) */
    size_t file_count;
    void **copies; /* (copy_count) what was converted or reordered */
    size_t copy_count;
};

static bool open_file(struct weights *weights, const char *name, struct err *err)
{
    char path[4096];

    if (snprintf(path, sizeof path, "%s/%s", weights->dir, name) >= (int)sizeof path)
        return err_set(err, ERR_REJECT, "%.100s: path is too long", weights->dir);
    if (!safetensors_open(&weights->files[weights->file_count], path, err))
        return false;
    weights->file_count++;
    return true;
}

static struct safetensors *file_named(const struct weights *weights, const char *name)
{
    for (size_t i = 0; i < weights->file_count; i++) {
        const char *path = safetensors_path(weights->files[i]);

        if (strcmp(path + strlen(weights->dir) + 1, name) == 0)
            return weights->files[i];
    }
    return NULL;
}

/* Every tensor that the index names must be in the file it names. */
static bool open_indexed(struct weights *weights, const char *path, const json_t *map,
                         struct err *err)
{
    const char *tensor;
    json_t *entry;

    json_object_foreach((json_t *)(uintptr_t)map, tensor, entry)
    {
        const char *name = json_string_value(entry);
        struct safetensors *file;

        if (!name || !*name || strchr(name, '/'))
            return err_set(err, ERR_REJECT, "%s: tensor %.100s: its file is not a plain name", path,
                           tensor);
        file = file_named(weights, name);
        if (!file) {
            if (weights->file_count == FILES_MAX)
                return err_set(err, ERR_REJECT, "%s: more than %d files", path, FILES_MAX);
            if (!open_file(weights, name, err))
                return false;
            file = weights->files[weights->file_count - 1];
        }
        if (!safetensors_find(file, tensor))
            return err_set(err, ERR_REJECT, "%s: tensor %.100s is not in %.80s", path, tensor,
                           name);
    }
    return true;
}

static bool open_index(struct weights *weights, const char *path, struct err *err)
{
    json_error_t error;
    json_t *index = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    const json_t *map = json_object_get(index, "weight_map");
    bool ok;

    if (!json_is_object(map) || json_object_size(map) == 0)
        ok = err_set(err, ERR_REJECT, "%s: no weight_map in it: %.100s", path,
                     index ? "it is absent or empty" : error.text);
    else
        ok = open_indexed(weights, path, map, err);
    json_decref(index);
    return ok;
}

bool weights_open(struct weights **weights, const char *dir, struct err *err)
{
    struct weights *made = calloc(1, sizeof *made);
    char path[4096];
    bool ok = false;

    if (made) {
        made->dir = strdup(dir);
        made->files = calloc(FILES_MAX, sizeof(struct safetensors *));
        made->copies = calloc(COPIES_MAX, sizeof *made->copies);
    }
    if (!made || !made->dir || !made->files || !made->copies)
        err_set(err, ERR_FATAL, "%.200s: no memory", dir);
    else if (snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir) >=
             (int)sizeof path)
        err_set(err, ERR_REJECT, "%.100s: path is too long", dir);
    else if (access(path, F_OK) == 0)
        ok = open_index(made, path, err);
    else
        ok = open_file(made, "model.safetensors", err);
    if (!ok) {
        weights_close(made);
        return false;
    }
    *weights = made;
    return true;
}

void weights_close(struct weights *weights)
{
    if (!weights)
        return;
    for (size_t i = 0; i < weights->copy_count; i++)
        free(weights->copies[i]);
    for (size_t i = 0; i < weights->file_count; i++)
        safetensors_close(weights->files[i]);
    free(weights->copies);
    free(weights->files);
    free(weights->dir);
    free(weights);
}

static const struct tensor *find(const struct weights *weights, const char *name, const char **path)
{
    for (size_t i = 0; i < weights->file_count; i++) {
        const struct tensor *tensor = safetensors_find(weights->files[i], name);

        *path = safetensors_path(weights->files[i]);
        if (tensor)
            return tensor;
    }
    *path = weights->dir;
    return NULL;
}

/* Memory that lives as long as the weights. */
static void *keep(struct weights *weights, size_t size, const char *name, struct err *err)
{
    void *copy = weights->copy_count < COPIES_MAX ? aligned_alloc(64, (size + 63) / 64 * 64) : NULL;

    if (copy)
        weights->copies[weights->copy_count++] = copy;
    else
        err_set(err, ERR_FATAL, "%s: tensor %.100s: no memory for its copy", weights->dir, name);
    return copy;
}

static float f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half >> 10 & 31;
    uint32_t fraction = half & 1023;
    uint32_t bits;
    float value;

    if (exponent == 0) {
        value = (float)fraction * 0x1p-24f; /* zero and subnormals, exact */
        return sign ? -value : value;
    }
    bits = exponent == 31 ? 0x7f800000u | fraction << 13 : (exponent + 112) << 23 | fraction << 13;
    bits |= sign;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static bool widen(struct weights *weights, const struct tensor *tensor, struct weight *weight,
                  struct err *err)
{
    const uint16_t *from = tensor->data;
    size_t count = tensor->size / 2;
    float *to;

    weight->data = tensor->data;
    if (tensor->dtype == TENSOR_F32 || tensor->dtype == TENSOR_BF16) {
        weight->dtype = tensor->dtype == TENSOR_F32 ? DTYPE_F32 : DTYPE_BF16;
        return true;
    }
    to = keep(weights, count * sizeof *to, tensor->name, err);
    if (!to)
        return false;
    for (size_t i = 0; i < count; i++)
        to[i] = f16_to_f32(from[i]);
    *weight = (struct weight){.data = to, .dtype = DTYPE_F32};
    return true;
}

bool weights_find(struct weights *weights, const char *name, uint64_t rows, uint64_t columns,
                  struct weight *weight, struct err *err)
{
    const char *path;
    const struct tensor *tensor = find(weights, name, &path);
    bool same;

    if (!tensor)
        return err_set(err, ERR_REJECT, "%s: tensor %.100s is missing", path, name);
    same = tensor->dim_count == (columns ? 2 : 1) && tensor->dims[0] == rows &&
           (columns == 0 || tensor->dims[1] == columns);
    if (!same)
        return err_set(err, ERR_REJECT,
                       "%s: tensor %.100s: %u dimensions, first %llu, expected (%llu%s%.0llu)",
                       path, name, tensor->dim_count,
                       tensor->dim_count ? (unsigned long long)tensor->dims[0] : 0,
                       (unsigned long long)rows, columns ? ", " : "", (unsigned long long)columns);
    if (tensor->dtype != TENSOR_BF16 && tensor->dtype != TENSOR_F32 && tensor->dtype != TENSOR_F16)
        return err_set(err, ERR_REJECT,
                       "%s: tensor %.100s: %s is not supported; BF16, F32 and F16 are", path, name,
                       tensor_dtype_name(tensor->dtype));
    return widen(weights, tensor, weight, err);
}

bool weights_find_floats(struct weights *weights, const char *name, uint64_t count,
                         const float **floats, struct err *err)
{
    struct weight weight;
    float *copy;

    if (!weights_find(weights, name, count, 0, &weight, err))
        return false;
    *floats = weight.data;
    if (weight.dtype == DTYPE_F32)
        return true;
    copy = keep(weights, count * sizeof *copy, name, err);
    if (!copy)
        return false;
    for (uint64_t i = 0; i < count; i++)
        copy[i] = bf16_to_f32(((const uint16_t *)weight.data)[i]);
    *floats = copy;
    return true;
}

bool weights_reorder_rows(struct weights *weights, const uint32_t *order, uint32_t rows,
                          uint64_t columns, struct weight *weight, struct err *err)
{
    size_t row_size = columns * dtype_size(weight->dtype);
    char *copy = keep(weights, rows * row_size, "(reordered)", err);

    if (!copy)
        return false;
    for (uint32_t i = 0; i < rows; i++)
        memcpy(copy + i * row_size, (const char *)weight->data + order[i] * row_size, row_size);
    weight->data = copy;
    return true;
}

void weights_identify(const struct weights *weights,
                      void (*visit)(void *context, const void *bytes, size_t size), void *context)
{
    for (size_t i = 0; i < weights->file_count; i++) {
        size_t size;
        const void *header = safetensors_header(weights->files[i], &size);

        visit(context, header, size);
    }
}

uint64_t weights_size(const struct weights *weights)
{
    uint64_t total = 0;

    for (size_t i = 0; i < weights->file_count; i++) {
        size_t count;
        const struct tensor *tensors = safetensors_tensors(weights->files[i], &count);

        for (size_t j = 0; j < count; j++)
            total += tensors[j].size;
    }
    return total;
}
