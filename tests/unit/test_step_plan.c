/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rows a step gets: budgets, admission, pages and preemption, on books
 * without a model.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "worker/step_plan.h"

static struct sequences sequences;
static struct step_plan plan;

static void open_books(uint32_t seqs_max, uint32_t chunk, uint32_t pages)
{
    const struct step_limits limits = {
        .seqs_max = seqs_max, .chunk_tokens = chunk, .context_max = pages * KV_PAGE_TOKENS};
    struct err err;

    const struct sequences_shape shape = {
        .count = seqs_max + 4, .context_max = limits.context_max, .pages = pages};

    assert_true(sequences_open(&sequences, shape, &err));
    assert_true(step_plan_open(&plan, limits, &err));
}

static void close_books(void)
{
    step_plan_close(&plan);
    sequences_close(&sequences);
}

/* A waiting sequence whose tokens are 100 * tag, 100 * tag + 1... */
static struct sequence *add(uint64_t tag, uint32_t known)
{
    struct sequence *sequence = sequences_take(&sequences);

    assert_non_null(sequence);
    sequence->tag = tag;
    sequence->known = known;
    for (uint32_t i = 0; i < known; i++)
        sequence->tokens[i] = (int32_t)(100 * tag + i);
    sequences_move(&sequences, sequence, SEQUENCE_WAITING);
    return sequence;
}

/* The model ran: rows are fed, and sequences that know no more say a token. */
static void finish_step(void)
{
    for (uint32_t i = 0; i < plan.n_seqs; i++)
        sequences_feed(&sequences, plan.seqs[i]);
    for (uint32_t i = 0; i < plan.n_logits; i++) {
        plan.sampled[i]->tokens[plan.sampled[i]->known++] = 9999;
        plan.sampled[i]->sampled++;
    }
}

static void test_chunks_share_the_budget(void **state)
{
    struct sequence *a;
    struct sequence *b;

    (void)state;
    open_books(4, 10, 8);
    a = add(1, 7);
    b = add(2, 7);
    assert_int_equal(step_plan_make(&plan, &sequences, (struct step_sizes){.batch = 4}), 0);
    assert_int_equal(plan.n_rows, 10);
    assert_int_equal(plan.n_seqs, 2);
    assert_int_equal(plan.n_logits, 1); /* only a is fed whole */
    assert_ptr_equal(plan.sampled[0], a);
    assert_int_equal(plan.logit_rows[0], 6);
    assert_int_equal(plan.first_row[1], 7);
    assert_int_equal(plan.seq_rows[1], 3);
    assert_int_equal(plan.tokens[8], 201);
    assert_int_equal(plan.positions[8], 1);
    finish_step();

    /* a decodes, b goes on at its fourth token. */
    assert_int_equal(step_plan_make(&plan, &sequences, (struct step_sizes){.batch = 4}), 0);
    assert_int_equal(plan.n_rows, 5);
    assert_int_equal(plan.n_decode_rows, 1);
    assert_int_equal(plan.tokens[0], 9999);
    assert_int_equal(plan.positions[0], 7);
    assert_int_equal(plan.first_position[1], 3);
    assert_int_equal(plan.tokens[1], 203);
    assert_int_equal(plan.n_logits, 2);
    assert_ptr_equal(plan.sampled[1], b);
    close_books();
}

static void test_decodes_beside_a_long_prompt(void **state)
{
    (void)state;
    open_books(4, 2, 8);
    add(1, 1);
    assert_int_equal(step_plan_make(&plan, &sequences, (struct step_sizes){.batch = 4}), 0);
    finish_step();
    add(2, 50);
    assert_int_equal(step_plan_make(&plan, &sequences, (struct step_sizes){.batch = 4}), 0);
    assert_int_equal(plan.n_rows, 3);
    assert_int_equal(plan.n_decode_rows, 1);
    close_books();
}

static void test_batch_size_limits_admission(void **state)
{
    (void)state;
    open_books(4, 100, 8);
    for (uint64_t tag = 0; tag < 4; tag++)
        add(tag, 3);
    step_plan_make(&plan, &sequences, (struct step_sizes){.batch = 2});
    assert_int_equal(plan.n_seqs, 2);
    finish_step();
    step_plan_make(&plan, &sequences, (struct step_sizes){.batch = 3});
    assert_int_equal(plan.n_seqs, 3);
    finish_step();
    step_plan_make(&plan, &sequences, (struct step_sizes){.batch = 1}); /* running ones stay */
    assert_int_equal(plan.n_seqs, 3);
    close_books();
}

