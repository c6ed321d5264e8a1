/* SPDX-License-Identifier: Apache-2.0
 *
 * What is said of a job whose results are gone or too many, of many jobs, and where nobody hears.
 */
#include <signal.h>

#include "producer/tallies.h"
#include "tests/e2e/producer_fixture.h"

/* As retention does: all that a topic holds now. */
static void trim(enum topic topic)
{
    struct kafka_position position;
    char name[TOPIC_NAME_SIZE_MAX];
    int32_t count;

    topic_of(topic, name);
    assert_ok(kafka_partition_count(reader, name, TIMEOUT_MS, &count, &err));
    for (int32_t p = 0; p < count; p++) {
        position = (struct kafka_position){.topic = name, .partition = p};
        assert_ok(kafka_offsets(reader, name, p, TIMEOUT_MS, NULL, &position.offset, &err));
        assert_ok(kafka_delete_records(producer, &position, 1, TIMEOUT_MS, &err));
    }
}

static void put_result(const char *tenant, const char *batch_id, const char *custom_id)
{
    const struct request request = request_of(tenant, batch_id, custom_id);
    const struct record result = result_of(&request);

    put(TOPIC_RESULTS, &result);
}

/* Every command that reads the results of a job ends with code and sentence. */
static void assert_all_end(const char *file, const char *batch, int code, const char *sentence)
{
    static const char *const commands[] = {"status %s", "collect %s", "collect %s --wait",
                                           "tail %s"};
    char arguments[100];

    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        snprintf(arguments, sizeof arguments, commands[i], batch);
        assert_int_equal(pelton("%s", arguments), code);
        assert_says(sentence);
    }
    assert_int_equal(pelton("submit %s --batch %s --wait", file, batch), code);
    assert_says(sentence);
}

/* After retention a job is neither unfinished nor a fault of ours, whatever asks for it. */
static void test_results_gone(void **state)
{
    static const char all[] = "pelton: the results of batch old are no longer kept: topic test-";

    (void)state;
    assert_int_equal(pelton("topics create --slots 1 --partitions 2"), 0);
    write_file("two.jsonl", LINE("a") LINE("b"));
    assert_int_equal(pelton("submit two.jsonl --batch old"), 0);
    put_result("default", "old", "a");
    put_result("default", "old", "b");
    assert_int_equal(pelton("collect old -o old.jsonl"), 0);
    assert_int_equal(pelton("submit two.jsonl --batch part"), 0);
    put_result("default", "part", "a");
    trim(TOPIC_RESULTS);
    put_result("default", "part", "b");
    assert_int_equal(pelton("submit two.jsonl --batch new"), 0);
    put_result("default", "new", "a");

    assert_all_end("two.jsonl", "old", 66, all);
    assert_int_equal(pelton("submit two.jsonl --retry old"), 66);
    assert_says(all);
    assert_int_equal(pelton("collect old -o old.jsonl"), 66); /* leaves what was collected */
    assert_int_equal(count_lines("old.jsonl", "response"), 2);
    assert_int_equal(pelton("status old"), 66);
    assert_says("state      gone\n");
    assert_says("waiting    0\nrejected   0\ngone       2\n");

    assert_all_end("two.jsonl", "part", 66, "pelton: 1 of 2 results of batch part are no longer");
    assert_int_equal(pelton("collect part -o part.jsonl"), 66);
    assert_int_equal(count_lines("part.jsonl", "response"), 1);
    assert_int_equal(pelton("status part --json"), 66);
    assert_says("\"state\":\"partly_gone\",\"total\":2,\"completed\":1,");
    assert_says("\"waiting\":0,\"rejected\":0,\"gone\":1}");

    assert_int_equal(pelton("status new"), 0);
    assert_says("state      in_progress\n");
    assert_int_equal(pelton("status"), 0);
    assert_says("  gone                0/2             0  old  ");
    assert_says("  partly_gone         1/2             0  part  ");
    assert_says("  in_progress         1/2             0  new  ");
    assert_int_equal(pelton("collect --help"), 0);
    assert_says("14 days");
}

/* Tokens are kept for less long than results, which hold the whole text. */
static void test_tokens_gone(void **state)
{
    const struct request request = request_of("default", "told", "a");
    int32_t id, end;
    const struct record chunk = chunk_of(&request, "one\n", &id, &end);

    (void)state;
    write_file("told.jsonl", LINE("a"));
    assert_int_equal(pelton("submit told.jsonl --batch told --stream"), 0);
    for (int i = 0; i < 4; i++) /* both partitions get some */
        put(TOPIC_TOKENS, &chunk);
    trim(TOPIC_TOKENS);
    put_result("default", "told", "a");
    assert_int_equal(pelton("tail told"), 0);
    assert_string_equal(output, "a | one\na | two\n");
}

