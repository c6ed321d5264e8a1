/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_kernels - one table: how long each kernel takes on shapes of the demo
 * model and of DeepSeek-V3, and how far that is from what the machine can do.
 *
 * The limit is the larger of two times: reading the weights or the cache once,
 * and doing the multiply-adds, both at rates measured in the same run. Shapes
 * whose weights fit into a cache may exceed 100 %.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>

#include "common/check.h"
#include "kernels/backend.h"
#include "ops/bench/kernels_peak.h"

struct bench {
    const struct backend *backend;
    struct device *device;
    struct stream *stream;
    struct peak peak;
    clockid_t clock;
    const char *only; /* an operation's name, or NULL */
};

/* What one call costs at least. */
struct cost {
    double n_flops;
    double n_flops_f32; /* of these: done in float in both modes */
    double n_bytes;
};

typedef bool kernel_call(const struct bench *bench, const void *args, struct err *err);

static void *allocate(const struct bench *bench, size_t size)
{
    void *memory;
    struct err err;

    if (!device_alloc(bench->device, size, &memory, &err)) {
        fprintf(stderr, "bench_kernels: %s\n", err.message);
        exit(EX_OSERR);
    }
    return memory;
}

static void *fill_bf16(const struct bench *bench, size_t count)
{
    uint16_t *values = allocate(bench, count * sizeof *values);

    for (size_t i = 0; i < count; i++)
        values[i] = (uint16_t)(0x3c00 + i % 251); /* about 1/100: nothing overflows */
    return values;
}

static float *fill_f32(const struct bench *bench, size_t count)
{
    float *values = allocate(bench, count * sizeof *values);

    for (size_t i = 0; i < count; i++)
        values[i] = (float)(i % 37) / 37 - 0.5f;
    return values;
}

/* Calls until 0.3 s are over, at least 3 times, and prints the line of the shortest call. */
static void report(const struct bench *bench, const char *op, const char *shape,
                   enum numerics numerics, struct cost cost, kernel_call *call, const void *args)
{
    const double gflops =
        numerics == NUMERICS_F32 ? bench->peak.f32_gflops : bench->peak.bf16_gflops;
    const double flops_limit =
        ((cost.n_flops - cost.n_flops_f32) / gflops + cost.n_flops_f32 / bench->peak.f32_gflops) *
        1e-9;
    const double bytes_limit = cost.n_bytes / bench->peak.read_gbs * 1e-9;
    const double limit = flops_limit > bytes_limit ? flops_limit : bytes_limit;
    const double start = peak_now(bench->clock);
    double best = 1e9;
    struct err err;

    for (int i = 0; i < 3 || peak_now(bench->clock) - start < 0.3; i++) {
        const double call_start = peak_now(bench->clock);
        if (!call(bench, args, &err)) {
            fprintf(stderr, "bench_kernels: %s: %s\n", op, err.message);
            exit(EX_SOFTWARE);
        }
        const double seconds = peak_now(bench->clock) - call_start;
        best = seconds < best ? seconds : best;
    }
    printf("%-15s %-28s %-5s %11.1f %8.1f %8.1f %6.0f%% of %s\n", op, shape,
           numerics == NUMERICS_F32 ? "f32" : "bf16", best * 1e6, cost.n_bytes / best * 1e-9,
           cost.n_flops / best * 1e-9, 100 * limit / best,
           flops_limit > bytes_limit ? "flops" : "reads");
    fflush(stdout);
}

static bool wanted(const struct bench *bench, const char *op)
{
    return !bench->only || strcmp(bench->only, op) == 0;
}

static bool call_matmul(const struct bench *bench, const void *args, struct err *err)
{
    return bench->backend->matmul(bench->stream, args, err);
}

