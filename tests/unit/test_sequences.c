/* SPDX-License-Identifier: Apache-2.0
 *
 * The places and queues of sequences.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "worker/sequences.h"

static struct sequence *add(struct sequences *sequences, uint64_t tag)
{
    struct sequence *sequence = sequences_take(sequences);

    assert_non_null(sequence);
    sequence->tag = tag;
    sequences_move(sequences, sequence, SEQUENCE_WAITING);
    return sequence;
}

static void test_places(void **state)
{
    struct sequences sequences;
    struct sequence *one;
    struct err err;

    (void)state;
    assert_true(sequences_open(
        &sequences,
        (struct sequences_shape){.count = 2, .context_max = 20, .pages = 8, .profile_cells = 3},
        &err));
    one = add(&sequences, 7);
    add(&sequences, 8);
    assert_null(sequences_take(&sequences));
    assert_ptr_equal(sequences_find(&sequences, 7), one);
    assert_null(sequences_find(&sequences, 9));
    sequences_move(&sequences, one, SEQUENCE_FREE);
    assert_null(sequences_find(&sequences, 7));
    assert_ptr_equal(sequences_take(&sequences), one);
    sequences_close(&sequences);
}

static void test_queues(void **state)
{
    struct sequences s;
    struct sequence *a;
    struct sequence *b;
    struct sequence *c;
    struct err err;

    (void)state;
    assert_true(sequences_open(
        &s, (struct sequences_shape){.count = 4, .context_max = 20, .pages = 8}, &err));
    a = add(&s, 1);
    b = add(&s, 2);
    c = add(&s, 3);
    sequences_move(&s, a, SEQUENCE_RUNNING);
    sequences_move(&s, b, SEQUENCE_RUNNING);
    assert_ptr_equal(s.running[1], b);
    assert_true(prefix_cache_extend(&s.cache, &b->chain, 3, 40));
    b->fed = 40;

    sequences_move(&s, b, SEQUENCE_WAITING); /* preempted: before c */
    assert_int_equal(s.running_count, 1);
    assert_int_equal(s.waiting_count, 2);
    assert_ptr_equal(s.waiting[0], b);
    assert_ptr_equal(s.waiting[1], c);
    assert_int_equal(b->fed, 0);
    assert_int_equal(prefix_cache_available(&s.cache), 8);

    sequences_move(&s, c, SEQUENCE_FREE); /* cancelled while it waits */
    assert_int_equal(s.waiting_count, 1);
    sequences_move(&s, a, SEQUENCE_FINISHED);
    assert_int_equal(s.running_count, 0);
    assert_ptr_equal(sequences_find(&s, 1), a);
    sequences_close(&s);
}

/* Urgent ones go before those that have not begun, among each other as they came. */
static void test_urgent_ones_go_first(void **state)
{
    struct sequences s;
    struct sequence *begun, *plain, *first, *second;
    struct err err;

    (void)state;
    assert_true(sequences_open(
        &s, (struct sequences_shape){.count = 4, .context_max = 20, .pages = 8}, &err));
    begun = add(&s, 1);
    sequences_move(&s, begun, SEQUENCE_RUNNING);
    begun->first_step_us = 5;
    plain = add(&s, 2);
    sequences_move(&s, begun, SEQUENCE_WAITING);
    first = sequences_take(&s);
    first->urgent = true;
    sequences_move(&s, first, SEQUENCE_WAITING);
    second = sequences_take(&s);
    second->urgent = true;
    sequences_move(&s, second, SEQUENCE_WAITING);
    assert_int_equal(s.waiting_count, 4);
    assert_ptr_equal(s.waiting[0], begun);
    assert_ptr_equal(s.waiting[1], first);
    assert_ptr_equal(s.waiting[2], second);
    assert_ptr_equal(s.waiting[3], plain);
    sequences_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_queues),
        cmocka_unit_test(test_urgent_ones_go_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
