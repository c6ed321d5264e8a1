/* SPDX-License-Identifier: Apache-2.0
 *
 * The errors of predictors: by hand, and as a report.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/sim/forecast.h"

static void constant_by_hand(void **state)
{
    static const double series[] = {10, 12, 8, 8, 16};
    struct predict_params params = predict_defaults(PREDICT_CONSTANT);

    (void)state;
    /* One ahead: |10-12| + |12-8| + |8-8| + |8-16| = 14 over 12 + 8 + 8 + 16 = 44. */
    assert_true(forecast_error(&params, series, 5, 1, 0) == 14.0 / 44);
    /* Two ahead, the first two windows only teach: |12-8| + |8-16| over 8 + 16. */
    assert_true(forecast_error(&params, series, 5, 2, 2) == 12.0 / 24);
}

static struct trace_windows windows_of(struct trace_window *windows, size_t count, double window_s)
{
    for (size_t i = 0; i < count; i++)
        windows[i] = (struct trace_window){.rate = i % 2 ? 3 : 1, .prompt = 7, .output = 10};
    return (struct trace_windows){windows, count, window_s};
}

/* A rate that swings between 1 and 3 with every ten minutes: 15 and 30 minutes ahead lie two and
 * four windows away, where "as now" is always right. */
static void the_report(void **state)
{
    struct trace_window windows[24];
    struct trace_windows trace = windows_of(windows, 24, 600);
    char text[2048];
    struct err err;
    FILE *out = fmemopen(text, sizeof text, "w");

    (void)state;
    assert_true(forecast_report(out, &trace, NULL, true, &err));
    fclose(out);
    assert_non_null(strstr(text, "constant         0.0     0.0      0.0     0.0\n"));
    assert_non_null(strstr(text, "lstm          needs --prediction-model-path"));
    assert_non_null(strstr(text, "{\"constant\": {\"requests\": {\"15min\": 0.0000"));
    /* ewma 0.7 settles 2 * 0.3 / 1.3 = 0.4615 short of both values; of what came, 9 of 17 and 8 of
     * 15 windows have a rate of 3. */
    assert_non_null(strstr(text, "ewma            22.4    22.3     22.4    22.3\n"));
}

static void refused(void **state)
{
    struct trace_window windows[24];
    struct trace_windows trace = windows_of(windows, 11, 600);
    struct err err;

    (void)state;
    assert_false(forecast_report(stdout, &trace, NULL, false, &err));
    trace = windows_of(windows, 24, 1200);
    assert_false(forecast_report(stdout, &trace, NULL, false, &err));
    assert_non_null(strstr(err.message, "15 minutes"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constant_by_hand),
        cmocka_unit_test(the_report),
        cmocka_unit_test(refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
