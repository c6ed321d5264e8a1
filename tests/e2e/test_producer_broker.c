/* SPDX-License-Identifier: Apache-2.0
 *
 * The commands of `pelton`, one job from its submission to its answers, and what users mistake.
 */
#include "tests/e2e/producer_fixture.h"

static void test_topics(void **state)
{
    (void)state;
    assert_int_equal(pelton("status"), 69);
    assert_says("control does not exist: create it with `pelton topics create`");
    assert_int_equal(pelton("topics list"), 66);
    assert_int_equal(pelton("topics create --slots 3 --partitions 2"), 0);
    assert_says("worker-events");
    assert_int_equal(pelton("topics create --slots 3 --partitions 2"), 0);
    assert_null(strstr(output, "differs"));
    assert_int_equal(pelton("topics list --slots 4 --partitions 2"), 0);
    assert_says("differs: partitions 3 (wanted 4)");
}

static void test_usage(void **state)
{
    (void)state;
    assert_int_equal(pelton("submit"), 64);
    assert_says("FILE.jsonl is missing");
    assert_int_equal(pelton("submit none.jsonl"), 66);
    assert_says("none.jsonl: No such file");
    assert_int_equal(pelton("submit - </dev/null"), 64);
    assert_says("give --batch ID");
    assert_int_equal(pelton("submit --clas bulk x"), 64);
    assert_says("did you mean class?");
    assert_int_equal(pelton("status none"), 66);
    assert_says("no batch \"none\" in test-");
    assert_int_equal(pelton("tail"), 66);
    assert_says("no batch yet");
    assert_int_equal(pelton("collect none -o out"), 66);
    assert_int_equal(pelton("cancel none"), 66);
    assert_int_equal(pelton("explain"), 64);
    assert_int_equal(pelton("submit --help"), 0);
    assert_says("dedupe_window, 7 days");
    assert_says("64 nothing\nsent: ");
    assert_says("--completion-window TIME");
    assert_int_equal(pelton("submit none.jsonl -X acks=0"), 66);
    write_file("x.jsonl", LINE("a"));
    assert_int_equal(pelton("submit x.jsonl -X acks=0"), 78);
    assert_says("acks=0: it must be all here");
    assert_int_equal(pelton("status -X no.such=1"), 78);
    assert_int_equal(pelton("submit x.jsonl --tenant ''"), 64);
    assert_int_equal(pelton("submit x.jsonl --batch ''"), 64);
    assert_says("--batch is empty or blank");
    assert_int_equal(pelton("submit x.jsonl --tenant $(printf '\\377')"), 64);
    assert_says("--tenant must be UTF-8 of at most 128 bytes");
    assert_int_equal(pelton("submit x.jsonl --batch $(printf 'a\\033[31m')"), 64);
    assert_says("--batch holds a control character");
    assert_int_equal(pelton("submit x.jsonl --tenant '  '"), 64);
    assert_int_equal(pelton("status ''"), 64);
    assert_int_equal(pelton("status \"$(printf 'a\\033b')\""), 66);
    assert_says("no batch \"a\\x1bb\" in");
    assert_int_equal(pelton("status --config none.yaml"), 78);
    assert_int_equal(pelton("submit x.jsonl --completion-window -1h"), 64);
    assert_int_equal(pelton("submit x.jsonl -e ./x.jsonl"), 64);
    assert_int_equal(pelton("collect none -o new -e ./new"), 64);
    assert_says("--output and --errors are the same file");
}

/* Lines of all kinds among good ones: every bad one is an error with its number, the good ones go.
 */