static void bench_matmul(const struct bench *bench, uint32_t n_in, uint32_t n_out,
                         uint32_t n_batches, enum matmul_layout layout)
{
    const uint32_t rows[] = {1, 8, 32, 128};
    const uint32_t rows_max = 128;
    float *x = fill_f32(bench, (size_t)rows_max * n_in * n_batches);
    void *w = fill_bf16(bench, (size_t)n_in * n_out * n_batches);
    float *out = fill_f32(bench, (size_t)rows_max * n_out * n_batches);
    void *scratch = allocate(bench, matmul_scratch_size(rows_max, n_in, n_batches, NUMERICS_BF16));

    for (int numerics = NUMERICS_F32; numerics <= NUMERICS_BF16; numerics++) {
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            const struct matmul_args args = {
                .x = x,
                .w = w,
                .out = out,
                .scratch = scratch,
                .x_stride = (size_t)n_in * n_batches,
                .w_stride = layout == MATMUL_OUT_IN ? n_in : n_out,
                .out_stride = (size_t)n_out * n_batches,
                .x_batch_stride = n_in,
                .w_batch_stride = (size_t)n_in * n_out,
                .out_batch_stride = n_out,
                .w_dtype = DTYPE_BF16,
                .layout = layout,
                .numerics = (enum numerics)numerics,
                .n_rows = rows[i],
                .n_in = n_in,
                .n_out = n_out,
                .n_batches = n_batches,
            };
            const double n_weights = (double)n_in * n_out * n_batches;
            char shape[64];
            snprintf(shape, sizeof shape, "%u x %u x %u%s", rows[i], n_in, n_out,
                     n_batches == 1            ? ""
                     : layout == MATMUL_OUT_IN ? ", 128 heads"
                                               : ", 128 heads, turned");
            report(
                bench, "matmul", shape, (enum numerics)numerics,
                (struct cost){.n_flops = 2 * n_weights * rows[i],
                              .n_flops_f32 = layout == MATMUL_IN_OUT ? 2 * n_weights * rows[i] : 0,
                              .n_bytes = 2 * n_weights},
                call_matmul, &args);
        }
    }
    device_free(bench->device, x);
    device_free(bench->device, w);
    device_free(bench->device, out);
    device_free(bench->device, scratch);
}

static bool call_grouped(const struct bench *bench, const void *args, struct err *err)
{
    return bench->backend->matmul_grouped(bench->stream, args, err);
}

/* n_tokens tokens with 8 experts each, the experts taking turns. */
static void bench_grouped(const struct bench *bench, uint32_t n_tokens, uint32_t n_experts,
                          uint32_t n_in, uint32_t n_out)
{
    const uint32_t n_rows = n_tokens * 8;
    const uint32_t n_busy = n_rows < n_experts ? n_rows : n_experts;
    float *x = fill_f32(bench, (size_t)n_rows * n_in);
    uint16_t *w = fill_bf16(bench, (size_t)n_experts * n_in * n_out);
    float *out = fill_f32(bench, (size_t)n_rows * n_out);
    void *scratch = allocate(bench, matmul_scratch_size(n_rows, n_in, 1, NUMERICS_BF16));
    const void **experts = allocate(bench, n_experts * sizeof *experts);
    uint32_t *offsets = allocate(bench, (n_experts + 1) * sizeof *offsets);
    char shape[64];

    for (uint32_t e = 0; e < n_experts; e++) {
        experts[e] = w + (size_t)e * n_in * n_out;
        offsets[e + 1] = offsets[e] + n_rows / n_experts + (e < n_rows % n_experts);
    }
    snprintf(shape, sizeof shape, "%u x 8 of %u, %u x %u", n_tokens, n_experts, n_in, n_out);
    for (int numerics = NUMERICS_F32; numerics <= NUMERICS_BF16; numerics++) {
        const struct matmul_grouped_args args = {.x = x,
                                                 .w = experts,
                                                 .offsets = offsets,
                                                 .out = out,
                                                 .scratch = scratch,
                                                 .x_stride = n_in,
                                                 .out_stride = n_out,
                                                 .w_dtype = DTYPE_BF16,
                                                 .numerics = (enum numerics)numerics,
                                                 .n_rows_max = n_rows,
                                                 .n_in = n_in,
                                                 .n_out = n_out,
                                                 .n_groups = n_experts};
        report(bench, "matmul_grouped", shape, (enum numerics)numerics,
               (struct cost){.n_flops = 2.0 * n_in * n_out * n_rows,
                             .n_bytes = 2.0 * n_in * n_out * n_busy},
               call_grouped, &args);
    }
    device_free(bench->device, x);
    device_free(bench->device, w);
    device_free(bench->device, out);
    device_free(bench->device, scratch);
    device_free(bench->device, experts);
    device_free(bench->device, offsets);
}

