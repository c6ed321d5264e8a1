/* SPDX-License-Identifier: Apache-2.0
 *
 * An answer does not depend on how it was computed: every prompt alone, among
 * 64, in chunks of 1, 7 or 512 tokens, preempted and recomputed, resumed from a
 * prefix, with 1 to 3 threads, with a batch size that changes on the way, in
 * one micro-batch or in two overlapping ones, and behind pages of the prefix
 * cache, cold, warm and evicted. Ids and every bit of the logits are compared,
 * in both numeric modes, on the back end named by the argument.
 */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/backend.h"
#include "worker/engine.h"

enum { PROMPTS = 64, PROMPT_MAX = 200, ANSWER = 6 };

static const char *backend_name;
static uint32_t prompt_count;

struct prompt {
    int32_t ids[PROMPT_MAX];
    uint32_t count;
};

struct answer {
    int32_t ids[ANSWER];
    uint64_t logits[ANSWER]; /* a hash of the bytes */
    uint32_t count;
};

static struct prompt prompts[PROMPTS];
static struct answer expected[PROMPTS];
static struct answer answers[PROMPTS];

struct variant {
    uint32_t together; /* prompts at a time */
    uint32_t chunk;
    uint32_t threads;
    uint32_t kv_pages; /* 0: enough */
    uint32_t passes;   /* over all prompts; the second finds what the first one left */
    uint32_t prefix;   /* answer tokens given */
    bool overlap;
    uint32_t micro_batch_size;
    bool batch_size_changes;
    bool prefix_cache;
    /* These must have happened. */
    bool preempts;
    bool hits;
    bool evicts;
};

/* The 16 golden prompts, then the same with some of their first or last tokens cut off: all differ,
 * half of them begin like others. */
static void read_prompts(uint32_t length_max)
{
    static char text[1 << 20];
    FILE *file = fopen("tests/golden/demo/golden.jsonl", "r");

    assert_non_null(file);
    for (uint32_t i = 0; i < 16; i++) {
        json_t *line;
        const json_t *ids;

        assert_non_null(fgets(text, sizeof text, file));
        line = json_loads(text, 0, NULL);
        ids = json_object_get(line, "input_ids");
        for (uint32_t k = 0; k < PROMPTS / 16; k++) {
            struct prompt *prompt = &prompts[k * 16 + i];

            for (size_t j = k % 2 ? 2 * k : 0;
                 j < json_array_size(ids) && prompt->count < length_max; j++)
                prompt->ids[prompt->count++] = (int32_t)json_integer_value(json_array_get(ids, j));
            prompt->count -= k % 2 ? 0 : 2 * k;
        }
        json_decref(line);
    }
    fclose(file);
}

static uint64_t hash(const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    uint64_t value = 14695981039346656037u; /* FNV-1a */

    for (size_t i = 0; i < size; i++)
        value = (value ^ at[i]) * 1099511628211u;
    return value;
}

static void submit(struct engine *engine, uint32_t i, const struct variant *variant)
{
    const struct engine_request request = {
        .tag = i,
        .prompt = prompts[i].ids,
        .prompt_count = prompts[i].count,
        .prefix = expected[i].ids,
        .prefix_count = variant->prefix,
        .max_tokens = ANSWER,
        .ignore_eos = true,
        .sampling = {.temperature = i % 2 ? 0.9f : 0, .top_p = 0.95f, .seed = 7 + i},
    };
    struct err err;

    memset(&answers[i], 0, sizeof answers[i]);
    for (uint32_t k = 0; k < variant->prefix; k++) {
        answers[i].ids[k] = expected[i].ids[k];
        answers[i].logits[k] = expected[i].logits[k];
    }
    answers[i].count = variant->prefix;
    if (!engine_submit(engine, &request, &err))
        fail_msg("%s", err.message);
}

static void run_until_idle(struct engine *engine, const struct variant *variant)
{
    struct engine_token tokens[PROMPTS];
    struct engine_info info;
    struct engine_usage usage;
    struct err err;
    uint32_t step = 0;
    size_t count;

    engine_info(engine, &info);
    while (engine_has_work(engine)) {
        if (variant->batch_size_changes)
            engine_batch_size(engine, 1 + step++ * 7 % PROMPTS);
        if (!engine_step(engine, tokens, &count, &err))
            fail_msg("%s", err.message);
        for (size_t i = 0; i < count; i++) {
            struct answer *answer = &answers[tokens[i].tag];

            assert_int_equal(tokens[i].index, answer->count);
            answer->ids[answer->count] = tokens[i].id;
            answer->logits[answer->count++] =
                hash(engine_logits(engine, i), info.vocab_size * sizeof(float));
        }
        for (size_t i = 0; i < count; i++) {
            if (tokens[i].finish == ENGINE_RUNNING)
                continue;
            assert_true(engine_remove(engine, tokens[i].tag, &usage));
            assert_true(usage.cached_tokens <= usage.prompt_tokens);
        }
    }
}

