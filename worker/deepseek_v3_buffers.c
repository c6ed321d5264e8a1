/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/deepseek_v3_buffers.h"

#include "kernels/matmul.h"

struct allocator {
    struct device *device;
    struct err *err;
    bool failed;
};

/* rows * columns elements of 4 bytes; NULL after the first failure. */
static void *take(struct allocator *allocator, size_t rows, size_t columns)
{
    void *memory = NULL;

    if (!allocator->failed)
        allocator->failed =
            !device_alloc(allocator->device, rows * columns * 4, &memory, allocator->err);
    return memory;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Bytes for any matmul of the pass. */
static size_t scratch_size(const struct model_config *c, uint32_t rows_max, uint32_t logits_max,
                           uint32_t mlp_width, enum numerics numerics)
{
    size_t size = matmul_scratch_size(rows_max, c->hidden, 1, numerics);

    size = larger(size, matmul_scratch_size(rows_max, c->q_rank, 1, numerics));
    size = larger(size, matmul_scratch_size(rows_max, c->nope_dim, c->heads, numerics));
    size = larger(size, matmul_scratch_size(rows_max, c->kv_rank, c->heads, numerics));
    size = larger(size, matmul_scratch_size(rows_max, c->heads * c->v_dim, 1, numerics));
    size = larger(size, matmul_scratch_size(rows_max, mlp_width, 1, numerics));
    size = larger(size, matmul_scratch_size(rows_max * c->top_k, c->hidden, 1, numerics));
    size = larger(size, matmul_scratch_size(rows_max * c->top_k, c->expert_dim, 1, numerics));
    return larger(size, matmul_scratch_size(logits_max, c->hidden, 1, numerics));
}

bool deepseek_v3_buffers_open(struct deepseek_v3_buffers *buffers,
                              const struct model_config *config, struct device *device,
                              uint32_t rows_max, uint32_t logits_max, enum numerics numerics,
                              struct err *err)
{
    const struct model_config *c = config;
    const size_t rows = rows_max;
    const size_t pairs = rows * c->top_k;
    const uint32_t shared_width = c->shared_experts * c->expert_dim;
    const uint32_t mlp_width = c->mlp_dim > shared_width ? c->mlp_dim : shared_width;
    struct allocator a = {.device = device, .err = err};

    *buffers = (struct deepseek_v3_buffers){
        .x = take(&a, rows, c->hidden),
        .normed = take(&a, rows, c->hidden),
        .q_a = take(&a, rows, c->q_rank),
        .q = take(&a, rows * c->heads, c->nope_dim + c->rope_dim),
        .kv = take(&a, rows, c->kv_rank + c->rope_dim),
        .q_latent = take(&a, rows * c->heads, c->kv_rank),
        .context = take(&a, rows * c->heads, c->kv_rank),
        .value = take(&a, rows * c->heads, c->v_dim),
        .gate_logits = take(&a, rows, c->experts),
        .gate_weights = take(&a, rows, c->top_k),
        .experts = take(&a, model_config_expert_layers(c), pairs),
        .mlp_gate = take(&a, rows, mlp_width),
        .mlp_up = take(&a, rows, mlp_width),
        .shared = take(&a, rows, c->hidden),
        .expert_gate = take(&a, pairs, c->expert_dim),
        .expert_up = take(&a, pairs, c->expert_dim),
        .expert_out = take(&a, pairs, c->hidden),
        .last = take(&a, logits_max, c->hidden),
        .logits = take(&a, logits_max, c->vocab_size),
        .scratch =
            take(&a, (scratch_size(c, rows_max, logits_max, mlp_width, numerics) + 3) / 4, 1),
        .mlp_width = mlp_width,
    };
    if (a.failed)
        deepseek_v3_buffers_close(buffers, device);
    return !a.failed;
}

void deepseek_v3_buffers_close(struct deepseek_v3_buffers *buffers, struct device *device)
{
    void *const memory[] = {
        buffers->x,           buffers->normed,       buffers->q_a,         buffers->q,
        buffers->kv,          buffers->q_latent,     buffers->context,     buffers->value,
        buffers->gate_logits, buffers->gate_weights, buffers->experts,     buffers->mlp_gate,
        buffers->mlp_up,      buffers->shared,       buffers->expert_gate, buffers->expert_up,
        buffers->expert_out,  buffers->last,         buffers->logits,      buffers->scratch,
    };

    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        device_free(device, memory[i]);
    *buffers = (struct deepseek_v3_buffers){0};
}
