/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's contract on the demo model: limits, finishing, removal, usage,
 * statistics. That answers are right is tests/golden/test_samples.c's business,
 * that they never change test_invariance.c's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "worker/engine.h"

static const int32_t prompt[] = {1,  4,  781,  414, 787, 785, 786, 31, 226, 23,
                                 29, 19, 1658, 226, 23,  21,  24,  24, 5}; /* says 10 and the end */

static struct engine *open_engine(struct engine_config config)
{
    struct engine *engine;
    struct err err;

    config.model_dir = "ops/demo/model";
    config.backend = "auto";
    config.threads = 1;
    if (!engine_open(&engine, &config, &err))
        fail_msg("%s", err.message);
    return engine;
}

static struct engine_request request_of(uint64_t tag, uint32_t max_tokens)
{
    return (struct engine_request){.tag = tag,
                                   .prompt = prompt,
                                   .prompt_count = sizeof prompt / sizeof *prompt,
                                   .max_tokens = max_tokens};
}

static void submit(struct engine *engine, struct engine_request request)
{
    struct err err;

    if (!engine_submit(engine, &request, &err))
        fail_msg("%s", err.message);
}

/* The last token of a sequence. */
static struct engine_token run(struct engine *engine, uint64_t tag)
{
    struct engine_token tokens[16];
    struct err err;
    size_t count;

    while (engine_has_work(engine)) {
        assert_true(engine_step(engine, tokens, &count, &err));
        for (size_t i = 0; i < count; i++)
            if (tokens[i].tag == tag && tokens[i].finish != ENGINE_RUNNING)
                return tokens[i];
    }
    fail_msg("sequence %llu never ended", (unsigned long long)tag);
    return tokens[0];
}

static void test_info(void **state)
{
    struct engine *engine = open_engine((struct engine_config){.max_seqs = 4});
    struct engine_info info;

    (void)state;
    engine_info(engine, &info);
    assert_string_equal(info.model_name, "model");
    assert_int_equal(strlen(info.revision), 16);
    assert_int_equal(strspn(info.revision, "0123456789abcdef"), 16);
    assert_non_null(strstr(info.numerics_id, "f32"));
    assert_string_equal(info.precision, "f32");
    assert_int_equal(info.vocab_size, 2048);
    assert_int_equal(info.max_context, 1024);
    assert_int_equal(info.kv_tokens, 4096);
    assert_int_equal(info.expert_layers, 3);
    assert_int_equal(info.experts, 16);
    assert_int_equal(info.profile_count, 48);
    assert_int_equal(info.eos_count, 1);
    assert_int_equal(info.eos_ids[0], 2);
    engine_close(engine);
}

/* One token of the prompt chooses 4 of 16 experts in each of 3 layers: four are 63. */
static void test_profile(void **state)
{
    struct engine *engine = open_engine((struct engine_config){.max_seqs = 4});
    struct engine_request request = request_of(1, 1);
    struct engine_usage usage;
    int32_t profile[48];

    (void)state;
    assert_false(engine_profile(engine, 1, profile));
    request.prompt_count = 1;
    submit(engine, request);
    assert_false(engine_profile(engine, 1, profile));
    run(engine, 1);
    assert_true(engine_profile(engine, 1, profile));
    for (int layer = 0; layer < 3; layer++) {
        int chosen = 0;
        for (int i = 0; i < 16; i++) {
            assert_true(profile[16 * layer + i] == 0 || profile[16 * layer + i] == 63);
            chosen += profile[16 * layer + i] == 63;
        }
        assert_int_equal(chosen, 4);
    }
    assert_true(engine_remove(engine, 1, &usage));
    engine_close(engine);
}

static void test_ends_at_the_end_mark(void **state)
{
    struct engine *engine = open_engine((struct engine_config){.max_seqs = 4});
    struct engine_token last;
    struct engine_usage usage;

    (void)state;
    submit(engine, request_of(1, 100));
    last = run(engine, 1);
    assert_int_equal(last.finish, ENGINE_EOS);
    assert_int_equal(last.id, 2);
    assert_false(engine_has_work(engine));
    assert_true(engine_remove(engine, 1, &usage));
    assert_int_equal(usage.prompt_tokens, 19);
    assert_int_equal(usage.cached_tokens, 0);
    assert_int_equal(usage.output_tokens, last.index + 1);
    assert_true(usage.prefill_us > 0);
    assert_true(usage.decode_us > 0);
    assert_true(usage.run_us >= usage.decode_us);
    assert_true(usage.queue_us >= 0);
    assert_false(engine_remove(engine, 1, &usage));
    engine_close(engine);
}

