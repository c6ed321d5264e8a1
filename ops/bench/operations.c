/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_operations - where the time of a step goes: every operation of a
 * model's decode steps with 1, 8 and 32 sequences and of its prefill, its share
 * of the step, and how near it comes to its roofline.
 *
 * An operation's limit is the larger of the time to read its weights or cache
 * once and the time to do its multiply-adds, at rates measured in the same run;
 * norms and the like have none, they are overhead. The sum of the limits bounds
 * an engine that does one operation after the other.
 *
 * The linker puts this program's backend_find in the place of the real one
 * (CMakeLists.txt), and so a table of kernels that are timed. The struct err
 * that the engine hands down to every kernel is the first member of struct
 * bench, which is how a kernel finds it: the engine itself knows of no clock.
 */
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "common/check.h"
#include "kernels/backend.h"
#include "ops/bench/engine_prompts.h"
#include "ops/bench/kernels_peak.h"
#include "worker/engine.h"
#include "worker/weights.h"

enum {
    BATCH_MAX = 32,
    OPERATIONS_MAX = 48,
};

/* Calls of one kernel with weights of one shape. */
struct operation {
    const char *name;
    uint32_t n_in, n_out, n_batches; /* 0 where it has no weights */
    double calls, seconds;
    double limit; /* seconds */
    double bytes, flops;
};

/* What one call must read and do at least. */
struct cost {
    double bytes;
    double flops;
    double flops_f32; /* of these: in float in both modes */
};

/* Steps of one kind. */
struct phase {
    struct operation operations[OPERATIONS_MAX];
    size_t count;
    double steps, tokens, seconds;
};

struct bench {
    struct err err; /* first: what every kernel is called with */
    struct backend timed;
    const struct backend *real;
    struct phase decode, prefill;
    struct phase *phase; /* the current step's */
    struct peak peak;
    clockid_t clock;
    enum engine_numerics numerics;
};

static struct bench *bench_of(struct err *err)
{
    return (struct bench *)err;
}

static struct operation *find(struct phase *phase, const struct operation *key)
{
    for (size_t i = 0; i < phase->count; i++) {
        struct operation *o = &phase->operations[i];

        if (strcmp(o->name, key->name) == 0 && o->n_in == key->n_in && o->n_out == key->n_out &&
            o->n_batches == key->n_batches)
            return o;
    }
    CHECK(phase->count < OPERATIONS_MAX);
    phase->operations[phase->count] = *key;
    return &phase->operations[phase->count++];
}

/* Books a call that began at start. */
static void book(struct bench *bench, double start, struct operation key, struct cost cost)
{
    const double seconds = peak_now(bench->clock) - start;
    const double gflops =
        bench->numerics == ENGINE_F32 ? bench->peak.f32_gflops : bench->peak.bf16_gflops;
    const double reads = cost.bytes / bench->peak.read_gbs;
    const double adds =
        (cost.flops - cost.flops_f32) / gflops + cost.flops_f32 / bench->peak.f32_gflops;
    struct operation *o = find(bench->phase, &key);

    o->calls++;
    o->seconds += seconds;
    o->limit += 1e-9 * (reads > adds ? reads : adds);
    o->bytes += cost.bytes;
    o->flops += cost.flops;
}

static bool timed_matmul(struct stream *stream, const struct matmul_args *args, struct err *err)
{
    struct bench *bench = bench_of(err);
    const double start = peak_now(bench->clock);
    const bool ok = bench->real->matmul(stream, args, err);
    const double n_weights = (double)args->n_in * args->n_out * args->n_batches;
    const double flops = 2 * n_weights * args->n_rows;
    const bool f32 = args->layout == MATMUL_IN_OUT || args->numerics == NUMERICS_F32;

    book(bench, start,
         (struct operation){.name = args->layout == MATMUL_IN_OUT ? "matmul, turned" : "matmul",
                            .n_in = args->n_in,
                            .n_out = args->n_out,
                            .n_batches = args->n_batches},
         (struct cost){.bytes = n_weights * (double)dtype_size(args->w_dtype),
                       .flops = flops,
                       .flops_f32 = f32 ? flops : 0});
    return ok;
}

