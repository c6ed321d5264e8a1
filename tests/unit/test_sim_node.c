/* SPDX-License-Identifier: Apache-2.0
 *
 * A simulated worker by hand: steps of 100 us + 1 a decode row + 2 a prefill
 * row, no expert share, prompts in chunks of 8 rows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "scheduler/sim/node.h"

static const struct routing routing = {
    .tasks = 1, .experts = 1, .ranks = 1, .replicas = 1, .top_k = 1, .share = {{1}}};
static struct step_model model = {.fixed_us = 100,
                                  .decode_us = 1,
                                  .prefill_us = 2,
                                  .kv_tokens = 1000,
                                  .max_seqs = 64,
                                  .chunk_tokens = 8};

enum { BLOCKS = 64, BLOCK_TOKENS = 8 };

static void open_node(struct node *node, uint32_t batch_size, bool classic)
{
    const struct node_config config = {.model = &model,
                                       .routing = &routing,
                                       .classic = classic,
                                       .blocks_limit = BLOCKS,
                                       .block_tokens = BLOCK_TOKENS,
                                       .step_us_target = 200,
                                       .load_smoothing = 0.05};

    assert_true(node_init(node, &config, batch_size, &(struct err){0}));
}

static void assign(struct node *node, uint32_t request, uint32_t prompt, uint32_t output)
{
    const struct node_sequence sequence = {.request = request, .prompt = prompt, .output = output};

    assert_true(node_assign(node, &sequence, &(struct err){0}));
}

static void assign_blocks(struct node *node, uint32_t request, const uint32_t *ids, uint32_t prompt,
                          uint32_t output)
{
    const struct blocks blocks = {ids, (prompt + BLOCK_TOKENS - 1) / BLOCK_TOKENS, prompt};
    const struct node_sequence sequence = {
        .request = request, .prompt = prompt, .output = output, .blocks = blocks};

    assert_true(node_assign(node, &sequence, &(struct err){0}));
}

/* One step that must take this long. */
static void step(struct node *node, double us_expected, struct node_outcome *outcome)
{
    double us;

    assert_true(node_begin(node, &us));
    assert_true(us == us_expected);
    assert_true(node_end(node, us, outcome, &(struct err){0}));
}

static void continuous_batching(void **state)
{
    struct node node;
    struct node_outcome outcome = {0};
    double us;

    (void)state;
    open_node(&node, 2, false);
    assert_false(node_begin(&node, &us));
    assign(&node, 0, 5, 2);
    assign(&node, 1, 12, 1);
    assign(&node, 2, 3, 1);
    /* Two run; chunk of 8 rows: all 5 of the first prompt, 3 of the second. */
    step(&node, 100 + 2 * 8, &outcome);
    assert_int_equal(outcome.first_count, 1);
    assert_int_equal(outcome.first[0], 0);
    assert_int_equal(outcome.ended_count, 0);
    assert_int_equal(node.kv_used, 17);
    /* The first decodes its last token, the second reads another 8. */
    step(&node, 100 + 1 + 2 * 8, &outcome);
    assert_int_equal(outcome.ended_count, 1);
    assert_int_equal(outcome.ended[0], 0);
    assert_int_equal(node.kv_used, 12);
    /* The third takes its place in the very next step: 1 row left, and its 3. */
    step(&node, 100 + 2 * 4, &outcome);
    assert_int_equal(outcome.first_count, 2);
    assert_int_equal(outcome.ended_count, 2);
    assert_int_equal(node_held(&node), 0);
    assert_int_equal(node.kv_used, 0);
    assert_int_equal(node.prefill_tokens, 20);
    assert_int_equal(node.decode_tokens, 4);
    assert_int_equal(node.busy_us, 116 + 117 + 108);
    assert_false(node_begin(&node, &us));
    node_outcome_free(&outcome);
    node_free(&node);
}

static void classic_batches_end_together(void **state)
{
    struct node node;
    struct node_outcome outcome = {0};
    uint32_t ended = 0;

    (void)state;
    open_node(&node, 2, true);
    assign(&node, 0, 4, 1);
    assign(&node, 1, 4, 5);
    assign(&node, 2, 4, 1);
    step(&node, 100 + 2 * 8, &outcome);
    assert_int_equal(outcome.ended_count, 0); /* the first is done, but stays */
    for (int i = 0; i < 3; i++) {
        step(&node, 100 + 2, &outcome);
        ended += outcome.ended_count;
    }
    assert_int_equal(ended, 0);
    step(&node, 100 + 2, &outcome); /* the fifth token of the second */
    assert_int_equal(outcome.ended_count, 2);
    step(&node, 100 + 2 * 4, &outcome); /* only now the third */
    assert_int_equal(outcome.ended_count, 1);
    assert_int_equal(node.kv_used, 0);
    assert_int_equal(node.decode_tokens, 7); /* padding is none */
    assert_int_equal(node_held(&node), 0);
    node_outcome_free(&outcome);
    node_free(&node);
}

