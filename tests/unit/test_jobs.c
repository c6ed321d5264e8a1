/* SPDX-License-Identifier: Apache-2.0
 *
 * The plain parts under the scheduler's core: estimates from a body, accepted prefixes, the
 * deadline heap, fair queues.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/body_scan.h"
#include "scheduler/deadlines.h"
#include "scheduler/queues.h"
#include "schemas/codec.h"

static uint32_t scan(const char *body)
{
    return body_max_tokens(str_from(body), 7);
}

static void max_tokens_of_a_body(void **state)
{
    (void)state;
    assert_int_equal(scan("{\"max_tokens\":12}"), 12);
    assert_int_equal(scan("{ \"prompt\" : \"x\", \"max_tokens\" : 12 , \"n\":1}"), 12);
    assert_int_equal(scan("{\"max_tokens\":12,\"max_completion_tokens\":13}"), 13);
    assert_int_equal(scan("{\"max_completion_tokens\":13,\"max_tokens\":12}"), 13);
    assert_int_equal(scan("{\"prompt\":\"\\\"max_tokens\\\":99\"}"), 7); /* in a string */
    assert_int_equal(scan("{\"a\":{\"max_tokens\":99}}"), 7);            /* not at the top */
    assert_int_equal(scan("{\"a\":[{\"b\":1}],\"max_tokens\":5}"), 5);
    assert_int_equal(scan("{\"max_tokens\":null}"), 7);
    assert_int_equal(scan("{\"max_tokens\":-4}"), 7);
    assert_int_equal(scan("{\"max_tokens\":99999999999999999999}"), UINT32_MAX);
    assert_int_equal(scan("{\"x\":\"max_tokens\"}"), 7);
}

static void any_bytes_are_safe(void **state)
{
    const char *body = "{\"a\\\":1,\"max_tokens\" : 12}";

    (void)state;
    for (size_t size = 0; size <= strlen(body); size++) {
        char *copy = malloc(size + 1); /* so that a sanitizer sees a byte too many */
        memcpy(copy, body, size);
        assert_int_equal(body_max_tokens((struct str){copy, size}, 7), 7);
        free(copy);
    }
    assert_int_equal(scan("]]]}}}\"max_tokens\":1"), 7);
}

static void prefix_grows_and_is_checked(void **state)
{
    struct attempt *attempt = attempt_new();
    const int32_t ids[] = {1, 2, 3, 4, 5};
    const int32_t other[] = {1, 9};

    (void)state;
    assert_int_equal(attempt_extend(attempt, 0, (struct i32_array){ids, 2}), PREFIX_OK);
    assert_int_equal(attempt_extend(attempt, 1, (struct i32_array){ids + 1, 2}), PREFIX_OK);
    assert_int_equal(attempt->prefix_count, 3);
    assert_int_equal(attempt_extend(attempt, 0, (struct i32_array){ids, 2}), PREFIX_OK);
    assert_int_equal(attempt->prefix_count, 3); /* an old one again */
    assert_int_equal(attempt_extend(attempt, 4, (struct i32_array){ids + 4, 1}), PREFIX_GAP);
    assert_int_equal(attempt_extend(attempt, 0, (struct i32_array){other, 2}), PREFIX_CONTRADICTED);
    assert_int_equal(attempt_extend(attempt, 3, (struct i32_array){NULL, 0}), PREFIX_OK);
    assert_int_equal(attempt->prefix_count, 3);
    assert_memory_equal(attempt->prefix, ids, 3 * sizeof *ids);
    assert_true(attempt_agrees(attempt, (struct i32_array){ids, 3}));
    assert_true(attempt_agrees(attempt, (struct i32_array){ids, 5}));
    assert_false(attempt_agrees(attempt, (struct i32_array){ids, 2}));
    assert_false(attempt_agrees(attempt, (struct i32_array){other, 2}));
    attempt_free(attempt);
}

static void deadlines_in_order(void **state)
{
    enum { COUNT = 500 };
    static struct job jobs[COUNT];
    struct deadlines heap = {0};
    uint32_t random = 1;
    int64_t last_ms = 0;
    size_t left = 0;
    struct job *job;

    (void)state;
    for (int i = 0; i < COUNT; i++) {
        random = random * 1664525 + 1013904223;
        jobs[i].deadline_ms = i % 7 == 0 ? 0 : 1 + (random >> 16) % 1000;
        deadlines_add(&heap, &jobs[i]);
        left += jobs[i].deadline_ms > 0;
    }
    for (int i = 0; i < COUNT; i += 3) { /* from the middle of the heap, or not in it */
        left -= jobs[i].deadline_ms > 0;
        deadlines_remove(&heap, &jobs[i]);
    }
    assert_int_equal(heap.count, left);
    assert_null(deadlines_due(&heap, 0));
    while ((job = deadlines_due(&heap, 1000))) {
        assert_true(job->deadline_ms >= last_ms);
        last_ms = job->deadline_ms;
        assert_int_not_equal((job - jobs) % 3, 0);
        deadlines_remove(&heap, job);
        left--;
    }
    assert_int_equal(left, 0);
    deadlines_free(&heap);
}

