/* SPDX-License-Identifier: Apache-2.0
 *
 * Predictors on series small enough to work out by hand.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "scheduler/predict.h"

static struct predict predict;

static void start(struct predict_params params, const double *values, size_t count)
{
    predict_init(&predict, &params);
    for (size_t i = 0; i < count; i++)
        predict_observe(&predict, values[i]);
}

static void assert_near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-6 * fmax(1, fabs(b))))
        fail_msg("%.9g is not %.9g", a, b);
}

static void test_before_the_first_window(void **state)
{
    (void)state;
    for (int kind = PREDICT_CONSTANT; kind <= PREDICT_HOLT_WINTERS; kind++) {
        start(predict_defaults((enum predict_kind)kind), NULL, 0);
        assert_near(predict_forecast(&predict, 1), 0);
    }
}

static void test_constant_and_ewma(void **state)
{
    const double values[] = {10, 20, 40};

    (void)state;
    start((struct predict_params){.kind = PREDICT_CONSTANT}, values, 3);
    assert_near(predict_forecast(&predict, 3), 40);
    /* 10, 10 + 0.5 * 10 = 15, 15 + 0.5 * 25 = 27.5 */
    start((struct predict_params){.kind = PREDICT_EWMA, .alpha = 0.5}, values, 3);
    assert_near(predict_forecast(&predict, 1), 27.5);
}

/* As many experts have them: zeroed, and the same numbers as above. */
static void test_bare_series(void **state)
{
    const double values[] = {10, 20, 40}, line[] = {-5, -3, -1};
    struct predict_params ewma = {.kind = PREDICT_EWMA, .alpha = 0.5};
    struct predict_params holt = {
        .kind = PREDICT_HOLT_WINTERS, .alpha = 1, .beta = 1, .damping = 1, .season = 4};
    struct predict_params constant = {.kind = PREDICT_CONSTANT};
    struct predict_series series[3] = {{0}};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        predict_series_observe(&constant, &series[0], values[i]);
        predict_series_observe(&ewma, &series[1], values[i]);
        predict_series_observe(&holt, &series[2], line[i]);
    }
    assert_near(predict_series_forecast(&constant, &series[0], 1), 40);
    assert_near(predict_series_forecast(&ewma, &series[1], 1), 27.5);
    assert_near(predict_series_forecast(&holt, &series[2], 2), 3); /* without a season */
}

static void test_holt_follows_a_line(void **state)
{
    /* alpha = beta = 1 without damping reproduces a line exactly. */
    const double line[] = {5, 7, 9, 11};

    (void)state;
    start(
        (struct predict_params){.kind = PREDICT_HOLT_WINTERS, .alpha = 1, .beta = 1, .damping = 1},
        line, 4);
    assert_near(predict_forecast(&predict, 1), 13);
    assert_near(predict_forecast(&predict, 4), 19);
    /* Damped by a half the trend is seen as 1.5 at the end: 11 + 0.75 + 0.375. */
    start(
        (struct predict_params){.kind = PREDICT_HOLT_WINTERS, .alpha = 1, .beta = 1, .damping = .5},
        line, 4);
    assert_near(predict_forecast(&predict, 2), 11 + 0.5 * 2 + 0.25 * 2);
}

static void test_holt_winters_learns_a_season(void **state)
{
    double values[400];

    (void)state;
    for (int i = 0; i < 400; i++)
        values[i] = 100 + (i % 4 == 0 ? 60 : i % 4 == 2 ? -60 : 0);
    start(
        (struct predict_params){
            .kind = PREDICT_HOLT_WINTERS, .alpha = 0.1, .gamma = 0.3, .damping = 0.5, .season = 4},
        values, 400);
    assert_true(fabs(predict_forecast(&predict, 1) - 160) < 5); /* window 400 */
    assert_true(fabs(predict_forecast(&predict, 3) - 40) < 5);
    assert_true(fabs(predict_forecast(&predict, 4) - 100) < 5);
}

static void test_forecasts_are_never_negative(void **state)
{
    const double falling[] = {100, 50, 0, 0};

    (void)state;
    start(
        (struct predict_params){.kind = PREDICT_HOLT_WINTERS, .alpha = 1, .beta = 1, .damping = 1},
        falling, 3);
    assert_near(predict_forecast(&predict, 6), 0);
}

static void test_lstm_without_change_is_the_last_value(void **state)
{
    static struct lstm lstm = {.hidden = 2};
    const double values[] = {3, 8};

    (void)state;
    start((struct predict_params){.kind = PREDICT_LSTM, .lstm = &lstm}, values, 2);
    assert_near(predict_forecast(&predict, 1), 8);
    /* A head that says ln 2 doubles it. */
    lstm.head_bias[1] = logf(2);
    assert_near(predict_forecast(&predict, 2), 16);
}

static void test_lstm_cell_by_hand(void **state)
{
    /* One unit, all weights 1, no bias, x = 1, then x = 0. With s = sigmoid, t = tanh:
     * c1 = s(1) t(1), h1 = s(1) t(c1); c2 = s(h1) c1 + s(h1) t(h1), h2 = s(h1) t(c2). */
    static const struct lstm lstm = {.hidden = 1,
                                     .weight_ih = {1, 1, 1, 1},
                                     .weight_hh = {1, 1, 1, 1},
                                     .head_weight = {2, 0, 0, 0, 0, -1},
                                     .head_bias = {0.5f}};
    struct lstm_state cell = {0};

    (void)state;
    lstm_step(&lstm, &cell, 1);
    assert_near(cell.c[0], 0.556769941);
    assert_near(cell.h[0], 0.369606353);
    lstm_step(&lstm, &cell, 0);
    double s = 1 / (1 + exp(-0.369606353));
    double c = s * 0.556769941 + s * tanh(0.369606353);
    assert_near(cell.c[0], c);
    assert_near(cell.h[0], s * tanh(c));
    assert_near(lstm_change(&lstm, &cell, 1), 0.5 + 2 * s * tanh(c));
    assert_near(lstm_change(&lstm, &cell, 9), -s * tanh(c)); /* beyond the last horizon: the last */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_before_the_first_window),
        cmocka_unit_test(test_constant_and_ewma),
        cmocka_unit_test(test_bare_series),
        cmocka_unit_test(test_holt_follows_a_line),
        cmocka_unit_test(test_holt_winters_learns_a_season),
        cmocka_unit_test(test_forecasts_are_never_negative),
        cmocka_unit_test(test_lstm_without_change_is_the_last_value),
        cmocka_unit_test(test_lstm_cell_by_hand),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