/* 12 sequences of 40 + 100 tokens in 1,000 tokens of memory: some must go and come again. All
 * tokens are made once, and what is computed twice is counted as prefill. */
static void preemption_conserves_tokens(void **state)
{
    enum { COUNT = 12, PROMPT = 40, OUTPUT = 100 };
    struct node node;
    struct node_outcome outcome = {0};
    uint32_t ended[COUNT] = {0}, first[COUNT] = {0}, ends = 0;
    double us;

    (void)state;
    open_node(&node, 64, false);
    for (uint32_t i = 0; i < COUNT; i++)
        assign(&node, i, PROMPT, OUTPUT);
    while (node_begin(&node, &us)) {
        assert_true(node_end(&node, us, &outcome, &(struct err){0}));
        assert_true(node.kv_used <= model.kv_tokens);
        for (uint32_t i = 0; i < outcome.first_count; i++)
            first[outcome.first[i]]++;
        for (uint32_t i = 0; i < outcome.ended_count; i++)
            ended[outcome.ended[i]]++;
        ends += outcome.ended_count;
    }
    assert_int_equal(ends, COUNT);
    assert_true(node.preemptions > 0);
    assert_true(node.prefill_tokens > COUNT * PROMPT);
    assert_int_equal(node.kv_used, 0);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(first[i], 1);
        assert_int_equal(ended[i], 1);
    }
    /* The last prefill row of a second reading gives a token, too, so none is made twice. */
    assert_int_equal(node.decode_tokens, COUNT * OUTPUT);
    node_outcome_free(&outcome);
    node_free(&node);
}

static void load_is_full_at_the_target(void **state)
{
    struct node node;
    struct node_outcome outcome = {0};
    double us;

    (void)state;
    open_node(&node, 64, false);
    /* 50 rows of prefill at 2 us would fill the 100 us beside the fixed part; chunks allow 8. */
    for (uint32_t i = 0; i < 400; i++) {
        assign(&node, i, 8, 1);
        assert_true(node_begin(&node, &us));
        assert_true(node_end(&node, us, &outcome, &(struct err){0}));
    }
    assert_true(node.load > 0.159 && node.load < 0.1601); /* 16 of 100 us */
    assert_true(node.step_us > 115.9 && node.step_us < 116.1);
    node_outcome_free(&outcome);
    node_free(&node);
}

static void too_large_runs_alone(void **state)
{
    struct node node;
    struct node_outcome outcome = {0};
    double us;
    uint32_t order[2], ends = 0;

    (void)state;
    open_node(&node, 64, false);
    assign(&node, 0, 2000, 1);
    assign(&node, 1, 8, 1);
    while (node_begin(&node, &us)) {
        assert_true(node_end(&node, us, &outcome, &(struct err){0}));
        for (uint32_t i = 0; i < outcome.ended_count; i++)
            order[ends++] = outcome.ended[i];
    }
    assert_int_equal(ends, 2);
    assert_int_equal(order[0], 0);
    assert_int_equal(order[1], 1);
    node_outcome_free(&outcome);
    node_free(&node);
}

static void prompts_begin_behind_what_is_cached(void **state)
{
    static const uint32_t first[] = {1, 2}, longer[] = {1, 2, 3}, other[] = {5, 6};
    struct node node;
    struct node_outcome outcome = {0};

    (void)state;
    open_node(&node, 2, false);
    assign_blocks(&node, 0, first, 16, 1);
    step(&node, 100 + 2 * 8, &outcome);
    step(&node, 100 + 2 * 8, &outcome);
    assert_int_equal(outcome.ended_count, 1);
    assert_int_equal(outcome.ended_cached[0], 0);
    assert_int_equal(node.kv_used, 0);
    assert_int_equal(node.cache.idle_tokens, 16);
    assign_blocks(&node, 1, longer, 20, 1);
    step(&node, 100 + 2 * 4, &outcome);
    assert_int_equal(outcome.ended_cached[0], 16);
    assign_blocks(&node, 2, first, 16, 1); /* its last token is computed in any case */
    step(&node, 100 + 2 * 1, &outcome);
    assert_int_equal(outcome.ended_cached[0], 15);
    /* Two at once: one memory, and the second waits for what the first computes in a step. */
    assign_blocks(&node, 3, other, 12, 1);
    assign_blocks(&node, 4, other, 12, 1);
    step(&node, 100 + 2 * 8, &outcome);
    assert_int_equal(node.kv_used, 12);
    assert_int_equal(node.kv_context, 12);
    step(&node, 100 + 2 * 4, &outcome);
    assert_int_equal(outcome.ended[0], 3);
    step(&node, 100 + 2 * 1, &outcome);
    assert_int_equal(outcome.ended[0], 4);
    assert_int_equal(outcome.ended_cached[0], 11);
    assert_int_equal(node.kv_used + node.kv_context, 0);
    node_outcome_free(&outcome);
    node_free(&node);
}

