/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/expert_profile.h"

#include <stddef.h>

struct expert_profile_shape expert_profile_shape(uint32_t layers, uint32_t experts, uint32_t top_k)
{
    struct expert_profile_shape shape = {.experts = experts, .top_k = top_k, .stride = 1};
    const uint32_t layers_max =
        experts > 0 && experts <= EXPERT_PROFILE_CELLS_MAX ? EXPERT_PROFILE_CELLS_MAX / experts : 0;

    if (layers_max == 0 || layers == 0)
        return shape;
    shape.stride = (layers + layers_max - 1) / layers_max;
    shape.layers = (layers + shape.stride - 1) / shape.stride;
    return shape;
}

uint32_t expert_profile_cells(const struct expert_profile_shape *shape)
{
    return shape->layers * shape->experts;
}

void expert_profile_count(const struct expert_profile_shape *shape, uint32_t *counts, uint32_t nth,
                          const uint32_t *experts, uint32_t n_tokens)
{
    uint32_t *layer = counts + (size_t)nth * shape->experts;

    for (size_t i = 0; i < (size_t)n_tokens * shape->top_k; i++)
        layer[experts[i]]++;
}

void expert_profile_scale(const struct expert_profile_shape *shape, const uint32_t *counts,
                          int32_t *scaled)
{
    for (uint32_t l = 0; l < shape->layers; l++) {
        const uint32_t *from = counts + (size_t)l * shape->experts;
        int32_t *to = scaled + (size_t)l * shape->experts;
        uint32_t largest = 1;

        for (uint32_t e = 0; e < shape->experts; e++)
            largest = from[e] > largest ? from[e] : largest;
        for (uint32_t e = 0; e < shape->experts; e++)
            to[e] =
                (int32_t)(((uint64_t)from[e] * EXPERT_PROFILE_COUNT_MAX + largest / 2) / largest);
    }
}
