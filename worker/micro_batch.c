/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/micro_batch.h"

#include <stdbool.h>
#include <string.h>

#include "common/check.h"

enum {
    GROUPS_PROFILED_MAX = 16, /* more micro-batches are cut by length alone */
    LOOKS_MAX = 1 << 20,      /* counts looked at: about 1 ms, where steps take 50 */
};

uint32_t micro_batch_count(uint32_t count, uint32_t size)
{
    uint32_t pairs;

    CHECK(size >= 1);
    if (count <= 1)
        return count;
    pairs = (uint32_t)(((uint64_t)count + 2 * (uint64_t)size - 1) / (2 * (uint64_t)size));
    return 2 * pairs < count ? 2 * pairs : count;
}

size_t micro_batch_scratch(uint32_t count_max, uint32_t cells)
{
    /* Experts of each group; then rows and places taken of each, group and order of each sequence.
     */
    return (size_t)GROUPS_PROFILED_MAX * cells + 4 * (size_t)count_max;
}

struct cutting {
    const struct micro_batch_input *input;
    uint32_t groups;
    float *experts;      /* (groups, cells) sums of shares; NULL: by length alone */
    uint32_t *rows;      /* (groups) */
    uint32_t *taken;     /* (groups) */
    uint32_t *group_of;  /* (count) */
    uint32_t *by_length; /* (count) */
};

/* Sizes differ by one: the first groups have one more. */
static uint32_t room_of(const struct cutting *cutting, uint32_t group)
{
    const uint32_t count = cutting->input->count;

    return count / cutting->groups + (group < count % cutting->groups);
}

/* Longest first, then as they came: decode rows, most of them, are sorted already. */
static void sort_by_length(const struct cutting *cutting)
{
    const uint32_t *rows = cutting->input->rows;

    for (uint32_t i = 0; i < cutting->input->count; i++) {
        uint32_t at = i;

        for (; at > 0 && rows[cutting->by_length[at - 1]] < rows[i]; at--)
            cutting->by_length[at] = cutting->by_length[at - 1];
        cutting->by_length[at] = i;
    }
}

/* How much of what the sequence uses the group's sequences use as well. */
static float likeness(const struct cutting *cutting, uint32_t group, const uint32_t *counts)
{
    const float *experts = cutting->experts + (size_t)group * cutting->input->cells;
    float sum = 0;

    for (uint32_t i = 0; i < cutting->input->cells; i++)
        sum += experts[i] * (float)counts[i];
    return sum;
}

static uint32_t choose_group(const struct cutting *cutting, uint32_t seq)
{
    const uint32_t *counts = cutting->experts ? cutting->input->expert_counts[seq] : NULL;
    uint32_t best = cutting->groups;
    float least = 0;

    for (uint32_t g = 0; g < cutting->groups; g++) {
        bool shorter = best == cutting->groups || cutting->rows[g] < cutting->rows[best];
        float like;

        if (cutting->taken[g] == room_of(cutting, g) ||
            (!shorter && cutting->rows[g] > cutting->rows[best]))
            continue;
        like = counts ? likeness(cutting, g, counts) : 0;
        if (shorter || like < least) {
            best = g;
            least = like;
        }
    }
    CHECK(best < cutting->groups);
    return best;
}

static void put(const struct cutting *cutting, uint32_t seq, uint32_t group)
{
    const struct micro_batch_input *input = cutting->input;
    float total = 0;

    cutting->group_of[seq] = group;
    cutting->rows[group] += input->rows[seq];
    cutting->taken[group]++;
    if (!cutting->experts)
        return;
    for (uint32_t i = 0; i < input->cells; i++)
        total += (float)input->expert_counts[seq][i];
    for (uint32_t i = 0; total > 0 && i < input->cells; i++)
        cutting->experts[(size_t)group * input->cells + i] +=
            (float)input->expert_counts[seq][i] / total;
}

void micro_batch_cut(const struct micro_batch_input *input, float *scratch, uint32_t *order,
                     uint32_t *first)
{
    const uint32_t groups = micro_batch_count(input->count, input->size);
    uint32_t *words = (uint32_t *)(void *)(scratch + (size_t)GROUPS_PROFILED_MAX * input->cells);
    const bool profiled = input->cells > 0 && groups <= GROUPS_PROFILED_MAX &&
                          (uint64_t)input->count * groups * input->cells <= LOOKS_MAX;
    struct cutting cutting = {.input = input,
                              .groups = groups,
                              .experts = profiled ? scratch : NULL,
                              .rows = words,
                              .taken = words + input->count,
                              .group_of = words + 2 * (size_t)input->count,
                              .by_length = words + 3 * (size_t)input->count};
    uint32_t n = 0;

    memset(words, 0, 2 * (size_t)input->count * sizeof *words);
    if (profiled)
        memset(scratch, 0, (size_t)groups * input->cells * sizeof *scratch);
    sort_by_length(&cutting);
    for (uint32_t i = 0; i < input->count; i++)
        put(&cutting, cutting.by_length[i], choose_group(&cutting, cutting.by_length[i]));
    for (uint32_t g = 0; g < groups; g++) {
        first[g] = n;
        for (uint32_t i = 0; i < input->count; i++)
            if (cutting.group_of[i] == g)
                order[n++] = i;
    }
    first[groups] = n;
}