static void test_ends_at_max_tokens(void **state)
{
    struct engine *engine = open_engine((struct engine_config){.max_seqs = 4});
    struct engine_request request = request_of(1, 3);
    struct engine_token last;

    (void)state;
    submit(engine, request);
    last = run(engine, 1);
    assert_int_equal(last.finish, ENGINE_LENGTH);
    assert_int_equal(last.index, 2);

    request = request_of(2, 40); /* past the end mark */
    request.ignore_eos = true;
    submit(engine, request);
    last = run(engine, 2);
    assert_int_equal(last.finish, ENGINE_LENGTH);
    assert_int_equal(last.index, 39);
    engine_close(engine);
}

static void refuse(struct engine *engine, struct engine_request request, const char *words)
{
    struct err err;

    assert_false(engine_submit(engine, &request, &err));
    assert_int_equal(err.kind, ERR_REJECT);
    if (!strstr(err.message, words))
        fail_msg("said \"%s\", expected \"%s\"", err.message, words);
}

static void test_refuses(void **state)
{
    struct engine *engine = open_engine((struct engine_config){.max_seqs = 4, .max_context = 30});
    struct engine_request request = request_of(1, 5);
    const int32_t too_large = 2048;
    const int32_t negative = -1;

    (void)state;
    request.prompt_count = 0;
    refuse(engine, request, "prompt is empty");
    refuse(engine, request_of(1, 0), "max_tokens is 0");
    refuse(engine, request_of(1, 12), "above the context of 30");
    refuse(engine, request_of(1, UINT32_MAX), "above the context of 30");
    request = request_of(1, 5);
    request.prompt = &too_large;
    request.prompt_count = 1;
    refuse(engine, request, "prompt token 0 is 2048, the vocabulary has 2048");
    request = request_of(1, 5);
    request.prefix = &negative;
    request.prefix_count = 1;
    refuse(engine, request, "prefix token 0 is -1");
    request.prefix = prompt;
    request.prefix_count = 5;
    refuse(engine, request, "5 tokens said already");

    submit(engine, request_of(1, 11)); /* fills the context exactly */
    assert_int_equal(run(engine, 1).finish, ENGINE_EOS);
    engine_close(engine);
}

static void test_waiting_is_bounded(void **state)
{
    struct engine *engine = open_engine((struct engine_config){.max_seqs = 1, .max_waiting = 1});
    struct engine_request third = request_of(3, 4);
    struct engine_usage usage;
    struct err err;

    (void)state;
    submit(engine, request_of(1, 4));
    submit(engine, request_of(2, 4));
    assert_false(engine_submit(engine, &third, &err));
    assert_int_equal(err.kind, ERR_RETRY);
    assert_true(engine_remove(engine, 2, &usage)); /* never ran: nothing is charged */
    assert_int_equal(usage.output_tokens, 0);
    assert_int_equal(usage.prefill_us, 0);
    assert_int_equal(usage.run_us, 0);
    submit(engine, third);
    assert_int_equal(run(engine, 3).finish, ENGINE_LENGTH);
    engine_close(engine);
}

static void test_removal_while_running(void **state)
{
    struct engine *engine = open_engine((struct engine_config){.max_seqs = 2});
    struct engine_token tokens[2];
    struct engine_usage usage;
    struct engine_stats stats;
    struct err err;
    size_t count;

    (void)state;
    submit(engine, request_of(1, 50));
    submit(engine, request_of(2, 50));
    assert_true(engine_step(engine, tokens, &count, &err));
    assert_int_equal(count, 2);
    assert_true(engine_remove(engine, 1, &usage));
    assert_int_equal(usage.output_tokens, 1);
    engine_stats(engine, &stats);
    assert_int_equal(stats.running, 1);
    assert_int_equal(run(engine, 2).finish, ENGINE_EOS);
    engine_stats(engine, &stats);
    assert_int_equal(stats.kv_tokens_used, 0);
    engine_close(engine);
}

