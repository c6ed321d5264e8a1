/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_engine - how fast the engine runs a model, without Kafka.
 *
 * Prefill and decode tokens a second with 1, 8 and 32 sequences, and how near
 * prefill and a decode step come to what the machine can do at most: the larger
 * of the time to read the weights that the step needs (all but the experts
 * nobody chose) and the time to do its multiplications, with bandwidth and peak
 * measured in the same run. Bandwidth is measured on a buffer as large as the
 * weights, so that a model that fits the cache is compared with the cache.
 * bench_operations says the same of each operation of a step.
 */
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>

#include "ops/bench/engine_job.h"
#include "ops/bench/engine_prefix.h"
#include "ops/bench/engine_prompts.h"
#include "ops/bench/kernels_peak.h"
#include "worker/engine.h"
#include "worker/model_config.h"
#include "worker/weights.h"

enum {
    BATCH_MAX = 32,
};

struct options {
    const char *dir;
    const char *backend;
    enum engine_numerics numerics;
    uint32_t threads;
    double seconds;
    clockid_t clock;   /* the wall's, or the process's CPU time */
    const char *write; /* write the job to this file instead of running anything */
    const char *model; /* the name in it */
    uint32_t job;      /* its requests; 0: the table */
    uint32_t batch;    /* of them at a time */
    uint32_t prefix;   /* tokens that all of them begin with; 0: none */
};

/* Parameters of a model, by how a step uses them. */
struct size {
    double always;  /* read and multiplied in every step, but the output matrix */
    double absorb;  /* of these: multiplied in float in both modes */
    double head;    /* the output matrix */
    double routed;  /* all layers' experts that one token chooses */
    double experts; /* all layers' experts */
    double expert;  /* one expert of one layer */
    double bytes;   /* of a parameter */
    double entries; /* values of the KV cache for one token */
    double scores;  /* multiplications of one token's queries with one entry, all layers */
    double context; /* and of its weights with that entry, always in float */
};

/* What a machine can do, in bytes and operations a second. */
struct limits {
    double reads;
    double flops;
    double flops_f32;
};

struct result {
    double prefill; /* tokens a second */
    double prefill_limit;
    double decode;
    double step_us;  /* a decode step */
    double bytes;    /* that it has to read */
    double flops;    /* that it has to do */
    double limit_us; /* how long that takes at least */
};

static struct size measure_size(const struct model_config *c, uint64_t weights_size)
{
    const double h = c->hidden;
    const double q_in = c->q_rank ? c->q_rank : h;
    const double attention =
        (c->q_rank ? h * c->q_rank : 0) + q_in * c->heads * (c->nope_dim + c->rope_dim) +
        h * (c->kv_rank + c->rope_dim) + (double)c->heads * (c->nope_dim + c->v_dim) * c->kv_rank +
        h * c->heads * c->v_dim;
    const double expert_layers = model_config_expert_layers(c);
    const double attended = (double)c->layers * c->heads;
    struct size size = {
        .absorb = attended * c->nope_dim * c->kv_rank + expert_layers * h * c->experts,
        .head = h * c->vocab_size,
        .expert = 3 * h * c->expert_dim,
        .routed = expert_layers * c->top_k * 3 * h * c->expert_dim,
        .experts = expert_layers * c->experts * 3 * h * c->expert_dim,
        .entries = (double)c->layers * (c->kv_rank + c->rope_dim),
        .scores = attended * (c->kv_rank + c->rope_dim),
        .context = attended * c->kv_rank,
    };
    double total;

    size.always = c->layers * attention + (c->layers - expert_layers) * 3 * h * c->mlp_dim +
                  expert_layers * (c->shared_experts * size.expert + h * c->experts);
    total = size.always + size.head * (c->embeddings_tied ? 1 : 2) + size.experts;
    size.bytes = (double)weights_size / total;
    return size;
}

/* Experts that got tokens since before, in all layers; before becomes now. */
static double experts_used(const struct engine *engine, const struct engine_info *info,
                           uint64_t *before)
{
    struct engine_stats stats;
    double used = 0;

    engine_stats(engine, &stats);
    for (size_t i = 0; i < (size_t)info->expert_layers * info->experts; i++) {
        used += stats.expert_tokens[i] > before[i];
        before[i] = stats.expert_tokens[i];
    }
    return used;
}

