/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/lstm.h"

#include <math.h>
#include <string.h>

#include "common/check.h"

static float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

void lstm_step(const struct lstm *lstm, struct lstm_state *state, float x)
{
    const uint32_t hidden = lstm->hidden;
    float gate[4 * LSTM_HIDDEN_MAX];

    for (uint32_t row = 0; row < 4 * hidden; row++) {
        float sum = lstm->bias[row] + lstm->weight_ih[row] * x;
        for (uint32_t i = 0; i < hidden; i++)
            sum += lstm->weight_hh[row * hidden + i] * state->h[i];
        gate[row] = sum;
    }
    for (uint32_t i = 0; i < hidden; i++) {
        float input = sigmoid(gate[i]), forget = sigmoid(gate[hidden + i]);
        float cell = tanhf(gate[2 * hidden + i]), output = sigmoid(gate[3 * hidden + i]);
        state->c[i] = forget * state->c[i] + input * cell;
        state->h[i] = output * tanhf(state->c[i]);
    }
}

float lstm_change(const struct lstm *lstm, const struct lstm_state *state, uint32_t windows_ahead)
{
    CHECK(windows_ahead >= 1);
    uint32_t horizon = windows_ahead < LSTM_HORIZONS ? windows_ahead : LSTM_HORIZONS;
    const float *weight = lstm->head_weight + (size_t)(horizon - 1) * lstm->hidden;
    float sum = lstm->head_bias[horizon - 1];

    for (uint32_t i = 0; i < lstm->hidden; i++)
        sum += weight[i] * state->h[i];
    return sum;
}