static bool call_attention(const struct bench *bench, const void *args, struct err *err)
{
    return bench->backend->mla_attention(bench->stream, args, err);
}

/* n_seqs sequences with n_rows new tokens each, after n_before tokens. */
static void bench_attention(const struct bench *bench, uint32_t n_heads, uint32_t kv_rank,
                            uint32_t rope_dim, uint32_t n_seqs, uint32_t n_rows, uint32_t n_before)
{
    enum { PAGE_SIZE = 16 };
    const uint32_t n_tokens = n_seqs * n_rows, entry = kv_rank + rope_dim;
    const uint32_t n_pages = (n_before + n_rows + PAGE_SIZE - 1) / PAGE_SIZE;
    float *q_latent = fill_f32(bench, (size_t)n_tokens * n_heads * kv_rank);
    float *q_rope = fill_f32(bench, (size_t)n_tokens * n_heads * rope_dim);
    float *out = fill_f32(bench, (size_t)n_tokens * n_heads * kv_rank);
    float *cache = fill_f32(bench, (size_t)n_seqs * n_pages * PAGE_SIZE * entry);
    uint32_t *lists = allocate(bench, (3 + n_pages) * n_seqs * sizeof *lists);
    const double n_keys = (n_before + 0.5 * (n_rows + 1)) * n_tokens;
    char shape[64];

    for (uint32_t s = 0; s < n_seqs; s++) {
        lists[s] = s * n_rows;
        lists[n_seqs + s] = n_rows;
        lists[2 * n_seqs + s] = n_before;
        for (uint32_t page = 0; page < n_pages; page++)
            lists[3 * n_seqs + s * n_pages + page] = s * n_pages + page;
    }
    snprintf(shape, sizeof shape, "%u x %u + %u, %u x %u", n_seqs, n_before, n_rows, n_heads,
             entry);
    for (int numerics = NUMERICS_F32; numerics <= NUMERICS_BF16; numerics++) {
        const struct mla_attention_args args = {
            .batch = {.first_row = lists,
                      .n_rows = lists + n_seqs,
                      .first_position = lists + 2 * n_seqs,
                      .pages = lists + 3 * n_seqs,
                      .pages_stride = n_pages,
                      .n_seqs = n_seqs,
                      .page_size = PAGE_SIZE},
            .q_latent = q_latent,
            .q_rope = q_rope,
            .cache = cache,
            .out = out,
            .q_latent_stride = (size_t)n_heads * kv_rank,
            .q_rope_stride = (size_t)n_heads * rope_dim,
            .q_rope_head_stride = rope_dim,
            .out_stride = (size_t)n_heads * kv_rank,
            .page_stride = (size_t)PAGE_SIZE * entry,
            .numerics = (enum numerics)numerics,
            .n_tokens = n_tokens,
            .n_heads = n_heads,
            .kv_rank = kv_rank,
            .rope_dim = rope_dim,
            .scale = 0.1f,
        };
        const double entry_size = (double)entry * (numerics == NUMERICS_F32 ? 4 : 2);
        report(bench, "mla_attention", shape, (enum numerics)numerics,
               (struct cost){.n_flops = 2 * n_keys * n_heads * (entry + kv_rank),
                             .n_flops_f32 = 2 * n_keys * n_heads * kv_rank,
                             .n_bytes = (double)n_seqs * (n_before + n_rows) * entry_size},
               call_attention, &args);
    }
    device_free(bench->device, q_latent);
    device_free(bench->device, q_rope);
    device_free(bench->device, out);
    device_free(bench->device, cache);
    device_free(bench->device, lists);
}

static bool call_rmsnorm(const struct bench *bench, const void *args, struct err *err)
{
    return bench->backend->rmsnorm(bench->stream, args, err);
}