/* All prompts at once to their answers' ends: the time of prefill and of decode steps apart. */
struct round {
    double prefill_us;
    double prefill_steps;
    double decode_us;
    double decode_steps;
    double decode_tokens;
    double experts;
    double context; /* tokens attended to, all rows of decode steps */
};

static bool run_round(struct engine *engine, uint32_t batch, clockid_t clock, uint64_t *used,
                      struct round *round, struct err *err)
{
    struct engine_token tokens[BATCH_MAX];
    struct engine_usage usage;
    struct engine_info info;
    size_t count;
    uint32_t said = 0;

    engine_info(engine, &info);
    while (engine_has_work(engine)) {
        const double start = peak_now(clock);
        double us;
        double experts;
        bool decode = said == batch; /* every sequence has its first token */

        if (!engine_step(engine, tokens, &count, err))
            return false;
        us = 1e6 * (peak_now(clock) - start);
        experts = experts_used(engine, &info, used);
        if (decode) {
            round->decode_us += us;
            round->decode_steps++;
            round->decode_tokens += (double)count;
            round->experts += experts;
        } else {
            round->prefill_us += us;
            round->prefill_steps++;
        }
        for (size_t i = 0; i < count; i++) {
            said += tokens[i].index == 0;
            round->context += decode ? PROMPT_TOKENS + tokens[i].index : 0;
            if (tokens[i].finish != ENGINE_RUNNING)
                engine_remove(engine, tokens[i].tag, &usage);
        }
    }
    return true;
}

/* Microseconds that rows tokens and their keys (rows times context) take at least, with so many
 * bytes to read and rows of the output matrix to compute; flops: operations. */
static double limit_us(const struct limits *limits, const struct size *size, double bytes,
                       double rows, double keys, double logits, double *flops)
{
    const double f32 = 2 * (rows * size->absorb + keys * size->context);
    const double reads = bytes / limits->reads;

    *flops = 2 * (rows * (size->always + size->routed) + logits * size->head +
                  keys * (size->scores + size->context));
    const double adds = (*flops - f32) / limits->flops + f32 / limits->flops_f32;
    return 1e6 * (reads > adds ? reads : adds);
}

static struct result result_of(const struct round *round, const struct size *size,
                               const struct limits *limits, double kv_bytes, double prompts)
{
    const double steps = round->decode_steps;
    const double context = round->context / steps;
    const double batch = round->decode_tokens / steps;
    struct result r = {
        .prefill = 1e6 * prompts * PROMPT_TOKENS / round->prefill_us,
        .decode = 1e6 * round->decode_tokens / round->decode_us,
        .step_us = round->decode_us / steps,
        .bytes = size->bytes * (size->always + size->head + round->experts / steps * size->expert) +
                 kv_bytes * context * size->entries,
    };
    double flops;

    r.limit_us = limit_us(limits, size, r.bytes, batch, context, batch, &r.flops);
    r.prefill_limit =
        limit_us(limits, size,
                 round->prefill_steps * size->bytes * (size->always + size->head + size->experts),
                 prompts * PROMPT_TOKENS, prompts * PROMPT_TOKENS * (PROMPT_TOKENS + 1) / 2,
                 prompts, &flops);
    r.prefill_limit = 1e6 * prompts * PROMPT_TOKENS / r.prefill_limit;
    return r;
}

static bool measure(struct engine *engine, const struct options *options, const struct size *size,
                    const struct limits *limits, uint32_t batch, struct result *result,
                    struct err *err)
{
    struct engine_info info;
    struct round round = {0};
    uint64_t *used;
    uint32_t rounds = 0;

    engine_info(engine, &info);
    used = calloc((size_t)info.expert_layers * info.experts + 1, sizeof *used);
    if (!used)
        return err_set(err, ERR_FATAL, "no memory");
    while (rounds == 0 || round.prefill_us + round.decode_us < 1e6 * options->seconds) {
        if (!prompts_submit(engine, batch, rounds++, err) ||
            !run_round(engine, batch, options->clock, used, &round, err)) {
            free(used);
            return false;
        }
    }
    free(used);
    *result = result_of(&round, size, limits, options->numerics == ENGINE_F32 ? 4 : 2,
                        (double)rounds * batch);
    return true;
}

