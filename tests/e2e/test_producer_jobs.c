/* SPDX-License-Identifier: Apache-2.0
 *
 * Whose a job is: two tenants with one id, two programs with one id, and what came before.
 */
#include "tests/e2e/producer_fixture.h"

/* Two `pelton submit` at once; the larger of their exit codes, output has what both say. */
static int race(const char *one, const char *other, const char *batch)
{
    char command[1500], common[600];

    snprintf(common, sizeof common,
             "timeout 60 %s submit --batch %s --brokers %s --topic-prefix %s", PELTON_BINARY, batch,
             brokers, prefix);
    snprintf(command, sizeof command,
             "cd %s && exec 2>&1; %s %s & %s %s; a=$?; wait $!; b=$?; exit $((a > b ? a : b))",
             folder, common, one, common, other);
    return shell(command);
}

static uint64_t count_of_batch(const char *tenant, const char *batch_id, const char *custom_id)
{
    struct requests requests;
    uint64_t count = 0;

    read_requests(TOPIC_REQUESTS_BULK, &requests);
    for (size_t i = 0; i < requests.count; i++) {
        const struct request *request = &requests.items[i]->u.request;
        count += str_equal(request->tenant, str_from(tenant)) &&
                 str_equal(request->batch_id, str_from(batch_id)) &&
                 (!custom_id || str_equal(request->custom_id, str_from(custom_id)));
    }
    free_requests(&requests);
    return count;
}

/* Two tenants, one file, one id: two jobs, each with its own requests, answers and end. */
static void test_tenants(void **state)
{
    struct request request = request_of("acme", "same", "a");
    int32_t id, end;
    const struct record chunk = chunk_of(&request, "acme\n", &id, &end);
    struct record result;

    (void)state;
    assert_int_equal(pelton("topics create --slots 1 --partitions 2"), 0);
    write_file("same.jsonl", LINE("a"));
    assert_int_equal(pelton("submit same.jsonl --batch same --stream --tenant acme"), 0);
    assert_int_equal(pelton("submit same.jsonl --batch same --stream"), 0);
    assert_null(strstr(output, "submitted before"));
    assert_int_equal(count_of_batch("acme", "same", "a"), 1);
    assert_int_equal(count_of_batch("default", "same", "a"), 1);
    assert_int_equal(pelton("status same"), 64);
    assert_says("2 tenants have a batch \"same\": say whose with --tenant");
    put(TOPIC_TOKENS, &chunk);
    result = result_of(&request);
    put(TOPIC_RESULTS, &result);
    assert_int_equal(pelton("status same --tenant acme"), 0);
    assert_says("batch      same\ntenant     acme\nstate      completed\n");
    assert_int_equal(pelton("status same --tenant default"), 0);
    assert_says("tenant     default\nstate      in_progress\ntotal      1\ncompleted  0\n");
    assert_int_equal(pelton("collect same --tenant acme -o acme.jsonl"), 0);
    assert_int_equal(pelton("collect same --tenant default -o default.jsonl"), 75);
    assert_int_equal(count_lines("default.jsonl", "response"), 0);
    assert_int_equal(pelton("cancel same --tenant default"), 0);
    assert_says("cancelling");
    assert_int_equal(pelton("status same --tenant acme"), 0);
    assert_says("state      completed");
    request = request_of("default", "same", "a");
    result = result_of(&request);
    put(TOPIC_RESULTS, &result);
    assert_int_equal(pelton("tail same --tenant default"), 0);
    assert_null(strstr(output, "acme"));
    assert_int_equal(pelton("status --tenant acme"), 0);
    assert_says("  same  acme  same.jsonl");
    assert_null(strstr(output, "default"));
}

/* Two programs that begin one job at once from different files: one sends, the other is told so
 * before it sends. From one file both may. */
static void test_simultaneous(void **state)
{
    (void)state;
    write_file("left.jsonl", LINE("left"));
    write_file("right.jsonl", LINE("right"));
    for (int round = 0; round < 5; round++) {
        char batch[20];
        uint64_t left, right;
        snprintf(batch, sizeof batch, "race-%d", round);
        assert_int_equal(race("left.jsonl", "right.jsonl", batch), 64);
        assert_says("was begun from another file (");
        assert_says("1 requests sent");
        left = count_of_batch("default", batch, "left");
        right = count_of_batch("default", batch, "right");
        assert_int_equal(left + right, 1);
    }
    assert_int_equal(race("left.jsonl", "left.jsonl", "both"), 0);
    assert_int_equal(race("- <left.jsonl", "- <right.jsonl", "pipes"), 64);
    assert_int_equal(count_of_batch("default", "pipes", NULL), 1);
}