static void test_submit_bad_lines(void **state)
{
    struct requests requests;
    const struct request *first;
    size_t size;
    char *large;

    (void)state;
    write_file(
        "bad.jsonl",
        LINE("a") "nonsense\n\n" LINE("b") "null\n" LINE(
            "a") "{\"custom_id\":\"c\",\"method\":\"POST\",\"url\":\"/v1/x\"}\r\n" LINE("d"));
    assert_int_equal(pelton("submit bad.jsonl --batch bad -e rejected.jsonl --class interactive"),
                     65);
    assert_says("bad.jsonl:2: not JSON");
    assert_says("bad.jsonl:5: the line is null");
    assert_says("bad.jsonl:6: custom_id \"a\" is on line 1 already");
    assert_says("bad.jsonl:7: url is \"/v1/x\"");
    assert_says("batch bad: 3 requests sent, 4 lines rejected");
    read_requests(TOPIC_REQUESTS_INTERACTIVE, &requests);
    assert_int_equal(requests.count, 3);
    first = &requests.items[0]->u.request;
    assert_true(
        str_equal(first->body, str_from("{\"model\":\"demo\", \"messages\":[{\"role\":\"user\","
                                        "\"content\":\"hi\"}]}")));
    assert_true(str_equal(first->batch_id, str_from("bad")));
    assert_true(str_equal(first->tenant, str_from("default")));
    assert_int_equal(first->service_class, CLASS_INTERACTIVE);
    assert_int_equal(first->stream, STREAM_AUTO);
    assert_int_equal(first->deadline_ms, 0);
    free_requests(&requests);
    /* One line of 17 MB and a good one. */
    size = 17u << 20;
    large = malloc(size);
    memset(large, 'x', size - 1);
    large[size - 1] = '\0';
    write_file("large.jsonl", large);
    free(large);
    assert_int_equal(pelton("submit large.jsonl --batch large"), 65);
    assert_says("large.jsonl:1: the line has 17825791 bytes: the limit is 16777216");
    assert_says("0 requests sent, 1 lines rejected");
}

static void test_whole_job(void **state)
{
    struct requests requests;
    struct record result;
    int32_t ids[4] = {0}, ends[4] = {1, 2, 3, 5};
    struct record chunk = {.type = RECORD_TOKEN_CHUNK};

    (void)state;
    write_file("job.jsonl", LINE("a") LINE("b") LINE("c") "oops\n");
    assert_int_equal(pelton("submit job.jsonl --batch job --stream --completion-window 1h"), 65);
    assert_int_equal(pelton("status jo"), 0); /* the beginning of the id suffices */
    assert_says("state      in_progress\ntotal      3\ncompleted  0\n");
    assert_says("waiting    3\nrejected   1\n");
    read_requests(TOPIC_REQUESTS_BULK, &requests);
    assert_int_equal(requests.count, 3);
    assert_int_equal(requests.items[0]->u.request.stream, STREAM_ON);
    assert_true(requests.items[0]->u.request.deadline_ms > clock_wall_ms() + 3000000);
    /* A result twice, and one of another job. */
    result = result_of(&requests.items[0]->u.request);
    put(TOPIC_RESULTS, &result);
    put(TOPIC_RESULTS, &result);
    result.u.result.batch_id = str_from("other");
    result.u.result.request_id.bytes[0] ^= 1;
    put(TOPIC_RESULTS, &result);
    assert_int_equal(pelton("collect job -o out.jsonl"), 75);
    assert_says("1 of 3 outcomes are there");
    assert_int_equal(count_lines("out.jsonl", "response"), 1);
    /* Tokens of the second, with an overlap; the rest comes with the result. */
    chunk.u.token_chunk =
        (struct token_chunk){.request_id = requests.items[1]->u.request.request_id,
                             .batch_id = str_from("job"),
                             .custom_id = requests.items[1]->u.request.custom_id,
                             .attempt = 1,
                             .ids = {ids, 4},
                             .text = str_from("one\nt"),
                             .text_ends = {ends, 4}};
    put(TOPIC_TOKENS, &chunk);
    put(TOPIC_TOKENS, &chunk);
    result = result_of(&requests.items[1]->u.request);
    put(TOPIC_RESULTS, &result);
    result = result_of(&requests.items[2]->u.request);
    result.u.result.status = RESULT_FAILED;
    result.u.result.text = str_from("");
    result.u.result.failure = (struct failure){.code = str_from("context_length_exceeded"),
                                               .message = str_from("too long"),
                                               .param = str_from("messages")};
    put(TOPIC_RESULTS, &result);
    assert_int_equal(pelton("status job --json"), 0);
    assert_says("\"state\":\"completed\",\"total\":3,\"completed\":2,\"failed\":1,\"expired\":0,"
                "\"cancelled\":0,\"waiting\":0,\"rejected\":1");
    assert_int_equal(pelton("collect job -o none.jsonl -i none"), 66);
    assert_says("none: No such file");
    assert_int_equal(pelton("collect job --wait -o out.jsonl -e errors.jsonl -i job.jsonl"), 65);
    assert_int_equal(count_lines("out.jsonl", "response"), 2);
    assert_int_equal(count_lines("errors.jsonl", "error"), 2);
    assert_int_equal(pelton("tail job"), 65);
    assert_says(" | one\n");
    assert_says(" : failed: too long\n");
    assert_int_equal(pelton("tail job --id %.*s", (int)requests.items[1]->u.request.custom_id.size,
                            requests.items[1]->u.request.custom_id.data),
                     0);
    assert_string_equal(output, "one\ntwo\n");
    assert_int_equal(pelton("tail job --id %.*s", (int)requests.items[2]->u.request.custom_id.size,
                            requests.items[2]->u.request.custom_id.data),
                     65);
    assert_says(" : failed: too long\n");
    assert_int_equal(pelton("tail job --id none"), 66);
    assert_says("batch job has no request \"none\"");
    assert_int_equal(pelton("tail"), 65); /* of the newest job */
    assert_says(" : failed: too long\n");
    free_requests(&requests);
}

