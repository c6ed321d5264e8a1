/* SPDX-License-Identifier: Apache-2.0
 *
 * weights - the tensors of a model directory, by name, as kernels take them.
 *
 * A directory holds model.safetensors, or several files and an index
 * (model.safetensors.index.json). BF16 and F32 tensors are used where they lie
 * in the mapping, so that opening costs no copy and processes share the pages;
 * F16 is widened to F32. A tensor that is missing or has another shape is an
 * error with file and name.
 */
#ifndef WORKER_WEIGHTS_H
#define WORKER_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "kernels/numerics.h"

struct weights;

/* Memory is the weights' and lives as long as they are open. data NULL: no such tensor in this
 * kind of layer. */
struct weight {
    const void *data;
    enum dtype dtype;
};

bool weights_open(struct weights **weights, const char *dir, struct err *err);
void weights_close(struct weights *weights); /* NULL is allowed */

/* A matrix of rows * columns, row-major; a vector has columns 0. REJECT: missing, another shape,
 * or a type that is none of BF16, F32, F16. */
bool weights_find(struct weights *weights, const char *name, uint64_t rows, uint64_t columns,
                  struct weight *weight, struct err *err);

/* A vector as floats. */
bool weights_find_floats(struct weights *weights, const char *name, uint64_t count,
                         const float **floats, struct err *err);

/* Rows of a matrix in another order: row i of the result is row order[i] of weight. */
bool weights_reorder_rows(struct weights *weights, const uint32_t *order, uint32_t rows,
                          uint64_t columns, struct weight *weight, struct err *err);

/* Calls visit with every piece of what tells these weights from others without reading them: each
 * file's header, which implies its size. */
void weights_identify(const struct weights *weights,
                      void (*visit)(void *context, const void *bytes, size_t size), void *context);

/* Bytes of all tensors. */
uint64_t weights_size(const struct weights *weights);

#endif
