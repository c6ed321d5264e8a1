/* SPDX-License-Identifier: Apache-2.0
 *
 * The model thread with the demo model: recorded answers, streamed parts, forced
 * prefixes, stop strings, leases, and tasks that are taken back.
 */
#include "worker/shell/runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"

enum { TASKS = 24, FAR_S = 3600 };

struct bench {
    struct text *text;
    struct engine *engine;
    struct runner *runner;
    struct engine_info info;
    struct codec *codec;
    uint64_t tags;
};

static int open_bench(void **state)
{
    static struct bench bench;
    struct engine_config config = {.model_dir = "ops/demo/model",
                                   .backend = "auto",
                                   .numerics = ENGINE_F32,
                                   .threads = 1,
                                   .max_seqs = 8,
                                   .max_waiting = 8};
    struct err err;

    if (!text_open("ops/demo/model", &bench.text, &err) ||
        !engine_open(&bench.engine, &config, &err) || !codec_open(&bench.codec, &err)) {
        print_error("%s\n", err.message);
        return -1;
    }
    struct runner_options options = {.engine = bench.engine,
                                     .text = bench.text,
                                     .tasks_max = TASKS,
                                     .engine_max = 16,
                                     .stream_tokens = 2,
                                     .stream_us = 100000,
                                     .progress_tokens = 3,
                                     .progress_us = 2000000};

    engine_info(bench.engine, &bench.info);
    if (!runner_open(&bench.runner, &options, &err)) {
        print_error("%s\n", err.message);
        return -1;
    }
    *state = &bench;
    return 0;
}

static int close_bench(void **state)
{
    struct bench *bench = *state;

    runner_close(bench->runner);
    engine_close(bench->engine);
    codec_close(bench->codec);
    text_close(bench->text);
    return 0;
}

struct order {
    const char *body; /* of /v1/chat/completions */
    struct i32_array prefix;
    bool stream;
};

static struct task *submit(struct bench *bench, const struct order *order)
{
    struct record record = {.type = RECORD_ASSIGNMENT}, *owned;
    struct prompt_source source = {.text = bench->text,
                                   .endpoint = ENDPOINT_CHAT_COMPLETIONS,
                                   .body = {order->body, strlen(order->body)},
                                   .max_context = bench->info.max_context,
                                   .vocab_size = bench->info.vocab_size};
    struct buffer buffer = {0};
    struct prompt_fault fault;
    struct task *task;
    struct err err;

    record.u.assignment.attempt = 1;
    record.u.assignment.stream = order->stream;
    record.u.assignment.prefix = order->prefix;
    record.u.assignment.request.body = source.body;
    if (!codec_encode(bench->codec, &record, &buffer, &err) ||
        !codec_decode(bench->codec, buffer.data, buffer.size, &owned, &err))
        fail_msg("%s", err.message);
    buffer_free(&buffer);
    task = task_new(++bench->tags, owned, clock_mono_us());
    if (!prompt_open(&task->prompt, &source, &fault, &err))
        fail_msg("%s", err.message);
    runner_submit(bench->runner, task);
    return task;
}

/* What the reports of one task add up to. */
struct heard {
    struct report *outcome;
    int32_t ids[256];
    size_t ids_count; /* the prefix comes first, unreported */
    int32_t chunk_ids[256];
    size_t chunk_count;
    char text[1024];
    size_t text_size;
    size_t reports;
    size_t profiles; /* reports with one */
};

static void hear(struct heard *heard, struct report *report)
{
    heard->reports++;
    if (report->profile.count > 0) { /* 3 layers of 16 experts, the largest is 63 in each */
        heard->profiles++;
        assert_int_equal(report->profile.count, 48);
        for (size_t layer = 0; layer < 3; layer++) {
            int32_t largest = 0;
            for (size_t i = 0; i < 16; i++)
                if (report->profile.items[16 * layer + i] > largest)
                    largest = report->profile.items[16 * layer + i];
            assert_int_equal(largest, 63);
        }
    }
    if (report->progress.count > 0) {
        assert_int_equal(report->progress_first, heard->ids_count);
        memcpy(heard->ids + heard->ids_count, report->progress.items, report->progress.count * 4);
        heard->ids_count += report->progress.count;
    }
    if (report->chunk.count > 0) {
        assert_int_equal(report->chunk_first, heard->chunk_count);
        memcpy(heard->chunk_ids + heard->chunk_count, report->chunk.items, report->chunk.count * 4);
        heard->chunk_count += report->chunk.count;
        memcpy(heard->text + heard->text_size, report->chunk_text.data, report->chunk_text.size);
        heard->text_size += report->chunk_text.size;
        assert_int_equal(report->chunk_ends.items[report->chunk.count - 1],
                         report->chunk_text.size);
    }
    if (report->type == REPORT_PROGRESS)
        free(report);
    else
        heard->outcome = report;
}