static void test_stats(void **state)
{
    struct engine *engine = open_engine((struct engine_config){.max_seqs = 2});
    struct engine_token last;
    struct engine_stats stats;
    uint64_t chosen = 0;

    (void)state;
    submit(engine, request_of(1, 50));
    last = run(engine, 1);
    engine_stats(engine, &stats);
    assert_int_equal(stats.prefill_tokens, 19);
    assert_int_equal(stats.decode_tokens, last.index);
    assert_int_equal(stats.steps, last.index + 1);
    assert_int_equal(stats.preemptions, 0);
    assert_true(stats.busy_us > 0);
    assert_true(stats.step_us > 0);
    assert_true(stats.layer_load[0] > 0);
    assert_true(stats.load == 0); /* idle now */
    for (uint32_t e = 0; e < 16; e++)
        chosen += stats.expert_tokens[e];
    assert_int_equal(chosen, 4 * (stats.prefill_tokens + stats.decode_tokens));
    engine_close(engine);
}

static void test_batch_size(void **state)
{
    struct engine *engine = open_engine((struct engine_config){.max_seqs = 3});
    struct engine_token tokens[3];
    struct engine_stats stats;
    struct err err;
    size_t count;

    (void)state;
    engine_batch_size(engine, 0); /* clamped to 1 */
    for (uint64_t tag = 1; tag <= 3; tag++)
        submit(engine, request_of(tag, 50));
    assert_true(engine_step(engine, tokens, &count, &err));
    assert_int_equal(count, 1);
    engine_batch_size(engine, 99); /* clamped to 3 */
    assert_true(engine_step(engine, tokens, &count, &err));
    assert_int_equal(count, 3);
    engine_stats(engine, &stats);
    assert_int_equal(stats.running, 3);
    assert_true(stats.load > 0);
    engine_close(engine);
}

static struct engine *open_with_cache(uint32_t kv_pages)
{
    const size_t page_size = (size_t)16 * 4 * 80 * 4;

    return open_engine((struct engine_config){
        .max_seqs = 4, .prefix_cache = true, .kv_size = kv_pages * page_size});
}

/* A question, its answer, and what comes after it: the second turn begins behind the first. */
static void test_second_turn(void **state)
{
    struct engine *engine = open_with_cache(16);
    struct engine_token tokens[4];
    int32_t turn[64];
    struct engine_request request = request_of(1, 30);
    struct engine_stats stats;
    struct engine_usage usage;
    struct err err;
    size_t count;
    uint32_t known = request.prompt_count;

    (void)state;
    memcpy(turn, prompt, sizeof prompt);
    request.ignore_eos = true;
    submit(engine, request);
    while (engine_has_work(engine)) {
        assert_true(engine_step(engine, tokens, &count, &err));
        turn[known++] = tokens[0].id;
    }
    assert_true(engine_remove(engine, 1, &usage));
    assert_int_equal(usage.cached_tokens, 0);
    assert_int_equal(known, 49); /* of which 48 ran: three pages */
    engine_stats(engine, &stats);
    assert_int_equal(stats.prefix_pages, 3);
    assert_int_equal(stats.kv_tokens_used, 0);

    for (uint32_t i = 0; i < 6; i++)
        turn[known++] = prompt[i];
    request =
        (struct engine_request){.tag = 2, .prompt = turn, .prompt_count = known, .max_tokens = 1};
    submit(engine, request);
    run(engine, 2);
    assert_true(engine_remove(engine, 2, &usage));
    assert_int_equal(usage.prompt_tokens, 55);
    assert_int_equal(usage.cached_tokens, 48);
    engine_stats(engine, &stats);
    assert_int_equal(stats.prefix_hit_tokens, 48);
    assert_int_equal(stats.prefix_lookup_tokens, 19 + 55);
    assert_int_equal(stats.prefill_tokens, 19 + 7);

    request.tag = 3;
    request.salt.words[0] = 1; /* somebody else */
    submit(engine, request);
    run(engine, 3);
    assert_true(engine_remove(engine, 3, &usage));
    assert_int_equal(usage.cached_tokens, 0);
    engine_close(engine);
}

