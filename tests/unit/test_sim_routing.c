/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/sim/routing.h"

/* Two tasks, four experts on two ranks, no replicas. Task 0 uses experts 0 and 1 alone, task 1 uses
 * experts 2 and 3. */
static struct routing by_hand(void)
{
    struct routing routing = {.tasks = 2, .experts = 4, .ranks = 2, .replicas = 4, .top_k = 1};

    routing.share[0][0] = routing.share[0][1] = 0.5f;
    routing.share[1][2] = routing.share[1][3] = 0.5f;
    return routing;
}

static void one_task_is_uneven_and_two_are_not(void **state)
{
    const struct routing routing = by_hand();
    struct routing_batch batch;
    double gain;

    (void)state;
    assert_true(routing_batch_init(&batch, &routing, &(struct err){0}));
    assert_true(batch.imbalance == 1); /* empty */
    /* Make the placement one by index: experts 0, 1 on one rank if their load is nothing to each.
     */
    batch.rank_share[0][0] = 1;
    batch.rank_share[0][1] = 0;
    batch.rank_share[1][0] = 0;
    batch.rank_share[1][1] = 1;
    routing_batch_add(&batch, 0, 10);
    assert_true(fabs(batch.imbalance - 2) < 1e-9); /* one rank does all */
    routing_batch_add(&batch, 1, 10);
    assert_true(fabs(batch.imbalance - 1) < 1e-9);
    routing_batch_add(&batch, 1, -10);
    assert_true(fabs(batch.imbalance - 2) < 1e-9);
    /* The plan puts experts 0 and 1 on different ranks. */
    routing_batch_observe(&batch, 5);
    assert_true(routing_batch_replan(&batch, 1.02, &gain, &(struct err){0}));
    assert_true(fabs(gain - 2) < 1e-6);
    assert_true(fabs(batch.imbalance - 1) < 1e-6);
}

static void a_plan_that_gains_too_little_is_not_taken(void **state)
{
    const struct routing routing = by_hand();
    struct routing_batch batch;
    double gain;

    (void)state;
    assert_true(routing_batch_init(&batch, &routing, &(struct err){0}));
    batch.rank_share[0][0] = 0.6;
    batch.rank_share[0][1] = 0.4;
    routing_batch_add(&batch, 0, 10); /* imbalance 1.2 */
    routing_batch_observe(&batch, 1);
    assert_true(routing_batch_replan(&batch, 1.5, &gain, &(struct err){0}));
    assert_true(fabs(batch.imbalance - 1.2) < 1e-6);
    assert_true(batch.rank_share[0][0] == 0.6);
}

static void skewed_routing_is_lowered_by_plans(void **state)
{
    struct routing routing = {.tasks = 7, .experts = 256, .ranks = 8, .replicas = 288, .top_k = 8};
    struct routing_batch batch;
    double gain, before;

    (void)state;
    routing_skewed(&routing, 0.8, 3);
    for (uint32_t task = 0; task < routing.tasks; task++) {
        double sum = 0;
        for (uint32_t e = 0; e < routing.experts; e++)
            sum += (double)routing.share[task][e];
        assert_true(fabs(sum - 1) < 1e-4);
    }
    assert_true(routing_batch_init(&batch, &routing, &(struct err){0}));
    routing_batch_add(&batch, 2, 100);
    routing_batch_add(&batch, 5, 20);
    before = batch.imbalance;
    assert_true(before > 1.2);
    routing_batch_observe(&batch, 1);
    assert_true(routing_batch_replan(&batch, 1.02, &gain, &(struct err){0}));
    assert_true(batch.imbalance < 1.05);
    assert_true(fabs(before / batch.imbalance - gain) < 1e-9);
}

/* The load goes over from expert 0 to expert 1, a tenth of it in each interval: 0.8, 0.7, 0.6, 0.5.
 * The constant predictor expects 0.5 again, a trend 0.4. */