/* Until the task has its outcome; every other task's reports are a failure. */
static void wait_for(struct bench *bench, const struct task *task, struct heard *heard)
{
    int64_t until_us = clock_mono_us() + 20000000;

    while (heard->outcome == NULL && clock_mono_us() < until_us) {
        struct report *report = runner_take(bench->runner);

        if (report == NULL) {
            runner_wait(bench->runner, 100);
            continue;
        }
        assert_ptr_equal(report->task, task);
        hear(heard, report);
    }
    assert_non_null(heard->outcome);
}

static void lease(struct bench *bench, int64_t seconds)
{
    runner_lease(bench->runner, clock_mono_us() + seconds * 1000000);
}

static void finish(struct heard *heard, struct task *task)
{
    free(heard->outcome);
    task_unref(task);
}

static void the_recorded_answers_come_back(void **state)
{
    struct bench *bench = *state;
    FILE *requests = fopen("ops/demo/samples/demo.jsonl", "r");
    FILE *references = fopen("ops/demo/samples/demo.reference.jsonl", "r");
    char *line = NULL;
    size_t capacity = 0;
    struct task *tasks[TASKS];
    struct heard *heard = calloc(TASKS, sizeof *heard);
    size_t open = TASKS;

    assert_non_null(requests);
    assert_non_null(references);
    for (int i = 0; i < TASKS; i++) {
        assert_true(getline(&line, &capacity, requests) > 0);
        json_t *request = json_loads(line, 0, NULL);
        char *body = json_dumps(json_object_get(request, "body"), 0);

        tasks[i] = submit(bench, &(struct order){.body = body, .stream = i % 2 == 0});
        free(body);
        json_decref(request);
    }
    lease(bench, FAR_S);
    while (open > 0) {
        struct report *report = runner_take(bench->runner);

        if (report == NULL) {
            runner_wait(bench->runner, 1000);
            continue;
        }
        for (int i = 0; i < TASKS; i++) {
            if (report->task == tasks[i]) {
                open -= report->type != REPORT_PROGRESS;
                hear(&heard[i], report);
                break;
            }
        }
    }
    for (int i = 0; i < TASKS; i++) {
        struct answer_view view = answer_view(tasks[i]->answer);

        assert_true(getline(&line, &capacity, references) > 0);
        json_t *reference = json_loads(line, 0, NULL);
        const char *text = json_string_value(json_object_get(reference, "text"));

        assert_int_equal(heard[i].outcome->type, REPORT_DONE);
        assert_int_equal(heard[i].outcome->profile.count, 48);
        assert_in_range(heard[i].profiles, 1, 2); /* with the first ids, and with the outcome */
        assert_int_equal(view.size, strlen(text));
        assert_memory_equal(view.text, text, view.size);
        assert_int_equal(heard[i].outcome->usage.output_tokens,
                         json_integer_value(json_object_get(reference, "completion_tokens")));
        assert_int_equal(heard[i].outcome->usage.prompt_tokens_uncached +
                             heard[i].outcome->usage.prompt_tokens_cached,
                         json_integer_value(json_object_get(reference, "prompt_tokens")));
        if (i % 2 == 0) { /* streamed: the parts are the whole */
            assert_int_equal(heard[i].chunk_count, view.count);
            assert_memory_equal(heard[i].chunk_ids, view.ids, view.count * 4);
            assert_int_equal(heard[i].text_size, view.size);
            assert_memory_equal(heard[i].text, view.text, view.size);
            assert_int_equal(heard[i].ids_count, view.count);
            assert_true(view.count <= 2 || heard[i].reports > 1);
        } else {
            assert_int_equal(heard[i].chunk_count, 0);
        }
        json_decref(reference);
        finish(&heard[i], tasks[i]);
    }
    free(heard);
    free(line);
    fclose(requests);
    fclose(references);
}

