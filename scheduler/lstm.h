/* SPDX-License-Identifier: Apache-2.0
 *
 * lstm - inference of the small network that forecasts traffic.
 *
 * One LSTM cell (Hochreiter and Schmidhuber 1997; gates in the order input,
 * forget, cell, output, as PyTorch stores them) over a scalar series, and a
 * linear head that gives the forecast of 1 to LSTM_HORIZONS windows ahead, as a
 * change of the input. The input is log(x / mean), so that one set of weights
 * serves any size of cluster.
 *
 * Weights come from a safetensors file with the f32 tensors weight_ih (4h, 1),
 * weight_hh (4h, h), bias (4h), head.weight (LSTM_HORIZONS, h) and head.bias
 * (LSTM_HORIZONS); ops/train-predictor writes it. Reading never allocates.
 */
#ifndef SCHEDULER_LSTM_H
#define SCHEDULER_LSTM_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

enum { LSTM_HIDDEN_MAX = 32, LSTM_HORIZONS = 6 };

struct lstm {
    uint32_t hidden;                                        /* 1 to LSTM_HIDDEN_MAX */
    float weight_ih[4 * LSTM_HIDDEN_MAX];                   /* (4, hidden) */
    float weight_hh[4 * LSTM_HIDDEN_MAX * LSTM_HIDDEN_MAX]; /* (4, hidden, hidden) */
    float bias[4 * LSTM_HIDDEN_MAX];                        /* (4, hidden) */
    float head_weight[LSTM_HORIZONS * LSTM_HIDDEN_MAX];     /* (horizons, hidden) */
    float head_bias[LSTM_HORIZONS];
};

struct lstm_state {
    float h[LSTM_HIDDEN_MAX];
    float c[LSTM_HIDDEN_MAX];
};

/* REJECT names file and tensor; a .pth file is refused with the name of the converter. */
bool lstm_read(struct lstm *lstm, const char *path, struct err *err);

/* One window of input. */
void lstm_step(const struct lstm *lstm, struct lstm_state *state, float x);

/* Change of the input 1 to LSTM_HORIZONS windows ahead. */
float lstm_change(const struct lstm *lstm, const struct lstm_state *state, uint32_t windows_ahead);

#endif