static void bench_rmsnorm(const struct bench *bench, uint32_t n_rows, uint32_t dim)
{
    float *x = fill_f32(bench, (size_t)n_rows * dim);
    float *out = fill_f32(bench, (size_t)n_rows * dim);
    void *w = fill_bf16(bench, dim);
    const struct rmsnorm_args args = {.x = x,
                                      .w = w,
                                      .out = out,
                                      .x_stride = dim,
                                      .out_stride = dim,
                                      .w_dtype = DTYPE_BF16,
                                      .n_rows = n_rows,
                                      .dim = dim,
                                      .eps = 1e-6f};
    char shape[64];

    snprintf(shape, sizeof shape, "%u x %u", n_rows, dim);
    report(bench, "rmsnorm", shape, NUMERICS_F32,
           (struct cost){.n_flops = 4.0 * n_rows * dim, .n_bytes = 4.0 * n_rows * dim},
           call_rmsnorm, &args);
    device_free(bench->device, x);
    device_free(bench->device, out);
    device_free(bench->device, w);
}

static bool call_swiglu(const struct bench *bench, const void *args, struct err *err)
{
    return bench->backend->swiglu(bench->stream, args, err);
}

static void bench_swiglu(const struct bench *bench, uint32_t n_rows, uint32_t dim)
{
    float *gate = fill_f32(bench, (size_t)n_rows * dim);
    float *up = fill_f32(bench, (size_t)n_rows * dim);
    float *out = fill_f32(bench, (size_t)n_rows * dim);
    const struct swiglu_args args = {.gate = gate,
                                     .up = up,
                                     .out = out,
                                     .gate_stride = dim,
                                     .up_stride = dim,
                                     .out_stride = dim,
                                     .n_rows = n_rows,
                                     .dim = dim};
    char shape[64];

    snprintf(shape, sizeof shape, "%u x %u", n_rows, dim);
    report(bench, "swiglu", shape, NUMERICS_F32,
           (struct cost){.n_flops = 20.0 * n_rows * dim, .n_bytes = 8.0 * n_rows * dim},
           call_swiglu, &args);
    device_free(bench->device, gate);
    device_free(bench->device, up);
    device_free(bench->device, out);
}

static bool call_gate(const struct bench *bench, const void *args, struct err *err)
{
    return bench->backend->moe_gate(bench->stream, args, err);
}

static void bench_gate(const struct bench *bench, uint32_t n_tokens)
{
    float *logits = fill_f32(bench, (size_t)n_tokens * 256);
    float *weights = fill_f32(bench, (size_t)n_tokens * 8);
    uint32_t *experts = allocate(bench, (size_t)n_tokens * 8 * sizeof *experts);
    const struct moe_gate_args args = {.logits = logits,
                                       .experts = experts,
                                       .weights = weights,
                                       .n_tokens = n_tokens,
                                       .n_experts = 256,
                                       .n_groups = 8,
                                       .groups_top = 4,
                                       .top_k = 8,
                                       .scale = 2.5f,
                                       .normalize = true};
    char shape[64];

    snprintf(shape, sizeof shape, "%u, 8 of 256 in 4 of 8", n_tokens);
    report(bench, "moe_gate", shape, NUMERICS_F32,
           (struct cost){.n_flops = 20.0 * n_tokens * 256, .n_bytes = 4.0 * n_tokens * 256},
           call_gate, &args);
    device_free(bench->device, logits);
    device_free(bench->device, weights);
    device_free(bench->device, experts);
}