/* A job that another program has begun and not finished is not joined with another file. */
static void test_unfinished(void **state)
{
    struct record batch = {.type = RECORD_BATCH,
                           .u.batch = {.batch_id = str_from("open"),
                                       .tenant = str_from("default"),
                                       .file_name = str_from("theirs.jsonl"),
                                       .file_hash = {1}}};

    (void)state;
    put(TOPIC_CONTROL, &batch);
    assert_int_equal(pelton("status"), 0);
    assert_says("  submitting          0/?             0  open  default  theirs.jsonl\n");
    assert_int_equal(pelton("submit left.jsonl --batch open"), 64);
    assert_says("batch open was begun from another file (theirs.jsonl)");
    assert_int_equal(pelton("submit - --batch open <left.jsonl"), 64);
    assert_int_equal(count_of_batch("default", "open", NULL), 0);
}

/* `cat FILE | pelton submit - OPTIONS` that is killed behind the file's lines. Beyond them comes
 * what is no request, so much that a read ends there, and then nothing. */
static void kill_stream(const char *file, const char *options)
{
    char command[1200];

    snprintf(command, sizeof command,
             "cd %s || exit; rm -f stop; "
             "(cat %s; yes nonsense | head -n 300000; until [ -e stop ]; do sleep 0.1; done) "
             "2>/dev/null | %s submit - %s --brokers %s --topic-prefix %s >said 2>&1 & "
             "for i in $(seq 600); do grep -q 'not JSON' said && break; sleep 0.1; done "
             "2>/dev/null; kill -9 $!; touch stop; wait; head -n 3 said",
             folder, file, PELTON_BINARY, options, brokers, prefix);
    shell(command);
    assert_says(": not JSON");
}

/* Standard input is known by its first line: the same goes on, another is refused, and a job that
 * is complete stays so, whatever happens to a repetition. */
static void test_streams(void **state)
{
    (void)state;
    write_file("longer.jsonl", LINE("left") LINE("more"));
    kill_stream("left.jsonl", "--batch cut");
    assert_int_equal(pelton("status cut"), 0);
    assert_says("state      submitting\ntotal      0\n");
    assert_int_equal(pelton("submit - --batch cut <right.jsonl"), 64);
    assert_says("batch cut was begun from another file (-): choose another --batch");
    assert_int_equal(pelton("submit left.jsonl --batch cut"), 64);
    assert_int_equal(count_of_batch("default", "cut", "right"), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pelton("submit - --batch cut <left.jsonl"), 0);
        assert_says("batch cut: 1 requests sent, 0 lines rejected (submitted before)");
    }
    kill_stream("left.jsonl", "--batch cut");
    assert_int_equal(pelton("status cut"), 0);
    assert_says("state      in_progress\ntotal      1\n");
    assert_int_equal(pelton("submit - --batch cut <longer.jsonl"), 65);
    assert_says("batch cut has 1 requests, and this stream 2: it is another one");
    assert_int_equal(pelton("status cut"), 0);
    assert_says("total      1\n");
    /* An empty one is a stream of its own. */
    assert_int_equal(pelton("submit - --batch cut </dev/null"), 64);
}

/* The same for a file, which is known by its hash. */
static void test_complete_file(void **state)
{
    char command[1000];

    (void)state;
    snprintf(command, sizeof command,
             "cd %s && (cat left.jsonl; yes nonsense | head -n 60000) >whole.jsonl && mkfifo full",
             folder);
    assert_int_equal(shell(command), 0);
    assert_int_equal(pelton("submit whole.jsonl --batch whole"), 65);
    /* It is held where nobody takes its errors. */
    snprintf(command, sizeof command,
             "cd %s || exit; %s submit whole.jsonl --batch whole -e full --brokers %s "
             "--topic-prefix %s 2>said & exec 3<full; "
             "for i in $(seq 600); do grep -q 'not JSON' said && break; sleep 0.1; done; "
             "kill -9 $!; wait",
             folder, PELTON_BINARY, brokers, prefix);
    shell(command);
    assert_int_equal(pelton("status whole"), 0);
    assert_says("state      in_progress\ntotal      1\n");
    assert_says("rejected   60000\n");
}

