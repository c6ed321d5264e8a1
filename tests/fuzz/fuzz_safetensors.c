/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a weights file: one error, or tensors that lie inside it.
 */
#include <stddef.h>
#include <stdint.h>

#include "common/check.h"
#include "common/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors *file;
    const struct tensor *tensors;
    struct err err = {0};
    size_t count;

    if (!safetensors_parse(&file, "fuzz", data, size, &err)) {
        CHECK(err.message[0] != '\0');
        return 0;
    }
    tensors = safetensors_tensors(file, &count);
    for (size_t i = 0; i < count; i++) {
        const uint8_t *begin = tensors[i].data;

        CHECK(begin >= data);
        CHECK(tensors[i].size <= size);
        CHECK(begin + tensors[i].size <= data + size);
        CHECK(safetensors_find(file, tensors[i].name) == &tensors[i]);
    }
    safetensors_close(file);
    return 0;
}