/* Two inputs under one name: more outcomes than requests are no success. */
static void test_results_excess(void **state)
{
    (void)state;
    write_file("one.jsonl", LINE("a"));
    assert_int_equal(pelton("submit one.jsonl --batch twice"), 0);
    put_result("default", "twice", "a");
    put_result("default", "twice", "of-another-file");
    assert_all_end("one.jsonl", "twice", 65, "pelton: batch twice has 2 outcomes for 1 requests");
    assert_int_equal(pelton("submit one.jsonl --retry twice"), 66);
    assert_says("batch twice has 2 outcomes for 1 requests");
    assert_int_equal(pelton("status"), 0);
    assert_says("  inconsistent        2/1             0  twice  ");
}

/* Of jobs with many results since they began a list says nothing; younger ones are counted. */
static void test_old_jobs_left_out(void **state)
{
    const struct session_options options = {
        .common = {.brokers = brokers, .topic_prefix = prefix, .client_id = ""}, .tenant = "lists"};
    struct results_tally items[2];
    bool counted[2];
    struct tallies tallies = {.items = items, .counted = counted, .walk_max = 3};
    struct batch_state *jobs;
    struct session session;

    (void)state;
    write_file("lists.jsonl", LINE("a") LINE("b") LINE("c"));
    assert_int_equal(pelton("submit lists.jsonl --batch early --tenant lists"), 0);
    put_result("lists", "early", "a");
    put_result("lists", "early", "b");
    put_result("lists", "early", "c");
    assert_int_equal(pelton("submit lists.jsonl --batch late --tenant lists"), 0);
    put_result("lists", "late", "b");
    assert_ok(session_open(&session, &options, (struct config_list){0}, SESSION_READS, &err));
    assert_ok(batch_list(&session, &jobs, &tallies.count, &err));
    tallies.jobs = jobs;
    assert_int_equal(tallies.count, 2);
    assert_ok(tallies_read(&session, &tallies, &err));
    assert_false(counted[0]); /* 4 messages, 3 of its own */
    assert_true(counted[1]);
    assert_int_equal(items[1].finished, 1);
    assert_int_equal(tallies.walk, 4);
    assert_int_equal(tallies.left_out, 1);
    tallies.walk_max = 4;
    assert_ok(tallies_read(&session, &tallies, &err));
    assert_int_equal(tallies.left_out, 0);
    assert_int_equal(items[0].finished, 3);
    assert_int_equal(items[1].finished, 1);
    tallies.walk_max = 0;
    assert_ok(tallies_read(&session, &tallies, &err));
    assert_int_equal(tallies.left_out, 2);
    batch_list_free(jobs, tallies.count);
    session_close(&session);
}

/* pelton COMMAND | true: the exit code where nobody reads; output has standard error. */
static int pelton_unread(const char *arguments)
{
    char command[1000];

    snprintf(command, sizeof command,
             "cd %s && { timeout 60 %s %s --brokers %s --topic-prefix %s 2>said; echo $? >code; } "
             "| true; cat said; exit $(cat code)",
             folder, PELTON_BINARY, arguments, brokers, prefix);
    return shell(command);
}

/* pelton COMMAND >/dev/full: output has standard error. */
static int pelton_full(const char *arguments)
{
    char command[1000];

    snprintf(command, sizeof command,
             "cd %s && timeout 60 %s %s --brokers %s --topic-prefix %s 2>&1 >/dev/full", folder,
             PELTON_BINARY, arguments, brokers, prefix);
    return shell(command);
}

/* No command succeeds whose output is lost. */
static void test_output_lost(void **state)
{
    static const char *const commands[] = {
        "status",
        "status --json",
        "status lost",
        "tail lost",
        "collect lost",
        "status --help",
        "topics list",
        "cancel lost",
        "--version",
        "--help",
        "submit lost.jsonl --batch lost",
        "submit lost.jsonl --batch lost --json",
    };

    (void)state;
    write_file("lost.jsonl", LINE("a"));
    assert_int_equal(pelton("submit lost.jsonl --batch lost"), 0);
    put_result("default", "lost", "a");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (pelton_full(commands[i]) != 73)
            fail_msg("%s: %s", commands[i], output);
        assert_says("pelton: standard output: ");
    }
    assert_int_equal(pelton_unread("status"), 128 + SIGPIPE);
    assert_string_equal(output, "");
    assert_int_equal(pelton_unread("tail lost"), 128 + SIGPIPE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results_gone),      cmocka_unit_test(test_tokens_gone),
        cmocka_unit_test(test_results_excess),    cmocka_unit_test(test_output_lost),
        cmocka_unit_test(test_old_jobs_left_out),
    };

    return has_broker() ? cmocka_run_group_tests(tests, setup, teardown) : 77;
}
