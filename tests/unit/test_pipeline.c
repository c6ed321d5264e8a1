/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables of the pipeline: every stage of every layer runs once for each
 * micro-batch, each micro-batch goes through them in the order of the forward
 * pass, and the overlapping tables do put the other's work between a send and
 * its recv.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "worker/pipeline.h"

enum { LAYERS = 5, RUNS_MAX = LAYERS * STAGE_COUNT * PIPELINE_MICRO_BATCHES_MAX };

struct run {
    enum stage stage;
    uint32_t layer;
    uint32_t micro_batch;
};

struct record {
    struct run runs[RUNS_MAX];
    size_t count;
    size_t fail_at;
};

static bool note(void *context, enum stage stage, uint32_t layer, uint32_t micro_batch,
                 struct err *err)
{
    struct record *record = context;

    if (record->count == record->fail_at)
        return err_set(err, ERR_FATAL, "stage failed");
    assert_true(record->count < RUNS_MAX);
    record->runs[record->count++] = (struct run){stage, layer, micro_batch};
    return true;
}

static void record_runs(const struct pipeline *pipeline, struct record *record)
{
    struct err err;

    *record = (struct record){.fail_at = RUNS_MAX + 1};
    assert_true(pipeline_run(pipeline, LAYERS, note, record, &err));
    assert_int_equal(record->count, LAYERS * STAGE_COUNT * pipeline->micro_batches);
}

/* What must have run before a stage of the same micro-batch and layer; shared experts need
 * attention only, the rest is a chain. */
static enum stage before(enum stage stage)
{
    switch (stage) {
    case STAGE_ATTN1:
        return STAGE_ATTN0;
    case STAGE_DISPATCH_SEND:
    case STAGE_SHARED:
        return STAGE_ATTN1;
    case STAGE_DISPATCH_RECV:
        return STAGE_DISPATCH_SEND;
    case STAGE_MLP:
        return STAGE_DISPATCH_RECV;
    case STAGE_COMBINE_SEND:
        return STAGE_MLP;
    case STAGE_COMBINE_RECV:
        return STAGE_COMBINE_SEND;
    default:
        return stage;
    }
}

static size_t place_of(const struct record *record, enum stage stage, uint32_t layer,
                       uint32_t micro_batch)
{
    for (size_t i = 0; i < record->count; i++)
        if (record->runs[i].stage == stage && record->runs[i].layer == layer &&
            record->runs[i].micro_batch == micro_batch)
            return i;
    fail_msg("stage %d of layer %u never ran", stage, layer);
    return 0;
}

static void check_order(const struct pipeline *pipeline)
{
    struct record record;

    record_runs(pipeline, &record);
    for (uint32_t m = 0; m < pipeline->micro_batches; m++) {
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            size_t combined = place_of(&record, STAGE_COMBINE_RECV, layer, m);

            for (int s = 0; s < STAGE_COUNT; s++)
                if (before((enum stage)s) != (enum stage)s)
                    assert_true(place_of(&record, before((enum stage)s), layer, m) <
                                place_of(&record, (enum stage)s, layer, m));
            /* combine adds the shared experts' rows */
            assert_true(place_of(&record, STAGE_SHARED, layer, m) < combined);
            if (layer + 1 < LAYERS)
                assert_true(combined < place_of(&record, STAGE_ATTN0, layer + 1, m));
        }
    }
}

/* Does something of the other micro-batch stand between send and recv, in a layer in the middle? */
static bool hides(const struct pipeline *pipeline, enum stage send, enum stage recv,
                  uint32_t micro_batch, enum stage work)
{
    struct record record;

    record_runs(pipeline, &record);
    for (size_t i = place_of(&record, send, 2, micro_batch);
         i < place_of(&record, recv, 2, micro_batch); i++)
        if (record.runs[i].micro_batch != micro_batch && record.runs[i].stage == work)
            return true;
    return false;
}

static void test_order(void **state)
{
    (void)state;
    check_order(&pipeline_sequential);
    check_order(&pipeline_prefill);
    check_order(&pipeline_decode);
}

static void test_prefill_hides(void **state)
{
    const struct pipeline *p = &pipeline_prefill;

    (void)state;
    assert_true(hides(p, STAGE_DISPATCH_SEND, STAGE_DISPATCH_RECV, 0, STAGE_ATTN1));
    assert_true(hides(p, STAGE_DISPATCH_SEND, STAGE_DISPATCH_RECV, 1, STAGE_MLP));
    assert_true(hides(p, STAGE_COMBINE_SEND, STAGE_COMBINE_RECV, 0, STAGE_MLP));
    assert_true(hides(p, STAGE_COMBINE_SEND, STAGE_COMBINE_RECV, 1, STAGE_ATTN1));
}

static void test_decode_hides(void **state)
{
    const struct pipeline *p = &pipeline_decode;

    (void)state;
    for (uint32_t m = 0; m < 2; m++) {
        assert_true(hides(p, STAGE_DISPATCH_SEND, STAGE_DISPATCH_RECV, m, STAGE_ATTN0));
        assert_true(hides(p, STAGE_COMBINE_SEND, STAGE_COMBINE_RECV, m, STAGE_ATTN1));
    }
    assert_false(hides(p, STAGE_DISPATCH_SEND, STAGE_DISPATCH_RECV, 0, STAGE_MLP));
}

static void test_stops_at_a_failure(void **state)
{
    struct record record = {.fail_at = 3};
    struct err err;

    (void)state;
    assert_false(pipeline_run(&pipeline_decode, LAYERS, note, &record, &err));
    assert_int_equal(record.count, 3);
    assert_string_equal(err.message, "stage failed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_prefill_hides),
        cmocka_unit_test(test_decode_hides),
        cmocka_unit_test(test_stops_at_a_failure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