/* Sixty prompts of a tree and long answers in little memory: blocks are shared, given up, and found
 * again after preemptions; every answer comes once, and memory is never exceeded. */
static void caches_and_preemption(void **state)
{
    enum { COUNT = 60 };
    struct node node;
    struct node_outcome outcome = {0};
    uint32_t ids[COUNT][5], ended[COUNT] = {0}, ends = 0, cached = 0;
    double us;

    (void)state;
    open_node(&node, 64, false);
    for (uint32_t i = 0; i < COUNT; i++) {
        ids[i][0] = 1;
        for (uint32_t depth = 1; depth < 5; depth++)
            ids[i][depth] = 2 * ids[i][depth - 1] + (i >> depth & 1);
        assign_blocks(&node, i, ids[i], 33 + i % 8, 90);
    }
    while (node_begin(&node, &us)) {
        assert_true(node_end(&node, us, &outcome, &(struct err){0}));
        assert_true(node.kv_used + node.cache.idle_tokens <= model.kv_tokens);
        assert_true(node.kv_used <= node.kv_context);
        for (uint32_t i = 0; i < outcome.ended_count; i++, ends++) {
            ended[outcome.ended[i]]++;
            cached += outcome.ended_cached[i];
        }
    }
    assert_int_equal(ends, COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(ended[i], 1);
    assert_true(node.preemptions > 0);
    assert_true(cached > COUNT * 16);
    assert_int_equal(node.decode_tokens, COUNT * 90);
    assert_int_equal(node.kv_used + node.kv_context, 0);
    node_outcome_free(&outcome);
    node_free(&node);
}

/* Urgent ones begin first, beside a full batch, and as many as it has places. */
static void urgent_ones_begin_first(void **state)
{
    struct node node;
    struct node_outcome outcome = {0};

    (void)state;
    open_node(&node, 1, false);
    assign(&node, 0, 2, 9);
    assign(&node, 1, 2, 9);
    step(&node, 100 + 2 * 2, &outcome); /* a batch of one */
    for (uint32_t i = 2; i < 4; i++) {
        const struct node_sequence urgent = {
            .request = i, .prompt = 3, .output = 1, .urgent = true};
        assert_true(node_assign(&node, &urgent, &(struct err){0}));
    }
    step(&node, 100 + 1 + 2 * 3, &outcome);
    assert_int_equal(outcome.ended_count, 1);
    assert_int_equal(outcome.ended[0], 2);
    step(&node, 100 + 1 + 2 * 3, &outcome);
    assert_int_equal(outcome.ended_count, 1);
    assert_int_equal(outcome.ended[0], 3);
    step(&node, 100 + 1, &outcome); /* the second bulk one still waits for the first */
    assert_int_equal(node_held(&node), 2);
    node_outcome_free(&outcome);
    node_free(&node);
}

/* A prompt is admitted when the step has rows for it: what comes later may still pass it. */
static void prompts_are_admitted_as_they_are_read(void **state)
{
    struct node node;
    struct node_outcome outcome = {0};

    (void)state;
    open_node(&node, 4, false);
    assign(&node, 0, 10, 1);
    assign(&node, 1, 10, 1);
    assign(&node, 2, 10, 1);
    step(&node, 100 + 2 * 8, &outcome);
    assert_int_equal(node.filling.count - node.filling.head, 1);
    assert_int_equal(node.kv_used, 10);
    step(&node, 100 + 2 * 8, &outcome); /* two of the first prompt, six of the second */
    assert_int_equal(outcome.ended_count, 1);
    node_outcome_free(&outcome);
    node_free(&node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(continuous_batching),
        cmocka_unit_test(classic_batches_end_together),
        cmocka_unit_test(preemption_conserves_tokens),
        cmocka_unit_test(load_is_full_at_the_target),
        cmocka_unit_test(too_large_runs_alone),
        cmocka_unit_test(prompts_begin_behind_what_is_cached),
        cmocka_unit_test(caches_and_preemption),
        cmocka_unit_test(urgent_ones_begin_first),
        cmocka_unit_test(prompts_are_admitted_as_they_are_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