static void run(enum engine_numerics numerics, const struct variant *variant)
{
    /* A page of the demo model: 16 tokens, 4 layers, 64 + 16 values. */
    const size_t page_size = (size_t)16 * 4 * 80 * (numerics == ENGINE_F32 ? 4 : 2);
    const struct engine_config config = {.model_dir = "ops/demo/model",
                                         .backend = backend_name,
                                         .numerics = numerics,
                                         .threads = variant->threads,
                                         .max_seqs = PROMPTS,
                                         .max_context = PROMPT_MAX + ANSWER,
                                         .chunk_tokens = variant->chunk,
                                         .prefix_cache = variant->prefix_cache,
                                         .overlap = variant->overlap,
                                         .kv_size = variant->kv_pages * page_size};
    struct engine *engine;
    struct engine_stats stats;
    struct err err;

    if (!engine_open(&engine, &config, &err))
        fail_msg("%s", err.message);
    engine_micro_batch_size(engine, variant->micro_batch_size);
    for (uint32_t pass = 0; pass == 0 || pass < variant->passes; pass++)
        for (uint32_t i = 0; i < prompt_count; i += variant->together) {
            for (uint32_t j = i; j < i + variant->together && j < prompt_count; j++)
                submit(engine, j, variant);
            run_until_idle(engine, variant);
        }
    engine_stats(engine, &stats);
    assert_int_equal(stats.kv_tokens_used, 0);
    assert_true(!variant->preempts || stats.preemptions > 0);
    assert_true(!variant->hits || stats.prefix_hit_tokens > 0);
    assert_true(!variant->evicts || stats.prefix_evictions > 0);
    engine_close(engine);
}

static void check_variants(enum engine_numerics numerics)
{
    const struct variant alone = {.together = 1, .chunk = 512, .threads = 1};
    const struct variant variants[] = {
        {.together = PROMPTS, .chunk = 512, .threads = 2},
        {.together = PROMPTS, .chunk = 7, .threads = 3},
        {.together = 16, .chunk = 1, .threads = 1},
        {.together = PROMPTS, .chunk = 64, .threads = 2, .kv_pages = 14, .preempts = true},
        {.together = PROMPTS, .chunk = 512, .threads = 2, .prefix = 3},
        {.together = PROMPTS, .chunk = 512, .threads = 2, .overlap = true},
        {.together = PROMPTS, .chunk = 64, .threads = 2, .overlap = true, .micro_batch_size = 3},
        {.together = PROMPTS, .chunk = 64, .threads = 1, .batch_size_changes = true},
        {.together = PROMPTS, .chunk = 512, .prefix_cache = true},
        {.together = 1, .chunk = 512, .prefix_cache = true, .passes = 2, .hits = true},
        {.together = PROMPTS, .chunk = 7, .prefix_cache = true, .passes = 2, .hits = true},
        {.together = PROMPTS,
         .chunk = 64,
         .overlap = true,
         .micro_batch_size = 3,
         .prefix = 3,
         .prefix_cache = true,
         .passes = 2,
         .hits = true},
        {.together = PROMPTS,
         .chunk = 64,
         .kv_pages = 14,
         .prefix_cache = true,
         .passes = 2,
         .batch_size_changes = true,
         .preempts = true,
         .hits = true,
         .evicts = true},
    };

    memset(expected, 0, sizeof expected);
    run(numerics, &alone);
    memcpy(expected, answers, sizeof expected);
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
        run(numerics, &variants[v]);
        for (uint32_t i = 0; i < prompt_count; i++) {
            assert_int_equal(answers[i].count, ANSWER);
            if (memcmp(&answers[i], &expected[i], sizeof answers[i]) != 0)
                fail_msg("variant %zu, prompt %u: another answer", v, i);
        }
    }
}

static void test_f32(void **state)
{
    (void)state;
    check_variants(ENGINE_F32);
}

static void test_bf16(void **state)
{
    (void)state;
    check_variants(ENGINE_BF16);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f32),
        cmocka_unit_test(test_bf16),
    };
    const struct backend *backend;
    struct err err;

    backend_name = argc > 1 ? argv[1] : "auto";
    if (!backend_find(backend_name, &backend, &err)) {
        print_message("skipped: %s\n", err.message);
        return 77;
    }
    /* The reference is slow: it gets fewer and shorter prompts. */
    prompt_count = strcmp(backend_name, "ref") == 0 ? 8 : PROMPTS;
    read_prompts(prompt_count == PROMPTS ? PROMPT_MAX : 29);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
