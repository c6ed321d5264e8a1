/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/shell/board.h"

#include "common/check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct board {
    uint32_t layers;

    pthread_mutex_t mutex; /* guards what follows */
    struct engine_stats stats;
    float *layer_load;                    /* (layers) */
    struct expert_layer_sums *layer_sums; /* (layers) */
    bool failed;
    struct err err;

    float *layer_load_copy;                    /* (layers) Kafka thread */
    struct expert_layer_sums *layer_sums_copy; /* (layers) Kafka thread */
};

struct board *board_open(uint32_t layers)
{
    struct board *board = calloc(1, sizeof *board);
    size_t count = (size_t)layers + 1; /* of nothing, calloc may give NULL */

    CHECK(board != NULL);
    board->layers = layers;
    board->layer_load = calloc(count, sizeof *board->layer_load);
    board->layer_load_copy = calloc(count, sizeof *board->layer_load_copy);
    board->layer_sums = calloc(count, sizeof *board->layer_sums);
    board->layer_sums_copy = calloc(count, sizeof *board->layer_sums_copy);
    CHECK(board->layer_load != NULL);
    CHECK(board->layer_load_copy != NULL);
    CHECK(board->layer_sums != NULL);
    CHECK(board->layer_sums_copy != NULL);
    CHECK(pthread_mutex_init(&board->mutex, NULL) == 0);
    return board;
}

void board_close(struct board *board)
{
    pthread_mutex_destroy(&board->mutex);
    free(board->layer_load);
    free(board->layer_load_copy);
    free(board->layer_sums);
    free(board->layer_sums_copy);
    free(board);
}

void board_publish(struct board *board, const struct engine_stats *stats)
{
    pthread_mutex_lock(&board->mutex);
    board->stats = *stats;
    if (stats->layer_load != NULL)
        memcpy(board->layer_load, stats->layer_load, board->layers * sizeof *board->layer_load);
    if (stats->layer_sums != NULL)
        memcpy(board->layer_sums, stats->layer_sums, board->layers * sizeof *board->layer_sums);
    pthread_mutex_unlock(&board->mutex);
}

void board_fail(struct board *board, const struct err *err)
{
    pthread_mutex_lock(&board->mutex);
    board->failed = true;
    board->err = *err;
    pthread_mutex_unlock(&board->mutex);
}

void board_read(struct board *board, struct board_stats *stats)
{
    pthread_mutex_lock(&board->mutex);
    stats->engine = board->stats;
    memcpy(board->layer_load_copy, board->layer_load, board->layers * sizeof *board->layer_load);
    memcpy(board->layer_sums_copy, board->layer_sums, board->layers * sizeof *board->layer_sums);
    pthread_mutex_unlock(&board->mutex);
    stats->layers = board->layers;
    stats->layer_load = board->layer_load_copy;
    stats->layer_sums = board->layer_sums_copy;
    stats->engine.layer_load = NULL;
    stats->engine.expert_tokens = NULL;
    stats->engine.layer_sums = NULL;
}

bool board_healthy(struct board *board, struct err *err)
{
    bool healthy;

    pthread_mutex_lock(&board->mutex);
    healthy = !board->failed;
    if (!healthy)
        *err = board->err;
    pthread_mutex_unlock(&board->mutex);
    return healthy;
}
