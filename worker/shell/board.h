/* SPDX-License-Identifier: Apache-2.0
 *
 * board - what the model thread shows of the engine to the Kafka thread: the numbers after its last
 * step, and the error that ended it.
 *
 * One mutex, held for copies of some hundred bytes a layer. Which thread may call what is said
 * below; opening and closing are the Kafka thread's, before and after the other one runs.
 */
#ifndef WORKER_SHELL_BOARD_H
#define WORKER_SHELL_BOARD_H

#include "common/err.h"
#include "worker/engine.h"

/* The engine's numbers after its last step. */
struct board_stats {
    struct engine_stats engine;                 /* without the arrays by layer */
    const float *layer_load;                    /* (layers) until the next board_read() */
    const struct expert_layer_sums *layer_sums; /* (layers) the same */
    uint32_t layers;
};

struct board;

struct board *board_open(uint32_t layers);
void board_close(struct board *board);

/* Model thread. Arrays by layer that are NULL leave what stood there. */
void board_publish(struct board *board, const struct engine_stats *stats);
/* Model thread: the engine failed. */
void board_fail(struct board *board, const struct err *err);

/* Kafka thread. */
void board_read(struct board *board, struct board_stats *stats);
/* Kafka thread. False: the engine failed, and why. */
bool board_healthy(struct board *board, struct err *err);

#endif