static bool measure_limits(const struct options *options, uint64_t weights_size,
                           struct limits *limits, struct err *err)
{
    struct pool *pool;
    struct peak peak;

    if (!pool_open(options->threads, &pool, err))
        return false;
    peak = peak_measure(pool, options->clock);
    *limits = (struct limits){
        .reads = 1e9 * peak_reads(pool, options->clock, weights_size),
        .flops = 1e9 * (options->numerics == ENGINE_F32 ? peak.f32_gflops : peak.bf16_gflops),
        .flops_f32 = 1e9 * peak.f32_gflops,
    };
    pool_close(pool);
    return true;
}

static bool print_table(const struct options *options, struct engine *engine,
                        const struct model_config *c, uint64_t weights_size, struct err *err)
{
    static const uint32_t batches[] = {1, 8, BATCH_MAX};
    const struct size size = measure_size(c, weights_size);
    const struct options once = {.clock = options->clock};
    struct engine_info info;
    struct limits limits;
    struct result r;

    engine_info(engine, &info);
    if (!measure_limits(options, weights_size, &limits, err))
        return false;
    printf("model %s, %.1f MB of weights, %s, %u threads%s\n", info.model_name,
           (double)weights_size / 1e6, info.numerics_id, options->threads,
           options->clock == CLOCK_MONOTONIC ? "" : ", CPU time");
    printf("limits: reads %.1f GB/s, %.0f GFLOP/s\n", limits.reads / 1e9, limits.flops / 1e9);
    printf("%6s %14s %7s %14s %9s %9s %9s %9s %7s\n", "batch", "prefill tok/s", "share",
           "decode tok/s", "step ms", "MB/step", "MFLOP", "limit ms", "share");
    /* Faults the weights in, which no step should be blamed for. */
    if (!measure(engine, &once, &size, &limits, 1, &r, err))
        return false;
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        if (!measure(engine, options, &size, &limits, batches[i], &r, err))
            return false;
        printf("%6u %14.0f %6.0f%% %14.0f %9.3f %9.2f %9.1f %9.3f %6.0f%%\n", batches[i], r.prefill,
               100 * r.prefill / r.prefill_limit, r.decode, r.step_us / 1e3, r.bytes / 1e6,
               r.flops / 1e6, r.limit_us / 1e3, 100 * r.limit_us / r.step_us);
        fflush(stdout);
    }
    return true;
}

static bool run_job(const struct options *options, struct engine *engine, struct err *err)
{
    struct engine_info info;
    double cpu = peak_now(CLOCK_PROCESS_CPUTIME_ID);
    double seconds;

    engine_info(engine, &info);
    if (options->write)
        return job_write(options->write, options->job, info.vocab_size, options->model, err);
    if (!job_run(engine, options->job, options->batch, options->clock, &seconds, err))
        return false;
    cpu = peak_now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    printf("requests=%u batch=%u seconds=%.3f cpu=%.3f\n", options->job, options->batch, seconds,
           cpu);
    return true;
}

static bool run_prefix(const struct options *options, const struct engine_config *config,
                       struct err *err)
{
    const struct prefix_job job = {.requests = options->job ? options->job : 4 * options->batch,
                                   .batch = options->batch,
                                   .prefix_tokens = options->prefix,
                                   .seconds = options->seconds,
                                   .clock = options->clock};

    return prefix_table(config, &job, err);
}

static int run(const struct options *options)
{
    const struct engine_config config = {.model_dir = options->dir,
                                         .backend = options->backend,
                                         .numerics = options->numerics,
                                         .threads = options->threads,
                                         .max_seqs = BATCH_MAX,
                                         .max_context = PROMPT_TOKENS + ANSWER_TOKENS};
    struct model_config model_config;
    struct weights *weights;
    struct engine *engine = NULL;
    struct err err;
    uint64_t size;
    bool ok;

    if (!model_config_read(&model_config, options->dir, &err) ||
        !weights_open(&weights, options->dir, &err)) {
        fprintf(stderr, "bench_engine: %s\n", err.message);
        return EX_CONFIG;
    }
    size = weights_size(weights);
    weights_close(weights);
    ok = options->prefix
             ? run_prefix(options, &config, &err)
             : engine_open(&engine, &config, &err) &&
                   (options->job ? run_job(options, engine, &err)
                                 : print_table(options, engine, &model_config, size, &err));
    engine_close(engine);
    if (!ok)
        fprintf(stderr, "bench_engine: %s\n", err.message);
    return ok ? EX_OK : EX_CONFIG;
}

