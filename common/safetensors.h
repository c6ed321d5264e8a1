/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors - the tensors of one file, mapped and checked, not copied.
 *
 * The format (huggingface/safetensors, README "Format"): 8 bytes with the
 * header's length, little-endian, then the header, a JSON object from tensor
 * names to {dtype, shape, data_offsets}, then the data. A file comes from
 * outside, so nothing in it is trusted: every tensor has a known type, a shape
 * that multiplies to its span, a place inside the data that is aligned to its
 * elements, and the spans tile the data without overlap or hole, as the
 * reference implementation demands too. A name that comes twice is an error.
 *
 * What is not done here: converting, choosing among several files
 * (worker/weights.h).
 *
 * Threads: after open everything is read-only.
 */
#ifndef COMMON_SAFETENSORS_H
#define COMMON_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

enum tensor_dtype {
    TENSOR_BOOL,
    TENSOR_U8,
    TENSOR_I8,
    TENSOR_F8_E5M2,
    TENSOR_F8_E4M3,
    TENSOR_F8_E8M0,
    TENSOR_U16,
    TENSOR_I16,
    TENSOR_F16,
    TENSOR_BF16,
    TENSOR_U32,
    TENSOR_I32,
    TENSOR_F32,
    TENSOR_U64,
    TENSOR_I64,
    TENSOR_F64,
    TENSOR_DTYPE_COUNT
};

enum {
    TENSOR_DIMS_MAX = 8,
    /* The reference implementation's bound, too: it keeps a hostile length from
     * making us parse gigabytes of JSON. */
    SAFETENSORS_HEADER_SIZE_MAX = 100000000,
};

/* Strings and data belong to the file it came from and live as long as it is open. */
struct tensor {
    const char *name;
    const void *data; /* size bytes */
    size_t size;
    uint64_t dims[TENSOR_DIMS_MAX]; /* (dim_count), outermost first */
    uint32_t dim_count;             /* 0: a scalar */
    enum tensor_dtype dtype;
};

struct safetensors;

/* "BF16" and so on, as in the file. */
const char *tensor_dtype_name(enum tensor_dtype dtype);

/* Maps the file. REJECT names the file, the tensor and what is wrong with it. */
bool safetensors_open(struct safetensors **file, const char *path, struct err *err);

/* The same for bytes in memory, which stay the caller's and must outlive the result. name
 * stands for the path in errors. */
bool safetensors_parse(struct safetensors **file, const char *name, const void *bytes, size_t size,
                       struct err *err);

void safetensors_close(struct safetensors *file); /* NULL is allowed */

const char *safetensors_path(const struct safetensors *file);

/* The header as it lies in the file: what identifies the weights without reading them. */
const void *safetensors_header(const struct safetensors *file, size_t *size);

/* All tensors, sorted by name. */
const struct tensor *safetensors_tensors(const struct safetensors *file, size_t *count);

/* NULL when there is none. */
const struct tensor *safetensors_find(const struct safetensors *file, const char *name);

#endif