static bool timed_grouped(struct stream *stream, const struct matmul_grouped_args *args,
                          struct err *err)
{
    struct bench *bench = bench_of(err);
    const double start = peak_now(bench->clock);
    const bool ok = bench->real->matmul_grouped(stream, args, err);
    const double n_weights = (double)args->n_in * args->n_out;
    uint32_t n_busy = 0;

    for (uint32_t g = 0; g < args->n_groups; g++)
        n_busy += args->offsets[g] < args->offsets[g + 1];
    book(bench, start,
         (struct operation){.name = "matmul_grouped",
                            .n_in = args->n_in,
                            .n_out = args->n_out,
                            .n_batches = args->n_groups},
         (struct cost){.bytes = n_weights * n_busy * (double)dtype_size(args->w_dtype),
                       .flops = 2 * n_weights * args->offsets[args->n_groups]});
    return ok;
}

static bool timed_attention(struct stream *stream, const struct mla_attention_args *args,
                            struct err *err)
{
    struct bench *bench = bench_of(err);
    const double start = peak_now(bench->clock);
    const bool ok = bench->real->mla_attention(stream, args, err);
    const struct ragged *batch = &args->batch;
    const double entry = args->kv_rank + args->rope_dim;
    double n_entries = 0, n_keys = 0;

    for (uint32_t s = 0; s < batch->n_seqs; s++) {
        const double rows = batch->n_rows[s];

        n_entries += batch->first_position[s] + rows;
        n_keys += rows * (batch->first_position[s] + (rows + 1) / 2);
    }
    book(bench, start, (struct operation){.name = "mla_attention"},
         (struct cost){.bytes = n_entries * entry *
                                (double)dtype_size(numerics_kv_dtype(args->numerics)),
                       .flops = 2 * n_keys * args->n_heads * (entry + args->kv_rank),
                       .flops_f32 = 2 * n_keys * args->n_heads * args->kv_rank});
    return ok;
}