static void bench_all(const struct bench *bench)
{
    if (wanted(bench, "matmul")) {
        bench_matmul(bench, 192, 384, 1, MATMUL_OUT_IN);
        bench_matmul(bench, 192, 2048, 1, MATMUL_OUT_IN);
        bench_matmul(bench, 1024, 512, 1, MATMUL_OUT_IN);
        bench_matmul(bench, 2048, 2048, 1, MATMUL_OUT_IN);
        bench_matmul(bench, 7168, 18432, 1, MATMUL_OUT_IN);
        bench_matmul(bench, 128, 512, 128, MATMUL_IN_OUT);
        bench_matmul(bench, 512, 128, 128, MATMUL_OUT_IN);
    }
    if (wanted(bench, "matmul_grouped")) {
        bench_grouped(bench, 1, 16, 192, 64);
        bench_grouped(bench, 32, 16, 192, 64);
        bench_grouped(bench, 16, 256, 1024, 512);
        bench_grouped(bench, 16, 256, 512, 1024);
        bench_grouped(bench, 128, 256, 1024, 512);
        bench_grouped(bench, 128, 256, 512, 1024);
        bench_grouped(bench, 1, 64, 2048, 1408);
        bench_grouped(bench, 32, 64, 2048, 1408);
        bench_grouped(bench, 256, 64, 2048, 1408);
    }
    if (wanted(bench, "mla_attention")) {
        bench_attention(bench, 6, 64, 16, 1, 1, 200);
        bench_attention(bench, 6, 64, 16, 32, 1, 200);
        bench_attention(bench, 6, 64, 16, 1, 200, 0);
        bench_attention(bench, 16, 256, 32, 1, 1, 200);
        bench_attention(bench, 16, 256, 32, 32, 1, 200);
        bench_attention(bench, 16, 256, 32, 4, 128, 0);
        bench_attention(bench, 128, 512, 64, 1, 1, 4000);
        bench_attention(bench, 128, 512, 64, 32, 1, 1000);
        bench_attention(bench, 128, 512, 64, 1, 256, 0);
    }
    if (wanted(bench, "rmsnorm")) {
        bench_rmsnorm(bench, 32, 192);
        bench_rmsnorm(bench, 32, 7168);
    }
    if (wanted(bench, "swiglu")) {
        bench_swiglu(bench, 128, 64);
        bench_swiglu(bench, 256, 2048);
    }
    if (wanted(bench, "moe_gate")) {
        bench_gate(bench, 1);
        bench_gate(bench, 256);
    }
}

static int usage(FILE *to, int status)
{
    fputs("usage: bench_kernels [--backend NAME] [--threads N | --cpu-time] [--only OPERATION]\n"
          "Times every kernel and compares it with the measured limits of this machine.\n"
          "  --backend NAME    auto, ref, cpu-avx2, cpu-avx512 or cpu-avx512bf16 (auto)\n"
          "  --threads N       0 means one per core (0)\n"
          "  --only OPERATION  matmul, matmul_grouped, mla_attention, rmsnorm, swiglu, moe_gate\n"
          "  --cpu-time        one thread, processor time: for a machine that others use too\n"
          "  --help, --version\n",
          to);
    return status;
}

int main(int argc, char **argv)
{
    struct device_options options = {.kind = DEVICE_CPU};
    struct bench bench = {.clock = CLOCK_MONOTONIC};
    const char *name = "auto";
    struct pool *pool;
    struct err err;

    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--help") == 0)
            return usage(stdout, EX_OK);
        if (strcmp(argv[i], "--version") == 0)
            return puts("bench_kernels " PELTON_VERSION) < 0 ? EX_IOERR : EX_OK;
        if (strcmp(argv[i], "--cpu-time") == 0) {
            bench.clock = CLOCK_PROCESS_CPUTIME_ID;
            options.n_threads = 1;
            continue;
        }
        if (strcmp(argv[i], "--backend") == 0 && value)
            name = value;
        else if (strcmp(argv[i], "--threads") == 0 && value)
            options.n_threads = (uint32_t)strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--only") == 0 && value)
            bench.only = value;
        else
            return usage(stderr, EX_USAGE);
        i++;
    }
    if (!backend_find(name, &bench.backend, &err) || !device_open(options, &bench.device, &err) ||
        !stream_open(bench.device, &bench.stream, &err) ||
        !pool_open(device_n_threads(bench.device), &pool, &err)) {
        fprintf(stderr, "bench_kernels: %s\n", err.message);
        return EX_UNAVAILABLE;
    }
    bench.peak = peak_measure(pool, bench.clock);
    pool_close(pool);
    printf("back end %s, %u threads; reads %.1f GB/s, f32 %.0f GFLOP/s, bf16 %.0f GFLOP/s\n\n",
           bench.backend->name, device_n_threads(bench.device), bench.peak.read_gbs,
           bench.peak.f32_gflops, bench.peak.bf16_gflops);
    printf("%-15s %-28s %-5s %11s %8s %8s %s\n", "operation", "shape", "mode", "us", "GB/s",
           "GFLOP/s", " share of limit");
    bench_all(&bench);
    stream_close(bench.stream);
    device_close(bench.device);
    return EX_OK;
}
