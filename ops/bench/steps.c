/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_steps - measured steps of the real engine, for pelton-sim --fit.
 *
 * Runs a bulk job of random requests (prompts of 8 to 96 tokens, answers of 8
 * to 160) with a batch cap, all there at once, and writes every step as a CSV
 * line: decode rows, prefill rows, tokens of context of the decoding
 * sequences, imbalance (1: one rank), microseconds. Prints the output tokens a
 * second. ops/bench/validate-sim compares them with the simulator's.
 *
 * One thread, and its CPU time as the clock: what else the machine does is no
 * part of the model.
 */
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>

#include "worker/engine.h"

enum {
    REQUESTS_MAX = 100000,
    CAP_MAX = 256,
    PROMPT_MIN = 8,
    PROMPT_MAX = 96,
    OUTPUT_MIN = 8,
    OUTPUT_MAX = 160,
};

struct options {
    const char *dir, *steps, *job;
    uint32_t requests, cap, seed;
};

struct request {
    uint32_t prompt, output;
    uint32_t made; /* output tokens so far */
};

static double cpu_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static uint32_t draw(uint32_t *seed, uint32_t min, uint32_t max)
{
    *seed = *seed * 1664525 + 1013904223;
    return min + (*seed >> 8) % (max - min + 1);
}

static void draw_requests(const struct options *options, struct request *requests)
{
    uint32_t seed = options->seed;

    for (uint32_t i = 0; i < options->requests; i++) {
        requests[i].prompt = draw(&seed, PROMPT_MIN, PROMPT_MAX);
        requests[i].output = draw(&seed, OUTPUT_MIN, OUTPUT_MAX);
    }
}

static bool submit(struct engine *engine, const struct options *options,
                   const struct request *requests, struct err *err)
{
    struct engine_info info;
    int32_t prompt[PROMPT_MAX];
    uint32_t seed = ~options->seed;

    engine_info(engine, &info);
    for (uint32_t i = 0; i < options->requests; i++) {
        const struct engine_request request = {.tag = i,
                                               .prompt = prompt,
                                               .prompt_count = requests[i].prompt,
                                               .max_tokens = requests[i].output,
                                               .ignore_eos = true};
        for (uint32_t k = 0; k < requests[i].prompt; k++)
            prompt[k] = (int32_t)draw(&seed, 0, info.vocab_size - 1);
        if (!engine_submit(engine, &request, err))
            return false;
    }
    return true;
}

/* Every step, to its CSV line. */
static bool run_steps(struct engine *engine, struct request *requests, FILE *csv, double *busy_us,
                      uint64_t *tokens_made, struct err *err)
{
    struct engine_token tokens[CAP_MAX];
    struct engine_stats before, after;
    struct engine_usage usage;
    uint64_t context = 0; /* of sequences with a first token */
    size_t count;

    engine_stats(engine, &before);
    while (engine_has_work(engine)) {
        const double start_us = cpu_us();
        if (!engine_step(engine, tokens, &count, err))
            return false;
        const double us = cpu_us() - start_us;
        engine_stats(engine, &after);
        fprintf(csv, "%lld,%lld,%llu,1,%.3f\n",
                (long long)(after.decode_tokens - before.decode_tokens),
                (long long)(after.prefill_tokens - before.prefill_tokens),
                (unsigned long long)context, us);
        before = after;
        *busy_us += us;
        *tokens_made += count;
        for (size_t i = 0; i < count; i++) {
            struct request *request = &requests[tokens[i].tag];
            context += request->made++ == 0 ? request->prompt + 1 : 1;
            if (tokens[i].finish == ENGINE_RUNNING)
                continue;
            context -= request->prompt + request->made;
            engine_remove(engine, tokens[i].tag, &usage);
        }
    }
    return true;
}

static bool write_job(const struct options *options, const struct request *requests,
                      struct err *err)
{
    FILE *file = fopen(options->job, "w");

    if (!file)
        return err_set(err, ERR_REJECT, "%s cannot be written", options->job);
    fprintf(file, "prompt,output\n");
    for (uint32_t i = 0; i < options->requests; i++)
        fprintf(file, "%u,%u\n", requests[i].prompt, requests[i].output);
    return fclose(file) == 0 || err_set(err, ERR_REJECT, "%s cannot be written", options->job);
}

static bool run(const struct options *options, struct err *err)
{
    const struct engine_config config = {.model_dir = options->dir,
                                         .backend = "auto",
                                         .threads = 1,
                                         .max_seqs = options->cap,
                                         .max_waiting = options->requests,
                                         .max_context = PROMPT_MAX + OUTPUT_MAX};
    struct request *requests = calloc(options->requests, sizeof *requests);
    FILE *csv = fopen(options->steps, "a");
    struct engine *engine = NULL;
    double busy_us = 0;
    uint64_t tokens = 0;
    bool ok;

    if (!requests || !csv)
        err_set(err, ERR_REJECT, "%s cannot be opened", options->steps);
    else
        draw_requests(options, requests);
    ok = requests && csv && (!options->job || write_job(options, requests, err)) &&
         engine_open(&engine, &config, err) && submit(engine, options, requests, err) &&
         run_steps(engine, requests, csv, &busy_us, &tokens, err);
    if (ok)
        printf("requests=%u cap=%u tokens=%llu cpu_s=%.3f tokens_per_s=%.1f\n", options->requests,
               options->cap, (unsigned long long)tokens, busy_us / 1e6,
               (double)tokens * 1e6 / busy_us);
    engine_close(engine);
    if (csv)
        fclose(csv);
    free(requests);
    return ok;
}

static const char help[] =
    "usage: bench_steps [options] MODEL_DIR\n"
    "Runs a bulk job of random requests on the engine and records its steps.\n"
    "  --cap B          sequences at a time, 1 to 256; default 8\n"
    "  --requests N     default 64\n"
    "  --seed N         of the requests; default 1\n"
    "  --steps FILE     append decode,prefill,kv_tokens,imbalance,us; default steps.csv\n"
    "  --job FILE       write prompt,output of every request\n";

static bool parse(struct options *options, int option, const char *value)
{
    switch (option) {
    case 'c':
        options->cap = (uint32_t)strtoul(value, NULL, 10);
        return options->cap >= 1 && options->cap <= CAP_MAX;
    case 'r':
        options->requests = (uint32_t)strtoul(value, NULL, 10);
        return options->requests >= 1 && options->requests <= REQUESTS_MAX;
    case 's':
        options->seed = (uint32_t)strtoul(value, NULL, 10);
        return true;
    case 'o':
        options->steps = value;
        return true;
    case 'j':
        options->job = value;
        return true;
    default:
        return false;
    }
}

int main(int argc, char **argv)
{
    static const struct option long_options[] = {
        {"cap", required_argument, NULL, 'c'},
        {"requests", required_argument, NULL, 'r'},
        {"seed", required_argument, NULL, 's'},
        {"steps", required_argument, NULL, 'o'},
        {"job", required_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct options options = {.steps = "steps.csv", .requests = 64, .cap = 8, .seed = 1};
    struct err err;

    for (int option; (option = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        if (option == 'h') {
            fputs(help, stdout);
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
    options.dir = argv[optind];
    if (!run(&options, &err)) {
        fprintf(stderr, "bench_steps: %s\n", err.message);
        return EX_DATAERR;
    }
    return EX_OK;
}