/* Of the job that is answered. */
static void test_finished_job(void **state)
{
    char path[100], target[20];

    (void)state;
    /* A link stays one, and what it names gets the answers. */
    write_file("linked", "");
    snprintf(path, sizeof path, "%s/link", folder);
    assert_int_equal(symlink("linked", path), 0);
    assert_int_equal(pelton("collect job -o link -e errors.jsonl"), 65);
    assert_int_equal(count_lines("linked", "response"), 2);
    assert_int_equal(readlink(path, target, sizeof target), 6);
    assert_int_equal(pelton("status job --tenant else"), 66);
    assert_int_equal(pelton("cancel job"), 0);
    assert_says("nothing to cancel");
}

/* Sent again, the job keeps its beginning: results from before count. */
static void test_submit_again(void **state)
{
    (void)state;
    assert_int_equal(pelton("submit job.jsonl --batch job --wait"), 65);
    assert_says("3 requests sent, 1 lines rejected (submitted before)");
    assert_says("answers  3/3  100%");
    write_file("other.jsonl", LINE("z"));
    assert_int_equal(pelton("submit other.jsonl --batch job"), 64);
    assert_says("batch job was begun from another file (job.jsonl)");
    assert_int_equal(pelton("submit - --batch piped < other.jsonl"), 0);
    assert_says("batch piped: 1 requests sent");
    assert_int_equal(pelton("submit - --batch pipe < other.jsonl"), 0);
    assert_says("batch pipe: 1 requests sent"); /* not the one that only begins alike */
    assert_int_equal(pelton("cancel pip"), 64);
    assert_int_equal(pelton("cancel pi"), 64);
    assert_int_equal(pelton("cancel pipe"), 0);
    assert_int_equal(pelton("cancel piped"), 0);
    assert_int_equal(pelton("status"), 0);
    assert_says("  cancelling          0/1             0  piped  default  -\n");
    assert_says("  completed           3/3             1  job  default  job.jsonl\n");
    assert_says(
        "submitted                 state        outcomes/requests errors  batch  tenant  file\n");
    assert_int_equal(pelton("status --no-answers"), 0);
    assert_says("  cancelled           ?/1             ?  piped  default  -\n");
    assert_says("  submitted           ?/3             ?  job  default  job.jsonl\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_topics),           cmocka_unit_test(test_usage),
        cmocka_unit_test(test_submit_bad_lines), cmocka_unit_test(test_whole_job),
        cmocka_unit_test(test_finished_job),     cmocka_unit_test(test_submit_again),
    };

    return has_broker() ? cmocka_run_group_tests(tests, setup, teardown) : 77;
}