static void loads_are_forecast(void **state)
{
    struct routing routing = {.tasks = 2, .experts = 2, .ranks = 2, .replicas = 2, .top_k = 1};
    struct routing_batch batch;
    double gain;

    (void)state;
    routing.share[0][0] = routing.share[1][1] = 1;
    for (int trend = 0; trend < 2; trend++) {
        routing.predictor =
            (struct predict_params){.kind = trend ? PREDICT_HOLT_WINTERS : PREDICT_CONSTANT,
                                    .alpha = 1,
                                    .beta = 1,
                                    .damping = 1};
        assert_true(routing_batch_init(&batch, &routing, &(struct err){0}));
        for (int step = 0; step < 4; step++) {
            routing_batch_add(&batch, 0, step ? -1 : 8);
            routing_batch_add(&batch, 1, step ? 1 : 2);
            routing_batch_observe(&batch, 1);
            assert_true(routing_batch_replan(&batch, 1.02, &gain, &(struct err){0}));
        }
        /* Three forecasts: constant is off by 0.1 for both experts each time, the trend once. */
        assert_int_equal(batch.forecasts, 3);
        assert_true(fabs(batch.forecast_off - (trend ? 0.2 : 0.6)) < 1e-6);
        assert_true(fabs(predict_series_forecast(&routing.predictor, &batch.series[0], 1) -
                         (trend ? 0.4 : 0.5)) < 1e-6);
    }
}

/* One expert of three is hot, and it is another one next time. A plan for the mean of both gives
 * each of them a replica; one for the last interval leaves the other's rank with all of it. */
static void a_plan_for_the_forecast(void **state)
{
    struct routing routing = {.tasks = 2, .experts = 3, .ranks = 2, .replicas = 4, .top_k = 1};
    struct routing_batch batch;
    double gain;

    (void)state;
    routing.predictor = (struct predict_params){.kind = PREDICT_EWMA, .alpha = 0.5};
    routing.share[0][0] = 0.8f;
    routing.share[1][1] = 0.8f;
    routing.share[0][2] = routing.share[1][2] = 0.2f;
    assert_true(routing_batch_init(&batch, &routing, &(struct err){0}));
    routing_batch_add(&batch, 0, 10);
    routing_batch_observe(&batch, 1);
    assert_true(routing_batch_replan(&batch, 1, &gain, &(struct err){0}));
    assert_int_equal(batch.placement.count[0], 2);
    assert_true(fabs(batch.imbalance - 1.2) < 1e-6); /* 0.4 + 0.2 of one rank */
    routing_batch_add(&batch, 0, -10);
    routing_batch_add(&batch, 1, 10);
    for (int i = 0; i < 3; i++) {
        routing_batch_observe(&batch, 1);
        assert_true(routing_batch_replan(&batch, 1, &gain, &(struct err){0}));
    }
    assert_int_equal(batch.placement.count[1], 2); /* 0.7 and 0.1 by now */
}

static void small_batches_are_less_even(void **state)
{
    struct routing routing = {.tasks = 1, .experts = 8, .ranks = 8, .replicas = 8, .top_k = 2};
    struct routing_batch batch;

    (void)state;
    routing_skewed(&routing, 0, 1);
    assert_true(routing_batch_init(&batch, &routing, &(struct err){0}));
    routing_batch_add(&batch, 0, 4);
    /* 4 rows * 2 experts / 8 ranks = 1 expected: 1 + sqrt(2 ln 8). */
    assert_true(fabs(routing_batch_imbalance(&batch, 4) - (1 + sqrt(2 * log(8)))) < 1e-5);
    assert_true(routing_batch_imbalance(&batch, 40000) < 1.03);
    assert_true(routing_batch_imbalance(&batch, 0) == 1);
}

static void recorded_routing(void **state)
{
    struct routing routing = {.ranks = 4, .top_k = 2};
    struct err err;

    (void)state;
    assert_true(routing_read(&routing, "ops/demo/model/report.json", &err));
    assert_true(routing.tasks >= 2);
    assert_true(routing.experts >= 8);
    assert_false(routing_read(&routing, "tests/golden/deepseek-day.json", &err));
    assert_non_null(strstr(err.message, "experts.prompt.counts"));
    assert_false(routing_read(&routing, "LICENSE", &err));
    assert_non_null(strstr(err.message, "routing LICENSE, line "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_task_is_uneven_and_two_are_not),
        cmocka_unit_test(a_plan_that_gains_too_little_is_not_taken),
        cmocka_unit_test(skewed_routing_is_lowered_by_plans),
        cmocka_unit_test(loads_are_forecast),
        cmocka_unit_test(a_plan_for_the_forecast),
        cmocka_unit_test(small_batches_are_less_even),
        cmocka_unit_test(recorded_routing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