/* Jobs of two tenants; red has ten of 1,000 tokens, green ten of 4,000. */
static void tenants_share_tokens(void **state)
{
    static struct job jobs[20];
    static struct job_batch batches[2];
    struct queues queues;
    struct model *model;
    struct group *group;
    int64_t tokens[2] = {0, 0};

    (void)state;
    queues_open(&queues);
    model = queues_model(&queues, str_from("m"));
    group = &model->groups[CLASS_BULK][LENGTH_SHORT];
    batches[0].tenant = str_from("red");
    batches[1].tenant = str_from("green");
    assert_null(group_peek(group));
    for (int i = 0; i < 20; i++) {
        jobs[i] = (struct job){.model = model,
                               .batch = &batches[i / 10],
                               .service_class = CLASS_BULK,
                               .tokens = i < 10 ? 1000 : 4000};
        queues_push(&queues, &jobs[i], LENGTH_SHORT);
    }
    for (int i = 0; i < 10; i++) {
        struct job *job = group_peek(group);
        assert_ptr_equal(group_peek(group), job); /* looking changes nothing */
        tokens[job->batch - batches] += job->tokens;
        queues_take(&queues, job);
    }
    /* Whoever began, after ten jobs the two are within one quantum and one job. */
    assert_in_range((uint64_t)(tokens[0] - tokens[1] + 8096), 0, 2 * 8096);
    assert_true(tokens[0] >= 4000);
    assert_true(tokens[1] >= 4000);
    for (int i = 0; i < 20; i++)
        if (jobs[i].flow)
            queues_remove(&queues, &jobs[i]);
    assert_null(group->current);
    assert_int_equal(group->count, 0);
    queues_model_release(&queues, model);
    assert_null(queues.cursor);
    queues_close(&queues);
}

/* Two beginnings in one flow: the oldest of both lanes is next, the other lane's head may go before
 * it, and a lane ends with its last job. */
static void lanes_of_a_flow(void **state)
{
    static struct job jobs[4];
    static struct job_batch batch;
    static struct payload first = {.prefix = {.words = 1}}, second = {.prefix = {.words = 2}};
    struct queues queues;
    struct model *model;
    struct group *group;

    (void)state;
    queues_open(&queues);
    model = queues_model(&queues, str_from("m"));
    group = &model->groups[0][LENGTH_SHORT];
    for (int i = 0; i < 4; i++) { /* lanes 1, 1, 2, 2 */
        jobs[i] = (struct job){
            .model = model, .batch = &batch, .tokens = 10, .payload = i < 2 ? &first : &second};
        queues_push(&queues, &jobs[i], LENGTH_SHORT);
    }
    assert_ptr_equal(group_peek(group), &jobs[0]);
    assert_int_equal(flow_overtakes(&jobs[0], &jobs[2]), 2);
    queues_take(&queues, &jobs[2]);
    assert_ptr_equal(group_peek(group), &jobs[0]);
    queues_take(&queues, &jobs[0]);
    queues_remove(&queues, &jobs[1]);
    assert_ptr_equal(group_peek(group), &jobs[3]);
    assert_null(group->current->lanes->next);
    queues_take(&queues, &jobs[3]);
    assert_null(group_peek(group));
    queues_close(&queues);
}

static void one_tenant_first_come_first_served(void **state)
{
    static struct job jobs[4];
    static struct job_batch batch;
    struct queues queues;
    struct model *model;

    (void)state;
    queues_open(&queues);
    model = queues_model(&queues, str_from(""));
    for (int i = 0; i < 4; i++) {
        jobs[i] = (struct job){.model = model, .batch = &batch, .tokens = 1u << 20};
        queues_push(&queues, &jobs[i], LENGTH_LONG);
    }
    queues_remove(&queues, &jobs[1]);
    for (int i = 0; i < 4; i++) {
        if (i == 1)
            continue;
        assert_ptr_equal(group_peek(&model->groups[0][LENGTH_LONG]), &jobs[i]);
        queues_take(&queues, &jobs[i]);
    }
    queues_close(&queues);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(max_tokens_of_a_body),
        cmocka_unit_test(any_bytes_are_safe),
        cmocka_unit_test(prefix_grows_and_is_checked),
        cmocka_unit_test(deadlines_in_order),
        cmocka_unit_test(tenants_share_tokens),
        cmocka_unit_test(one_tenant_first_come_first_served),
        cmocka_unit_test(lanes_of_a_flow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