/* Kernels without weights: what they take is overhead. */
#define TIMED(kernel)                                                                              \
    static bool timed_##kernel(struct stream *stream, const struct kernel##_args *args,            \
                               struct err *err)                                                    \
    {                                                                                              \
        struct bench *bench = bench_of(err);                                                       \
        const double start = peak_now(bench->clock);                                               \
        const bool ok = bench->real->kernel(stream, args, err);                                    \
                                                                                                   \
        book(bench, start, (struct operation){.name = #kernel}, (struct cost){0});                 \
        return ok;                                                                                 \
    }
TIMED(embedding)
TIMED(rmsnorm)
TIMED(rope)
TIMED(kv_write)
TIMED(moe_gate)
TIMED(moe_permute)
TIMED(moe_combine)
TIMED(swiglu)

bool __real_backend_find(const char *name, const struct backend **backend, struct err *err);
bool __wrap_backend_find(const char *name, const struct backend **backend, struct err *err);

bool __wrap_backend_find(const char *name, const struct backend **backend, struct err *err)
{
    struct bench *bench = bench_of(err);

    if (!__real_backend_find(name, &bench->real, err))
        return false;
    bench->timed = *bench->real;
    bench->timed.embedding = timed_embedding;
    bench->timed.rmsnorm = timed_rmsnorm;
    bench->timed.matmul = timed_matmul;
    bench->timed.matmul_grouped = timed_grouped;
    bench->timed.rope = timed_rope;
    bench->timed.kv_write = timed_kv_write;
    bench->timed.mla_attention = timed_attention;
    bench->timed.moe_gate = timed_moe_gate;
    bench->timed.moe_permute = timed_moe_permute;
    bench->timed.moe_combine = timed_moe_combine;
    bench->timed.swiglu = timed_swiglu;
    *backend = &bench->timed;
    return true;
}

/* One batch from its prompts to its answers' ends. */
static bool run_batch(struct bench *bench, struct engine *engine, uint32_t batch)
{
    struct engine_token tokens[BATCH_MAX];
    struct engine_usage usage;
    uint32_t said = 0;
    size_t count;

    if (!prompts_submit(engine, batch, 1, &bench->err))
        return false;
    while (engine_has_work(engine)) {
        struct phase *phase = said == batch ? &bench->decode : &bench->prefill;
        const double start = peak_now(bench->clock);

        bench->phase = phase;
        if (!engine_step(engine, tokens, &count, &bench->err))
            return false;
        phase->seconds += peak_now(bench->clock) - start;
        phase->steps++;
        for (size_t i = 0; i < count; i++) {
            said += tokens[i].index == 0;
            phase->tokens += phase == &bench->decode ? 1 : 0;
            phase->tokens += phase == &bench->prefill && tokens[i].index == 0 ? PROMPT_TOKENS : 0;
            if (tokens[i].finish != ENGINE_RUNNING)
                engine_remove(engine, tokens[i].tag, &usage);
        }
    }
    return true;
}

static int by_time(const void *a, const void *b)
{
    const struct operation *left = a, *right = b;

    return (left->seconds < right->seconds) - (left->seconds > right->seconds);
}

static void print_operation(const struct phase *phase, const struct operation *o)
{
    char shape[48] = "";

    if (o->n_batches > 1)
        snprintf(shape, sizeof shape, "%u x %u, %u of them", o->n_in, o->n_out, o->n_batches);
    else if (o->n_batches == 1)
        snprintf(shape, sizeof shape, "%u x %u", o->n_in, o->n_out);
    printf("%-15s %-26s %6.0f %9.3f %6.1f%%", o->name, shape, o->calls / phase->steps,
           1e3 * o->seconds / phase->steps, 100 * o->seconds / phase->seconds);
    if (o->limit > 0)
        printf(" %8.1f %8.1f %6.0f%%", 1e-9 * o->bytes / o->seconds, 1e-9 * o->flops / o->seconds,
               100 * o->limit / o->seconds);
    putchar('\n');
}

static void print_phase(const char *what, uint32_t batch, struct phase *phase)
{
    struct operation sum = {0};

    qsort(phase->operations, phase->count, sizeof *phase->operations, by_time);
    printf("\n%s, batch %u: %.0f tokens/s\n", what, batch, phase->tokens / phase->seconds);
    printf("%-15s %-26s %6s %9s %7s %8s %8s %7s\n", "operation", "weights", "calls", "ms/step",
           "share", "GB/s", "GFLOP/s", "limit");
    for (size_t i = 0; i < phase->count; i++) {
        const struct operation *o = &phase->operations[i];

        print_operation(phase, o);
        sum.calls += o->calls;
        sum.seconds += o->seconds;
        sum.limit += o->limit;
        sum.bytes += o->bytes;
        sum.flops += o->flops;
    }
    printf("%-42s %6s %9.3f %6.1f%%\n", "outside kernels", "",
           1e3 * (phase->seconds - sum.seconds) / phase->steps,
           100 * (1 - sum.seconds / phase->seconds));
    sum.name = "step";
    sum.seconds = phase->seconds;
    print_operation(phase, &sum);
    fflush(stdout);
    *phase = (struct phase){0};
}

static bool run(struct bench *bench, const struct engine_config *config, double seconds)
{
    static const uint32_t batches[] = {1, 8, BATCH_MAX};
    struct engine *engine = NULL;
    struct weights *weights;
    struct pool *pool;
    uint64_t size;
    bool ok;

    if (!weights_open(&weights, config->model_dir, &bench->err))
        return false;
    size = weights_size(weights);
    weights_close(weights);
    if (!pool_open(config->threads, &pool, &bench->err))
        return false;
    bench->peak = peak_measure(pool, bench->clock);
    bench->peak.read_gbs = peak_reads(pool, bench->clock, size);
    pool_close(pool);
    printf("%.1f MB of weights, %u threads%s; limits: reads %.1f GB/s, f32 %.0f GFLOP/s, "
           "bf16 %.0f GFLOP/s\n",
           (double)size / 1e6, config->threads, bench->clock == CLOCK_MONOTONIC ? "" : ", CPU time",
           bench->peak.read_gbs, bench->peak.f32_gflops, bench->peak.bf16_gflops);
    /* The first batch faults the weights in. */
    ok = engine_open(&engine, config, &bench->err) && run_batch(bench, engine, 1);
    for (size_t i = 0; ok && i < sizeof batches / sizeof *batches; i++) {
        bench->decode = bench->prefill = (struct phase){0};
        while (ok && bench->decode.seconds + bench->prefill.seconds < seconds)
            ok = run_batch(bench, engine, batches[i]);
        if (ok)
            print_phase("decode", batches[i], &bench->decode);
    }
    if (ok)
        print_phase("prefill", BATCH_MAX, &bench->prefill);
    engine_close(engine);
    return ok;
}

static const char help[] =
    "usage: bench_operations [options] MODEL_DIR\n"
    "Where the time of decode and prefill steps goes, operation by operation, and the share of\n"
    "its roofline that each reaches.\n"
    "  --backend NAME          auto (default), ref, cpu-avx2, cpu-avx512, cpu-avx512bf16\n"
    "  --numerics f32|bf16     default f32\n"
    "  --threads N             default 2\n"
    "  --seconds S             at least so long for each batch size; default 3\n"
    "  --cpu-time              one thread, measured by its CPU time: for a machine that is shared\n"
    "  --help\n";

int main(int argc, char **argv)
{
    static const struct option long_options[] = {
        {"backend", required_argument, NULL, 'b'},
        {"numerics", required_argument, NULL, 'n'},
        {"threads", required_argument, NULL, 't'},
        {"seconds", required_argument, NULL, 's'},
        {"cpu-time", no_argument, NULL, 'c'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct engine_config config = {.backend = "auto",
                                   .threads = 2,
                                   .max_seqs = BATCH_MAX,
                                   .max_context = PROMPT_TOKENS + ANSWER_TOKENS};
    struct bench *bench = calloc(1, sizeof *bench);
    double seconds = 3;
    bool ok = bench != NULL;

    CHECK(bench);
    bench->clock = CLOCK_MONOTONIC;
    for (int option; (option = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        if (option == 'h') {
            free(bench);
            return fputs(help, stdout) < 0 ? EX_IOERR : EX_OK;
        }
        if (option == 'b')
            config.backend = optarg;
        else if (option == 'n' && (strcmp(optarg, "bf16") == 0 || strcmp(optarg, "f32") == 0))
            config.numerics = strcmp(optarg, "bf16") == 0 ? ENGINE_BF16 : ENGINE_F32;
        else if (option == 't' && strtoul(optarg, NULL, 10) - 1 < 256)
            config.threads = (uint32_t)strtoul(optarg, NULL, 10);
        else if (option == 's')
            seconds = strtod(optarg, NULL);
        else if (option == 'c')
            bench->clock = CLOCK_PROCESS_CPUTIME_ID;
        else
            ok = false;
    }
    if (!ok || optind + 1 != argc) {
        fputs(help, stderr);
        free(bench);
        return EX_USAGE;
    }
    if (bench->clock != CLOCK_MONOTONIC)
        config.threads = 1;
    config.model_dir = argv[optind];
    bench->numerics = config.numerics;
    ok = run(bench, &config, seconds);
    if (!ok)
        fprintf(stderr, "bench_operations: %s\n", bench->err.message);
    free(bench);
    return ok ? EX_OK : EX_CONFIG;
}