/* A stream that begins like the one whose job it continues, but has other requests: their answers
 * are not taken for its own. */
static void test_foreign_answers(void **state)
{
    static const char *const answered[] = {"left", "ghost"};

    (void)state;
    write_file("ghost.jsonl", LINE("left") LINE("ghost"));
    kill_stream("ghost.jsonl", "--batch alike");
    for (int i = 0; i < 2; i++) {
        const struct request request = request_of("default", "alike", answered[i]);
        const struct record result = result_of(&request);
        put(TOPIC_RESULTS, &result);
    }
    assert_int_equal(pelton("submit - --batch alike --wait <longer.jsonl"), 65);
    assert_says("batch alike has answers to requests that are not in this file (1)");
    kill_stream("ghost.jsonl", "--batch alike");
    assert_int_equal(pelton("submit - --batch alike --wait <ghost.jsonl"), 0);
}

/* A file that is edited on the way: its name is spent, and the advice can be followed. */
static void test_changed_file(void **state)
{
    char command[1000];

    (void)state;
    snprintf(command, sizeof command,
             "cd %s && (cat left.jsonl; yes nonsense | head -n 60000) >edited.jsonl && "
             "mkfifo held || exit; %s submit edited.jsonl --batch spent -e held --brokers %s "
             "--topic-prefix %s >said 2>&1 & "
             "cd %s; until [ -p held ]; do sleep 0.1; done; exec 3<held; "
             "cat right.jsonl >>edited.jsonl; cat <&3 >/dev/null; wait $!; code=$?; "
             "tail -n 2 said; exit $code",
             folder, PELTON_BINARY, brokers, prefix, folder);
    assert_int_equal(shell(command), 65);
    assert_says("pelton: edited.jsonl changed while it was read\n"
                "pelton: its name is spent: submit the file under another --batch; "
                "`pelton cancel spent` stops what was sent\n");
    assert_int_equal(pelton("submit edited.jsonl --batch spent"), 64);
    assert_says("begun from another file (edited.jsonl)");
    assert_int_equal(pelton("cancel spent"), 0);
    assert_int_equal(pelton("submit edited.jsonl --batch unspent"), 65);
    assert_says("batch unspent: 2 requests sent, 60000 lines rejected\n");
}

/* What can be read only once needs a name and nothing else. */
static void test_pipes(void **state)
{
    char command[300];

    (void)state;
    snprintf(command, sizeof command,
             "cd %s && mkfifo fifo && exec >/dev/null && (cat left.jsonl >fifo &)", folder);
    shell(command);
    assert_int_equal(pelton("submit fifo --batch fifo"), 0);
    assert_says("batch fifo: 1 requests sent");
    assert_int_equal(pelton("submit /dev/null --batch null"), 0);
    assert_says("batch null: 0 requests sent");
    assert_int_equal(pelton("submit /dev/null"), 64);
    assert_says("/dev/null has no hash to name the job by; give --batch ID");
    assert_int_equal(pelton("submit / --batch folder"), 64);
    assert_says("/ is no regular file");
}

/* Killed on the way, a submission leaves what was in its file of errors before. */
static void test_errors_are_whole(void **state)
{
    (void)state;
    write_file("errors.jsonl", "{\"error\":{}}\n");
    kill_stream("left.jsonl", "--batch killed -e errors.jsonl");
    assert_int_equal(count_lines("errors.jsonl", "error"), 1);
    assert_int_equal(pelton("submit - --batch killed -e errors.jsonl < left.jsonl"), 0);
    assert_int_equal(count_lines("errors.jsonl", "error"), 0);
    assert_int_equal(pelton("submit left.jsonl -e /nonexistent/x"), 73);
    assert_says("pelton: /nonexistent/x: No such file or directory\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tenants),          cmocka_unit_test(test_simultaneous),
        cmocka_unit_test(test_unfinished),       cmocka_unit_test(test_streams),
        cmocka_unit_test(test_complete_file),    cmocka_unit_test(test_foreign_answers),
        cmocka_unit_test(test_changed_file),     cmocka_unit_test(test_pipes),
        cmocka_unit_test(test_errors_are_whole),
    };

    return has_broker() ? cmocka_run_group_tests(tests, setup, teardown) : 77;
}