/* The profile is of the tokens that ran: here of the last one. */
static void test_profile_behind_a_cached_prompt(void **state)
{
    struct engine *engine = open_with_cache(16);
    struct engine_request request = request_of(1, 1);
    struct engine_usage usage;
    int32_t profile[48];
    int chosen = 0;

    (void)state;
    request.prompt_count = 17;
    submit(engine, request);
    run(engine, 1);
    request.tag = 2;
    submit(engine, request);
    run(engine, 2);
    assert_true(engine_profile(engine, 2, profile));
    for (int i = 0; i < 48; i++)
        chosen += profile[i] == 63;
    assert_int_equal(chosen, 3 * 4);
    assert_true(engine_remove(engine, 2, &usage));
    assert_int_equal(usage.cached_tokens, 16);
    engine_close(engine);
}

/* Ten pages for prompts of five kinds, of two full pages and a third each: from the fifth on each
 * takes the place of the oldest one's second page, whose first page is found when its turn comes.
 */
static void test_evictions(void **state)
{
    struct engine *engine = open_with_cache(10);
    struct engine_stats stats;
    struct engine_usage usage;
    int32_t ids[40];

    (void)state;
    for (uint64_t tag = 0; tag < 10; tag++) {
        const struct engine_request request = {
            .tag = tag, .prompt = ids, .prompt_count = 40, .max_tokens = 1};

        for (uint32_t i = 0; i < 40; i++)
            ids[i] = (int32_t)(10 * (tag % 5) + i);
        submit(engine, request);
        run(engine, tag);
        assert_true(engine_remove(engine, tag, &usage));
        assert_int_equal(usage.cached_tokens, tag < 5 ? 0 : 16);
    }
    engine_stats(engine, &stats);
    assert_int_equal(stats.prefix_pages, 9); /* the tenth is the third page, not full */
    assert_int_equal(stats.prefix_evictions, 10 + 5 - 9);
    engine_close(engine);
}

static void test_refuses_configurations(void **state)
{
    struct engine_config config = {.model_dir = "ops/demo/model", .backend = "auto"};
    struct engine *engine;
    struct err err;

    (void)state;
    assert_false(engine_open(&engine, &config, &err));
    assert_int_equal(err.kind, ERR_FATAL);
    assert_non_null(strstr(err.message, "max_seqs is 0, allowed are 1 to 4096"));
    config.max_seqs = 1;
    config.max_context = 1025;
    assert_false(engine_open(&engine, &config, &err));
    assert_non_null(strstr(err.message, "context of 1025 tokens, the model allows 1024"));
    config.max_context = 0;
    config.kv_size = 100;
    assert_false(engine_open(&engine, &config, &err));
    assert_non_null(strstr(err.message, "KV cache of 0 pages"));
    config.kv_size = 0;
    config.backend = "abacus";
    assert_false(engine_open(&engine, &config, &err));
    assert_non_null(strstr(err.message, "abacus"));
    config.backend = "auto";
    config.model_dir = "ops/demo/samples";
    assert_false(engine_open(&engine, &config, &err));
    assert_non_null(strstr(err.message, "config.json"));
}

/* A cache smaller than the model's context makes the context smaller. */
static void test_small_cache(void **state)
{
    const size_t page_size = (size_t)16 * 4 * 80 * 4;
    struct engine *engine =
        open_engine((struct engine_config){.max_seqs = 2, .kv_size = 3 * page_size});
    struct engine_info info;

    (void)state;
    engine_info(engine, &info);
    assert_int_equal(info.max_context, 48);
    assert_int_equal(info.kv_tokens, 48);
    submit(engine, request_of(1, 29));
    assert_int_equal(run(engine, 1).finish, ENGINE_EOS);
    engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_info),
        cmocka_unit_test(test_profile),
        cmocka_unit_test(test_ends_at_the_end_mark),
        cmocka_unit_test(test_ends_at_max_tokens),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_waiting_is_bounded),
        cmocka_unit_test(test_removal_while_running),
        cmocka_unit_test(test_stats),
        cmocka_unit_test(test_batch_size),
        cmocka_unit_test(test_second_turn),
        cmocka_unit_test(test_profile_behind_a_cached_prompt),
        cmocka_unit_test(test_evictions),
        cmocka_unit_test(test_refuses_configurations),
        cmocka_unit_test(test_small_cache),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