static const char help[] =
    "usage: bench_engine [options] MODEL_DIR\n"
    "Prefill and decode tokens a second of the engine alone, with 1, 8 and 32 sequences, and the\n"
    "share of the machine's limits that each reaches.\n"
    "  --backend NAME          auto (default), ref, cpu-avx2, cpu-avx512, cpu-avx512bf16\n"
    "  --numerics f32|bf16     default f32\n"
    "  --threads N             default 2\n"
    "  --seconds S             at least so long for each batch size; default 3\n"
    "  --cpu-time              one thread, measured by its CPU time: for a machine that is shared\n"
    "Instead of the table:\n"
    "  --job N --batch B       N requests of 32 tokens and answers of 64, B (1 to 32) at a time\n"
    "  --job N --write FILE    the same as lines for pelton submit; --model NAME goes into them\n"
    "  --prefix TOKENS         a burst of requests (128, or --job N; --batch B at a time) that "
    "all\n"
    "                          begin with TOKENS tokens, with the prefix cache off, cold and warm\n"
    "  --help, --version\n";

/* False: usage. */
static bool parse(struct options *options, int option, const char *value)
{
    switch (option) {
    case 'b':
        options->backend = value;
        return true;
    case 'n':
        options->numerics = strcmp(value, "bf16") == 0 ? ENGINE_BF16 : ENGINE_F32;
        return strcmp(value, "bf16") == 0 || strcmp(value, "f32") == 0;
    case 't':
        options->threads = (uint32_t)strtoul(value, NULL, 10);
        return options->threads >= 1 && options->threads <= 256;
    case 's':
        options->seconds = strtod(value, NULL);
        return true;
    case 'c':
        options->clock = CLOCK_PROCESS_CPUTIME_ID;
        return true;
    case 'j':
        options->job = (uint32_t)strtoul(value, NULL, 10);
        return options->job >= 1;
    case 'a':
        options->batch = (uint32_t)strtoul(value, NULL, 10);
        return options->batch >= 1 && options->batch <= BATCH_MAX;
    case 'w':
        options->write = value;
        return true;
    case 'p':
        options->prefix = (uint32_t)strtoul(value, NULL, 10);
        return options->prefix >= 1;
    case 'm':
        options->model = value;
        return true;
    default:
        return false;
    }
}

int main(int argc, char **argv)
{
    static const struct option long_options[] = {
        {"backend", required_argument, NULL, 'b'},
        {"numerics", required_argument, NULL, 'n'},
        {"threads", required_argument, NULL, 't'},
        {"seconds", required_argument, NULL, 's'},
        {"cpu-time", no_argument, NULL, 'c'},
        {"job", required_argument, NULL, 'j'},
        {"batch", required_argument, NULL, 'a'},
        {"write", required_argument, NULL, 'w'},
        {"model", required_argument, NULL, 'm'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},
        {"prefix", required_argument, NULL, 'p'},
        {NULL, 0, NULL, 0},
    };
    struct options options = {.backend = "auto",
                              .threads = 2,
                              .seconds = 3,
                              .clock = CLOCK_MONOTONIC,
                              .model = "",
                              .batch = BATCH_MAX};
    int option;

    while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        if (option == 'h' || option == 'v') {
            fputs(option == 'h' ? help : "bench_engine " PELTON_VERSION "\n", stdout);
            return EX_OK;
        }
        if (!parse(&options, option, optarg)) {
            fputs(help, stderr);
            return EX_USAGE;
        }
    }
    if (optind + 1 != argc) {
        fputs(help, stderr);
        return EX_USAGE;
    }
    if (options.clock != CLOCK_MONOTONIC)
        options.threads = 1;
    options.dir = argv[optind];
    return run(&options);
}
