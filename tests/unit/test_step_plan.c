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

static bool with_prefix_cache;

static void open_books(uint32_t seqs_max, uint32_t chunk, uint32_t pages)
{
    const struct step_limits limits = {
        .seqs_max = seqs_max, .chunk_tokens = chunk, .context_max = pages * KV_PAGE_TOKENS};
    struct err err;

    const struct sequences_shape shape = {.count = seqs_max + 4,
                                          .context_max = limits.context_max,
                                          .pages = pages,
                                          .prefix_cache = with_prefix_cache};

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

/* ---- with the prefix cache ---- */

/* A sequence like tag's: it knows the first same of its tokens, then some that
 * depend on known. */
static struct sequence *add_like(uint64_t tag, uint32_t same, uint32_t known)
{
    struct sequence *sequence = add(1000 + known, known);

    for (uint32_t i = 0; i < same; i++)
        sequence->tokens[i] = (int32_t)(100 * tag + i);
    sequence->prompt_count = known;
    sequence->first_step_us = 0;
    return sequence;
}

static uint32_t make_step(void)
{
    return step_plan_make(&plan, &sequences, (struct step_sizes){.batch = 4});
}

static void open_shared_books(uint32_t chunk, uint32_t pages)
{
    with_prefix_cache = true;
    open_books(4, chunk, pages);
    with_prefix_cache = false;
}

static void test_begins_behind_what_is_there(void **state)
{
    struct sequence *a;
    struct sequence *b;
    struct sequence *c;

    (void)state;
    open_shared_books(100, 8);
    a = add(1, 40);
    make_step();
    finish_step();
    b = add_like(1, 36, 50);
    c = add_like(1, 32, 32);
    make_step();
    assert_int_equal(b->cached, 32);
    assert_int_equal(plan.first_position[1], 32);
    assert_int_equal(plan.seq_rows[1], 18);
    assert_int_equal(plan.pages[plan.pages_stride], a->chain.pages[0]);
    assert_int_equal(plan.pages[plan.pages_stride + 1], a->chain.pages[1]);
    assert_int_equal(c->cached, 16); /* all of it is there, but its last token must run */
    assert_int_equal(plan.first_position[2], 16);
    assert_int_equal(plan.seq_rows[2], 16);
    close_books();
}

/* Three alike at once: the first computes what is alike, the others wait for it, and one that is
 * unlike does not wait for them. */
static void test_a_burst(void **state)
{
    struct sequence *a;
    struct sequence *b;
    struct sequence *d;

    (void)state;
    open_shared_books(100, 20);
    a = add_like(1, 32, 40);
    b = add_like(1, 32, 50);
    add_like(1, 32, 60);
    d = add(4, 20);
    make_step();
    assert_int_equal(plan.n_seqs, 2);
    assert_ptr_equal(plan.seqs[0], a);
    assert_ptr_equal(plan.seqs[1], d);
    assert_int_equal(plan.n_rows, 60);
    assert_ptr_equal(sequences.waiting[0], b);
    finish_step();
    make_step();
    assert_int_equal(plan.n_seqs, 4);
    assert_ptr_equal(plan.seqs[2], b);
    assert_int_equal(plan.n_rows, 2 + 18 + 28);
    close_books();
}

/* Whoever is passed keeps its place in the batch. */
static void test_a_kept_place(void **state)
{
    (void)state;
    open_shared_books(100, 20);
    add_like(1, 32, 40);
    add_like(1, 32, 50);
    add_like(1, 32, 60);
    add(4, 20);
    step_plan_make(&plan, &sequences, (struct step_sizes){.batch = 3});
    assert_int_equal(plan.n_seqs, 1);
    close_books();
}

/* It waits for the next chunk only, and goes its own way where they part. */
static void test_waits_for_one_chunk(void **state)
{
    struct sequence *a;
    struct sequence *b;

    (void)state;
    open_shared_books(24, 12);
    a = add_like(1, 64, 64);
    b = add_like(1, 20, 64);
    make_step();
    assert_int_equal(plan.n_seqs, 1); /* 24 rows: a page and a half */
    finish_step();
    sequences_move(&sequences, a, SEQUENCE_FINISHED);
    make_step();
    assert_int_equal(plan.n_seqs, 1);
    assert_ptr_equal(plan.seqs[0], b);
    assert_int_equal(b->cached, 16);
    close_books();
}

/* Pages that nobody uses go first; the running ones stay. */
static void test_reuses_before_it_preempts(void **state)
{
    struct sequence *a;

    (void)state;
    open_shared_books(100, 4);
    a = add(1, 48);
    make_step();
    finish_step();
    sequences_move(&sequences, a, SEQUENCE_FREE);
    assert_int_equal(sequences.cache.idle_count, 3);
    add(2, 15);
    add(3, 14);
    assert_int_equal(make_step(), 0);
    assert_int_equal(plan.n_seqs, 2);
    for (uint32_t i = 0; i < 3; i++) { /* to 18 and 17 tokens, two pages each */
        finish_step();
        assert_int_equal(make_step(), 0);
    }
    assert_int_equal(sequences.cache.evictions, 3);
    close_books();
}

/* Its pages stay while they are not needed: it goes on where it was. What was its own is no
 * discount. */
static void test_preempted_and_back(void **state)
{
    struct sequence *a;
    struct sequence *b;
    uint32_t preempted = 0;

    (void)state;
    open_shared_books(100, 5);
    a = add_like(1, 31, 31);
    b = add_like(2, 30, 30);
    while (preempted == 0) {
        preempted = make_step();
        finish_step();
        a->first_step_us = 1;
        b->first_step_us = 1;
    }
    assert_int_equal(b->state, SEQUENCE_WAITING); /* it wanted a third page */
    assert_int_equal(b->known, 33);
    assert_int_equal(a->fed, 34);
    assert_int_equal(sequences.cache.idle_count, 2);
    while (a->fed < 49) { /* then a wants a fourth: b's second */
        assert_int_equal(make_step(), 0);
        assert_int_equal(plan.n_seqs, 1);
        finish_step();
    }
    assert_int_equal(sequences.cache.idle_count, 1);
    sequences_move(&sequences, a, SEQUENCE_FINISHED);
    make_step();
    assert_int_equal(plan.n_seqs, 1);
    assert_int_equal(plan.first_position[0], 16);
    assert_int_equal(plan.n_rows, 17);
    assert_int_equal(b->cached, 0);
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

/* The batch may have two, and two run: urgent ones still find a place, up to two of their own and
 * what the buffers hold, while others wait. */
static void test_urgent_ones_count_their_own(void **state)
{
    const struct step_sizes sizes = {.batch = 2};

    (void)state;
    open_books(5, 100, 16);
    add(1, 3);
    add(2, 3);
    add(3, 3);
    assert_int_equal(step_plan_make(&plan, &sequences, sizes), 0);
    finish_step();
    for (uint64_t tag = 4; tag <= 6; tag++) {
        struct sequence *urgent = sequences_take(&sequences);
        urgent->urgent = true;
        add(tag, 3);
    }
    assert_int_equal(step_plan_make(&plan, &sequences, sizes), 0);
    assert_int_equal(sequences.running_count, 4);
    assert_int_equal(sequences.running[2]->tag, 4);
    assert_int_equal(sequences.running[3]->tag, 5);
    assert_int_equal(sequences.waiting[0]->tag, 6);
    finish_step();
    /* A batch of three: a place for the third urgent one, the last in the buffers; none for 3. */
    assert_int_equal(step_plan_make(&plan, &sequences, (struct step_sizes){.batch = 3}), 0);
    assert_int_equal(sequences.running_count, 5);
    assert_int_equal(sequences.running[4]->tag, 6);
    finish_step();
    sequences_move(&sequences, sequences_find(&sequences, 1), SEQUENCE_FREE);
    sequences_move(&sequences, sequences_find(&sequences, 2), SEQUENCE_FREE);
    assert_int_equal(step_plan_make(&plan, &sequences, (struct step_sizes){.batch = 3}), 0);
    assert_int_equal(sequences.running_count, 3); /* 3 waits: three run */
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
        cmocka_unit_test(test_begins_behind_what_is_there),
        cmocka_unit_test(test_a_burst),
        cmocka_unit_test(test_a_kept_place),
        cmocka_unit_test(test_waits_for_one_chunk),
        cmocka_unit_test(test_reuses_before_it_preempts),
        cmocka_unit_test(test_preempted_and_back),
        cmocka_unit_test(test_nothing_to_do),
        cmocka_unit_test(test_urgent_ones_count_their_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