/* Four pages: two sequences of 31 know a token more than two pages each can hold. */
static void test_admits_what_fits(void **state)
{
    (void)state;
    open_books(4, 100, 4);
    add(1, 31);
    add(2, 32);
    step_plan_make(&plan, &sequences, (struct step_sizes){.batch = 4});
    assert_int_equal(plan.n_seqs, 1); /* 2 + 3 pages are more than 4 */
    assert_int_equal(sequences.waiting_count, 1);
    close_books();

    open_books(4, 100, 5);
    add(1, 31);
    add(2, 32);
    step_plan_make(&plan, &sequences, (struct step_sizes){.batch = 4});
    assert_int_equal(plan.n_seqs, 2);
    close_books();
}

static void test_preempts_the_youngest(void **state)
{
    struct sequence *a;
    struct sequence *b;
    uint32_t preempted = 0;

    (void)state;
    open_books(4, 100, 3);
    a = add(1, 15);
    b = add(2, 14);
    step_plan_make(&plan, &sequences, (struct step_sizes){.batch = 4});
    assert_int_equal(plan.n_seqs, 2);
    while (preempted == 0) {
        finish_step();
        preempted = step_plan_make(&plan, &sequences, (struct step_sizes){.batch = 4});
    }
    /* a got page 3 for its 17th token, b wanted another for its own. */
    assert_int_equal(preempted, 1);
    assert_int_equal(a->state, SEQUENCE_RUNNING);
    assert_int_equal(b->state, SEQUENCE_WAITING);
    assert_int_equal(b->fed, 0);
    assert_int_equal(b->known, 17);
    assert_int_equal(b->chain.count, 0);
    assert_int_equal(plan.n_seqs, 1);

    sequences_move(&sequences, a, SEQUENCE_FINISHED);
    assert_int_equal(prefix_cache_available(&sequences.cache), 3);
    assert_int_equal(step_plan_make(&plan, &sequences, (struct step_sizes){.batch = 4}), 0);
    assert_int_equal(plan.n_rows, 17); /* all it knows, once more */
    assert_int_equal(plan.n_decode_rows, 0);
    assert_int_equal(plan.n_logits, 1);
    close_books();
}

static void test_page_tables(void **state)
{
    struct model_batch batch;

    (void)state;
    open_books(4, 100, 8);
    add(1, 3);
    add(2, 33);
    step_plan_make(&plan, &sequences, (struct step_sizes){.batch = 4});
    batch = step_plan_batch(&plan, &pipeline_sequential);
    assert_int_equal(batch.pages_stride, 3);
    assert_int_equal(batch.pages[0], sequences.running[0]->chain.pages[0]);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(batch.pages[3 + i], sequences.running[1]->chain.pages[i]);
    close_books();
}

/* Sequences of 3, 33, 1 and 9 tokens in micro-batches of two: the longest, then the next ones to
 * the shorter one, as long as it has room. */
static void test_micro_batches(void **state)
{
    static const uint32_t rows[] = {33, 1, 3, 9};
    struct model_batch batch;

    (void)state;
    open_books(4, 100, 20);
    add(1, 3);
    add(2, 33);
    add(3, 1);
    add(4, 9);
    step_plan_make(&plan, &sequences, (struct step_sizes){.batch = 4, .micro_batch = 2});
    batch = step_plan_batch(&plan, &pipeline_prefill);
    assert_int_equal(batch.n_micro, 2);
    assert_int_equal(batch.micro_first[0], 0);
    assert_int_equal(batch.micro_first[1], 2);
    assert_int_equal(batch.micro_first[2], 4);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(batch.seq_rows[i], rows[i]);
    assert_int_equal(batch.first_row[2], 34);
    assert_int_equal(plan.sampled[3]->tag, 4);
    assert_int_equal(batch.logit_rows[3], 45);
    close_books();
}

static void test_nothing_to_do(void **state)
{
    (void)state;
    open_books(4, 100, 8);
    assert_int_equal(step_plan_make(&plan, &sequences, (struct step_sizes){.batch = 4}), 0);
    assert_int_equal(plan.n_rows, 0);
    close_books();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks_share_the_budget),
        cmocka_unit_test(test_decodes_beside_a_long_prompt),
        cmocka_unit_test(test_batch_size_limits_admission),
        cmocka_unit_test(test_admits_what_fits),
        cmocka_unit_test(test_preempts_the_youngest),
        cmocka_unit_test(test_page_tables),
        cmocka_unit_test(test_micro_batches),
        cmocka_unit_test(test_nothing_to_do),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