/* "9522" and the end mark: five ids. */
static const char number[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"Which number is this? nine thousand five "
    "hundred and twenty-two\"}], \"temperature\": 0, \"max_tokens\": 8}";

static void any_prefix_gives_the_same_answer(void **state)
{
    struct bench *bench = *state;
    int32_t ids[8];
    size_t count = 0;

    lease(bench, FAR_S);
    for (size_t forced = 0; forced <= 5; forced++) {
        struct heard heard = {.ids_count = forced};
        struct task *task =
            submit(bench, &(struct order){.body = number, .prefix = {ids, forced}, .stream = true});
        struct answer_view view;

        wait_for(bench, task, &heard);
        view = answer_view(task->answer);
        assert_int_equal(heard.outcome->type, REPORT_DONE);
        assert_int_equal(heard.outcome->finish_reason, FINISH_STOP);
        assert_int_equal(view.count, 5);
        if (forced == 0)
            memcpy(ids, view.ids, (count = view.count) * 4);
        assert_memory_equal(view.ids, ids, count * 4);
        assert_int_equal(view.size, 4);
        assert_memory_equal(view.text, "9522", 4);
        assert_int_equal(heard.chunk_count, 5); /* a new attempt streams from 0 */
        assert_int_equal(heard.ids_count, 5);
        assert_int_equal(heard.outcome->usage.output_tokens, 5);
        finish(&heard, task);
    }
}

static void max_tokens_counts_a_prefix(void **state)
{
    struct bench *bench = *state;
    static const char body[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Which number is this? nine thousand "
        "five hundred and twenty-two\"}], \"temperature\": 0, \"max_tokens\": 2}";
    int32_t ids[2];

    lease(bench, FAR_S);
    for (size_t forced = 0; forced <= 2; forced++) {
        struct heard heard = {.ids_count = forced};
        struct task *task = submit(bench, &(struct order){body, {ids, forced}, false});

        wait_for(bench, task, &heard);
        assert_int_equal(heard.outcome->finish_reason, FINISH_LENGTH);
        assert_int_equal(answer_view(task->answer).count, 2);
        assert_memory_equal(answer_view(task->answer).text, "95", 2);
        memcpy(ids, answer_view(task->answer).ids, sizeof ids);
        finish(&heard, task);
    }
}

static void a_stop_string_ends_the_answer(void **state)
{
    struct bench *bench = *state;
    static const char body[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Which number is this? nine thousand "
        "five hundred and twenty-two\"}], \"temperature\": 0, \"stop\": [\"52\"]}";
    struct heard heard = {0};
    struct task *task = submit(bench, &(struct order){.body = body, .stream = true});

    lease(bench, FAR_S);
    wait_for(bench, task, &heard);
    assert_int_equal(heard.outcome->finish_reason, FINISH_STOP);
    assert_int_equal(answer_view(task->answer).size, 1);
    assert_int_equal(heard.text_size, 1);
    assert_memory_equal(heard.text, "9", 1);
    assert_int_equal(heard.chunk_count, 3); /* what was generated counts: 9 5 2 */
    assert_int_equal(heard.outcome->usage.output_tokens, 3);
    finish(&heard, task);
}

static void nothing_runs_without_a_lease(void **state)
{
    struct bench *bench = *state;
    struct heard heard = {0};
    struct board_stats before, after;
    struct task *task;

    runner_lease(bench->runner, 0);
    clock_sleep_ms(50); /* a step that was under way */
    runner_stats(bench->runner, &before);
    task = submit(bench, &(struct order){.body = number});
    clock_sleep_ms(150);
    assert_null(runner_take(bench->runner));
    runner_stats(bench->runner, &after);
    assert_int_equal(before.engine.steps, after.engine.steps);
    lease(bench, FAR_S);
    wait_for(bench, task, &heard);
    assert_int_equal(heard.outcome->type, REPORT_DONE);
    finish(&heard, task);
}

static void tasks_can_be_taken_back(void **state)
{
    struct bench *bench = *state;
    static const char body[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], "
                               "\"temperature\": 0, \"ignore_eos\": true}";
    struct heard heard[3] = {{0}};
    struct task *tasks[3];

    lease(bench, FAR_S);
    for (int i = 0; i < 3; i++)
        tasks[i] = submit(bench, &(struct order){.body = i == 1 ? number : body});
    runner_release(bench->runner, tasks[0]->tag);
    runner_release(bench->runner, 999999); /* ended before: nothing happens */
    for (int open = 2; open > 0;) {
        struct report *report = runner_take(bench->runner);

        if (report == NULL) {
            runner_wait(bench->runner, 100);
            continue;
        }
        for (int i = 0; i < 3; i++) {
            if (report->task == tasks[i]) {
                open -= report->type != REPORT_PROGRESS;
                hear(&heard[i], report);
                break;
            }
        }
    }
    assert_int_equal(heard[0].outcome->type, REPORT_RELEASED);
    assert_int_equal(heard[1].outcome->type, REPORT_DONE);
    assert_null(heard[2].outcome);
    runner_release_all(bench->runner);
    wait_for(bench, tasks[2], &heard[2]);
    assert_int_equal(heard[2].outcome->type, REPORT_RELEASED);
    /* What it had said until then is reported, so that a successor need not say it anew. */
    assert_int_equal(heard[2].ids_count, answer_view(tasks[2]->answer).count);
    assert_true(heard[2].ids_count > 0);
    for (int i = 0; i < 3; i++)
        finish(&heard[i], tasks[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_recorded_answers_come_back),
        cmocka_unit_test(any_prefix_gives_the_same_answer),
        cmocka_unit_test(max_tokens_counts_a_prefix),
        cmocka_unit_test(a_stop_string_ends_the_answer),
        cmocka_unit_test(nothing_runs_without_a_lease),
        cmocka_unit_test(tasks_can_be_taken_back),
    };

    return cmocka_run_group_tests(tests, open_bench, close_bench);
}
