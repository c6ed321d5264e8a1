/* SPDX-License-Identifier: Apache-2.0
 *
 * What the model thread shows is what the Kafka thread reads, whole.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include "worker/shell/board.h"

enum { LAYERS = 64, ROUNDS = 5000 };

static void test_newest_numbers(void **state)
{
    float loads[2] = {0.25f, 0.5f};
    struct expert_layer_sums sums[2] = {{0}, {0}};
    struct board *board = board_open(2);
    struct board_stats stats;

    (void)state;
    board_read(board, &stats);
    assert_int_equal(stats.layers, 2);
    assert_int_equal(stats.engine.steps, 0);
    board_publish(board, &(struct engine_stats){
                             .steps = 7, .waiting = 3, .layer_load = loads, .layer_sums = sums});
    loads[0] = loads[1] = 1; /* the board has its own */
    board_read(board, &stats);
    assert_int_equal(stats.engine.steps, 7);
    assert_int_equal(stats.engine.waiting, 3);
    assert_true(stats.layer_load[0] == 0.25f && stats.layer_load[1] == 0.5f);
    /* The engine's arrays are its thread's alone. */
    assert_null(stats.engine.layer_load);
    assert_null(stats.engine.layer_sums);
    /* Before the first step of a model without experts there are none: what stood there stays. */
    board_publish(board, &(struct engine_stats){.steps = 8});
    board_read(board, &stats);
    assert_int_equal(stats.engine.steps, 8);
    assert_true(stats.layer_load[1] == 0.5f);
    board_close(board);
}

static void test_failure(void **state)
{
    struct board *board = board_open(0);
    struct err told, read = {0};

    (void)state;
    assert_true(board_healthy(board, &read));
    err_set(&told, ERR_FATAL, "the GPU is gone");
    board_fail(board, &told);
    assert_false(board_healthy(board, &read));
    assert_int_equal(read.kind, ERR_FATAL);
    assert_string_equal(read.message, "the GPU is gone");
    board_close(board);
}

static void *show(void *argument)
{
    float loads[LAYERS];

    for (int round = 1; round <= ROUNDS; round++) {
        for (int i = 0; i < LAYERS; i++)
            loads[i] = (float)round;
        board_publish(argument, &(struct engine_stats){.steps = round, .layer_load = loads});
    }
    return NULL;
}

/* Whatever is read beside the writer is of one step, and no earlier one than before. */
static void test_two_threads(void **state)
{
    struct board *board = board_open(LAYERS);
    struct board_stats stats;
    int64_t last = 0;
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, show, board), 0);
    while (last < ROUNDS) {
        board_read(board, &stats);
        assert_true(stats.engine.steps >= last);
        last = stats.engine.steps;
        for (int i = 0; i < LAYERS; i++)
            assert_true(stats.layer_load[i] == (float)last);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    board_close(board);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_newest_numbers),
        cmocka_unit_test(test_failure),
        cmocka_unit_test(test_two_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
