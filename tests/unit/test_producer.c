/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines in, lines out, streams and the meter; the commands themselves are in
 * tests/e2e/test_producer_broker.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "producer/command.h"
#include "producer/line.h"
#include "producer/meter.h"
#include "producer/render.h"
#include "producer/stream.h"

/* ---- lines ---- */

static struct lines *open_text(const char *text, size_t size, size_t line_size_max)
{
    char path[] = "/tmp/test_lines_XXXXXX";
    int fd = mkstemp(path);
    struct lines *lines;
    struct err err;

    assert_int_equal(write(fd, text, size), size);
    close(fd);
    assert_true(lines_open(&lines, path, line_size_max, &err));
    unlink(path);
    return lines;
}

static void assert_line(struct lines *lines, uint64_t number, const char *text)
{
    struct raw_line line;
    struct err err;
    bool end;

    assert_true(lines_next(lines, &line, &end, &err));
    assert_false(end);
    assert_int_equal(line.number, number);
    assert_true(str_equal((struct str){line.data, line.size}, str_from(text)));
}

static void assert_end(struct lines *lines)
{
    struct raw_line line;
    struct err err;
    bool end;

    assert_true(lines_next(lines, &line, &end, &err));
    assert_true(end);
    assert_null(line.data);
}

static void test_lines(void **state)
{
    const char text[] = "\xef\xbb\xbf"
                        "a\r\n\nb\xef\xbb\xbf\nlast";
    struct lines *lines = open_text(text, sizeof text - 1, 100);
    uint8_t digest[SHA256_SIZE], expected[SHA256_SIZE];

    (void)state;
    assert_line(lines, 1, "a");
    assert_line(lines, 2, "");
    assert_line(lines, 3, "b\xef\xbb\xbf"); /* a mark is one at the very beginning only */
    assert_line(lines, 4, "last");
    assert_end(lines);
    assert_end(lines);
    assert_int_equal(lines_bytes_read(lines), sizeof text - 1);
    lines_close(lines, digest);
    sha256(text, sizeof text - 1, expected);
    assert_memory_equal(digest, expected, sizeof digest);
}

static void test_lines_empty(void **state)
{
    struct lines *lines = open_text("", 0, 100);

    (void)state;
    assert_end(lines);
    lines_close(lines, NULL);
    lines = open_text("\n", 1, 100);
    assert_line(lines, 1, "");
    assert_end(lines);
    lines_close(lines, NULL);
}

/* One line of 3 MB among small ones, with a limit of 1 MB: passed over, its size known. */
static void test_lines_too_long(void **state)
{
    enum { LONG = 3000000, LIMIT = 1000000 };
    char *text = malloc(LONG + 20);
    struct lines *lines;
    struct raw_line line;
    struct err err;
    bool end;

    (void)state;
    memcpy(text, "first\n", 6);
    memset(text + 6, 'x', LONG);
    memcpy(text + 6 + LONG, "\nlast\n", 6);
    lines = open_text(text, 6 + LONG + 6, LIMIT);
    assert_line(lines, 1, "first");
    assert_true(lines_next(lines, &line, &end, &err));
    assert_true(line.too_long);
    assert_int_equal(line.size, LONG);
    assert_int_equal(line.number, 2);
    assert_line(lines, 3, "last");
    assert_end(lines);
    lines_close(lines, NULL);
    lines = open_text(text + 6, LIMIT, LIMIT); /* exactly the limit, no newline */
    assert_true(lines_next(lines, &line, &end, &err));
    assert_false(line.too_long);
    assert_int_equal(line.size, LIMIT);
    lines_close(lines, NULL);
    free(text);
}

static void test_lines_no_file(void **state)
{
    struct lines *lines;
    uint8_t digest[SHA256_SIZE];
    uint64_t size;
    struct err err;
    (void)state;
    assert_false(lines_open(&lines, "/nonexistent/x.jsonl", 10, &err));
    assert_string_equal(err.message, "/nonexistent/x.jsonl: No such file or directory");
    assert_false(lines_hash_file("/dev/null", digest, &size, &err));
    assert_string_equal(err.message, "/dev/null is no regular file");
    assert_true(lines_is_stream("-") && lines_is_stream("/dev/null") && !lines_is_stream("/"));
}

/* ---- line ---- */

#define BODY "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"
#define CHAT "\"method\":\"POST\",\"url\":\"/v1/chat/completions\""

static bool check_text(const char *text, size_t size, struct line *line, struct line_error *error)
{
    const struct raw_line raw = {.data = text, .size = size, .number = 1};

    return line_check(&raw, line, error);
}

static void test_line_good(void **state)
{
    struct line_error error;
    struct line line;
    const char *text;

    (void)state;
    /* The body keeps its own spelling: blanks, escapes, number formats, order. */
    text =
        " {\"custom_id\" : \"a}\\\"{\" , " CHAT ", \"x\":[{\"body\":1}],\t\"body\" : "
        "{\"model\":\"m\", \"messages\":[{\"role\":\"user\"}],\"t\":1.50e0,\"u\":\"\\u00e9]\"} } ";
    assert_true(check_text(text, strlen(text), &line, &error));
    assert_true(str_equal(line.custom_id, str_from("a}\"{")));
    assert_true(
        str_equal(line.body, str_from("{\"model\":\"m\", \"messages\":[{\"role\":\"user\"}],"
                                      "\"t\":1.50e0,\"u\":\"\\u00e9]\"}")));
    assert_true(str_equal(line.model, str_from("m")));
    assert_int_equal(line.endpoint, ENDPOINT_CHAT_COMPLETIONS);
    line_free(&line);
    text = "{\"body\":{\"model\":\"\",\"prompt\":[1,2],\"stream\":false},\"custom_id\":\"1\","
           "\"method\":\"POST\",\"url\":\"/v1/completions\"}";
    assert_true(check_text(text, strlen(text), &line, &error));
    assert_int_equal(line.endpoint, ENDPOINT_COMPLETIONS);
    assert_int_equal(line.body.size, strlen("{\"model\":\"\",\"prompt\":[1,2],\"stream\":false}"));
    line_free(&line);
}

static void test_line_bad(void **state)
{
    static const struct {
        const char *text;
        const char *code;
        const char *message;
    } cases[] = {
        {"null", "invalid_json_line", "the line is null: it must be an object"},
        {"[1]", "invalid_json_line", "the line is an array"},
        {"\"x\"", "invalid_json_line", "the line is a string"},
        {"{\"custom_id\":", "invalid_json_line", "not JSON"},
        {"{} {}", "invalid_json_line", "not JSON"},
        {"{\"a\":1,\"a\":2}", "invalid_json_line", "duplicate object key"},
        {"{\"custom_id\":\"a\xff\"}", "invalid_json_line", "byte 16 of the line is not UTF-8"},
        {"{\"custom_id\":\"a\\u0000b\"," CHAT ",\"body\":" BODY "}", "invalid_json_line",
         "a text holds the character NUL (\\u0000)"},
        {"{\"custom_id\":\"a\"," CHAT ",\"x\":99999999999999999999}", "invalid_json_line",
         "a number is out of range"},
        {"{" CHAT ",\"body\":" BODY "}", "missing_required_parameter", "custom_id is missing"},
        {"{\"custom_id\":7," CHAT ",\"body\":" BODY "}", "invalid_value", "custom_id is a number"},
        {"{\"custom_id\":\"\"," CHAT ",\"body\":" BODY "}", "invalid_value", "custom_id is empty"},
        {"{\"custom_id\":\"a\",\"url\":\"/v1/completions\",\"body\":" BODY "}",
         "missing_required_parameter", "method is missing"},
        {"{\"custom_id\":\"a\",\"method\":\"GET\",\"url\":\"/v1/completions\",\"body\":" BODY "}",
         "invalid_value", "method is \"GET\": it must be POST"},
        {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/embeddings\",\"body\":" BODY "}",
         "invalid_url", "url is \"/v1/embeddings\": it must be /v1/chat/completions or"},
        {"{\"custom_id\":\"a\"," CHAT "}", "missing_required_parameter", "body is missing"},
        {"{\"custom_id\":\"a\"," CHAT ",\"body\":[]}", "invalid_value", "body is an array"},
        {"{\"custom_id\":\"a\"," CHAT ",\"body\":{\"messages\":[1]}}", "missing_required_parameter",
         "body.model is missing"},
        {"{\"custom_id\":\"a\"," CHAT ",\"body\":{\"model\":\"m\"}}", "missing_required_parameter",
         "body.messages is missing"},
        {"{\"custom_id\":\"a\"," CHAT ",\"body\":{\"model\":\"m\",\"messages\":[]}}",
         "invalid_value", "at least one message"},
        {"{\"custom_id\":\"a\"," CHAT ",\"body\":{\"model\":\"m\",\"messages\":[1],"
         "\"stream\":true}}",
         "invalid_value", "body.stream is true"},
        {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":"
         "{\"model\":\"m\",\"prompt\":3}}",
         "invalid_value", "body.prompt is a number"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct line_error error;
        struct line line;
        assert_false(check_text(cases[i].text, strlen(cases[i].text), &line, &error));
        if (strcmp(error.code, cases[i].code) != 0 || !strstr(error.message, cases[i].message))
            fail_msg("%s: %s: %s", cases[i].text, error.code, error.message);
    }
}

/* What is refused for its text only keeps its name. */
static void test_line_name_kept(void **state)
{
    static const char *const texts[] = {"{\"custom_id\":\"a\",\"x\":99999999999999999999}",
                                        "{\"custom_id\":\"a\",\"x\":\"b\\u0000\"}",
                                        "{\"custom_id\":\"a\",\"body\":{\"b\":1,\"b\":2}}",
                                        "{\"x\":1e999,\"y\":[{\"custom_id\":\"no\"}],"
                                        "\"custom_id\" : \"a\"}"};

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct line_error error;
        struct line line;
        assert_false(check_text(texts[i], strlen(texts[i]), &line, &error));
        assert_string_equal(error.custom_id, "a");
    }
}

static void test_line_hostile(void **state)
{
    enum { DEPTH = 100000 };
    char *text = malloc(DEPTH + 1);
    struct raw_line too_long = {.size = 20000000, .too_long = true};
    struct line_error error;
    struct line line;

    (void)state;
    memset(text, '[', DEPTH);
    assert_false(check_text(text, DEPTH, &line, &error));
    assert_non_null(strstr(error.message, "maximum parsing depth"));
    assert_false(check_text("{\"a\":\"\0\"}", 9, &line, &error));
    assert_false(line_check(&too_long, &line, &error));
    assert_string_equal(error.code, "request_too_large");
    assert_string_equal(error.message, "the line has 20000000 bytes: the limit is 16777216");
    /* Quoted to 60 bytes, which cut the last character: the message is still UTF-8. */
    snprintf(text, DEPTH, "{\"custom_id\":\"a\",\"method\":\"%.59s\xc3\xa9\"}",
             "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
    assert_false(check_text(text, strlen(text), &line, &error));
    assert_non_null(strstr(error.message, "xx?\": it must be POST"));
    free(render_rejected(&error, 1));
    snprintf(text, DEPTH, "{\"custom_id\":\"%0600d\"," CHAT ",\"body\":" BODY "}", 0);
    assert_false(check_text(text, strlen(text), &line, &error));
    assert_string_equal(error.message, "custom_id has 600 bytes: the limit is 512");
    free(text);
}

static void test_line_blank(void **state)
{
    (void)state;
    assert_true(line_is_blank(&(struct raw_line){.data = " \t", .size = 2}));
    assert_true(line_is_blank(&(struct raw_line){.data = "", .size = 0}));
    assert_false(line_is_blank(&(struct raw_line){.data = " {", .size = 2}));
    assert_false(line_is_blank(&(struct raw_line){.size = 5, .too_long = true}));
}

/* The second of two equal ids is refused, and the message has both lines. */
static void test_line_duplicate(void **state)
{
    struct idmap *line_of = idmap_open(0);
    struct line_error error = {.custom_id = "a"};
    const struct request_id a = {{1}}, b = {{2}};

    (void)state;
    assert_true(line_check_unique(line_of, &a, 3, &error));
    assert_true(line_check_unique(line_of, &b, 4, &error));
    assert_false(line_check_unique(line_of, &a, 7, &error));
    assert_string_equal(error.code, "duplicate_custom_id");
    assert_string_equal(error.message, "custom_id \"a\" is on line 3 already");
    idmap_close(line_of);
}

/* ---- render ---- */

static void test_render(void **state)
{
    struct result result = {
        .request_id = {{0xab}},
        .custom_id = str_from("q\"1"),
        .model = str_from("demo"),
        .text = str_from("42\n"),
        .finish_reason = FINISH_STOP,
        .usage = {.prompt_tokens_uncached = 5, .prompt_tokens_cached = 2, .output_tokens = 3},
        .finished_ms = 1700000000999};
    char *line = render_result(&result);

    (void)state;
    assert_string_equal(
        line,
        "{\"id\":\"batch_req_ab000000-0000-0000-0000-000000000000\",\"custom_id\":\"q\\\"1\","
        "\"response\":{\"status_code\":200,\"request_id\":"
        "\"ab000000-0000-0000-0000-000000000000\",\"body\":{\"id\":"
        "\"chatcmpl-ab000000-0000-0000-0000-000000000000\",\"object\":\"chat.completion\","
        "\"created\":1700000000,\"model\":\"demo\",\"choices\":[{\"index\":0,\"logprobs\":null,"
        "\"finish_reason\":\"stop\",\"message\":{\"role\":\"assistant\",\"content\":\"42\\n\"}"
        "}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3,\"total_tokens\":10,"
        "\"prompt_tokens_details\":{\"cached_tokens\":2}}}},\"error\":null}");
    free(line);
    result.endpoint = ENDPOINT_COMPLETIONS;
    line = render_result(&result);
    assert_non_null(strstr(line, "\"text_completion\""));
    assert_non_null(strstr(line, "\"text\":\"42\\n\""));
    free(line);
    result.status = RESULT_EXPIRED;
    result.failure.message = str_from("too late");
    line = render_result(&result);
    assert_string_equal(
        line, "{\"id\":\"batch_req_ab000000-0000-0000-0000-000000000000\",\"custom_id\":\"q\\\"1\","
              "\"response\":null,\"error\":{\"code\":\"batch_expired\",\"message\":\"too late\","
              "\"param\":null}}");
    free(line);
}

static void test_render_rejected(void **state)
{
    struct line_error error = {.code = "invalid_url", .message = "no", .param = "url"};
    char *line = render_rejected(&error, 12);

    (void)state;
    assert_string_equal(line,
                        "{\"id\":null,\"custom_id\":null,\"response\":null,\"error\":{\"code\":"
                        "\"invalid_url\",\"message\":\"no\",\"param\":\"url\",\"line\":12}}");
    free(line);
}

/* ---- stream ---- */

static struct str add_chunk(struct stream *stream, uint32_t attempt, uint32_t first, size_t count,
                            const char *text)
{
    static const int32_t ids[8];
    static int32_t ends[8];
    struct token_chunk chunk = {.attempt = attempt,
                                .first_index = first,
                                .ids = {ids, count},
                                .text = str_from(text),
                                .text_ends = {ends, count}};

    for (size_t i = 0; i < count; i++) /* one byte an id, the last one has the rest */
        ends[i] = i + 1 == count ? (int32_t)strlen(text) : (int32_t)i + 1;
    return stream_accept(stream, &chunk);
}

static void test_stream(void **state)
{
    struct stream stream = {0};

    (void)state;
    assert_true(str_equal(add_chunk(&stream, 1, 0, 2, "ab"), str_from("ab")));
    assert_int_equal(add_chunk(&stream, 1, 0, 2, "ab").size, 0);                /* again */
    assert_true(str_equal(add_chunk(&stream, 1, 1, 3, "bcd"), str_from("cd"))); /* overlap */
    assert_int_equal(add_chunk(&stream, 1, 6, 1, "g").size, 0);                 /* a gap: not yet */
    assert_int_equal(add_chunk(&stream, 2, 0, 3, "abc").size, 0); /* a new attempt's start */
    assert_int_equal(add_chunk(&stream, 1, 4, 1, "e").size, 0);   /* the old one is over */
    assert_true(str_equal(add_chunk(&stream, 2, 3, 2, "def"), str_from("ef")));
    assert_true(str_equal(stream_finish(&stream, str_from("abcdefg")), str_from("g")));
    assert_int_equal(add_chunk(&stream, 2, 5, 1, "g").size, 0); /* late */
}

static void test_stream_unsound(void **state)
{
    const int32_t ids[2] = {0};
    const int32_t backwards[2] = {2, 1}, beyond[2] = {1, 9};
    struct token_chunk chunk = {
        .ids = {ids, 2}, .text = str_from("ab"), .text_ends = {backwards, 2}};
    struct stream stream = {0};

    (void)state;
    assert_int_equal(stream_accept(&stream, &chunk).size, 0);
    chunk.text_ends.items = beyond;
    assert_int_equal(stream_accept(&stream, &chunk).size, 0);
    chunk.text_ends.count = 1;
    assert_int_equal(stream_accept(&stream, &chunk).size, 0);
    assert_int_equal(stream.next, 0);
}

/* ---- what people read ---- */

static void test_meter_text(void **state)
{
    char text[200];

    (void)state;
    meter_format(text, sizeof text, "answers", 30, 40, 10, "1 failed");
    assert_string_equal(text, "answers  30/40   75%  10.0/s  ETA 0:01  1 failed");
    meter_format(text, sizeof text, "sending", 30, 0, 12.34, "");
    assert_string_equal(text, "sending  30  12.3/s");
    meter_format(text, sizeof text, "answers", 40, 40, 0.5, "");
    assert_string_equal(text, "answers  40/40  100%  0.5/s");
    meter_format(text, sizeof text, "answers", 0, 100, 0.5, "");
    assert_string_equal(text, "answers  0/100    0%  0.5/s  ETA 3:20");
}

/* Failed is not completed: total 10, completed 7, failed 3. */
static void test_tally(void **state)
{
    struct results_tally tally = {.total = 10, .complete = true, .finished = 10};
    const struct session_options options = {.tenant = NULL};
    const struct session session = {.options = &options};
    const struct batch batch = {.batch_id = str_from("night")};
    char note[100];

    (void)state;
    tally.by_status[RESULT_COMPLETED] = 7;
    tally.by_status[RESULT_FAILED] = 3;
    command_note(&tally, note, sizeof note);
    assert_string_equal(note, "3 failed");
    assert_true(results_done(&tally));
    assert_int_equal(command_code_of_tally(&session, &batch, &tally), 65);
    tally.by_status[RESULT_COMPLETED] = 10;
    assert_int_equal(command_code_of_tally(&session, &batch, &tally), 0);
    tally.finished = 9;
    assert_int_equal(command_code_of_tally(&session, &batch, &tally), 75);
    tally.finished = 10;
    tally.complete = false; /* more may come */
    assert_false(results_done(&tally));
}

/* What retention has deleted is neither finished nor to come, and 11 outcomes of 10 requests are no
 * success. */
static void test_tally_unsound(void **state)
{
    struct results_tally tally = {.total = 10, .complete = true, .trimmed = true};
    const struct session_options options = {.common = {.topic_prefix = "pelton."}};
    const struct session session = {.options = &options};
    const struct batch batch = {.batch_id = str_from("night")};
    struct err err;

    (void)state;
    assert_int_equal(results_state(&tally), RESULTS_GONE);
    assert_string_equal(command_state(true, &tally), "gone");
    assert_int_equal(command_code_of_tally(&session, &batch, &tally), 66);
    results_explain(&session, &batch, &tally, &err);
    assert_string_equal(err.message,
                        "the results of batch night are no longer kept: topic pelton.results "
                        "begins after them; retention is 14 days by default");
    tally.finished = tally.by_status[RESULT_COMPLETED] = 7;
    assert_string_equal(command_state(false, &tally), "partly_gone");
    assert_int_equal(command_code_of_tally(&session, &batch, &tally), 66);
    results_explain(&session, &batch, &tally, &err);
    assert_non_null(strstr(err.message, "3 of 10 results of batch night are no longer kept: "));
    /* All are still there, though others' that stood before them are not. */
    tally.finished = tally.by_status[RESULT_COMPLETED] = 10;
    assert_string_equal(command_state(false, &tally), "completed");
    assert_int_equal(command_code_of_tally(&session, &batch, &tally), 0);
    tally.finished = tally.by_status[RESULT_COMPLETED] = 11;
    assert_false(results_done(&tally));
    assert_string_equal(command_state(false, &tally), "inconsistent");
    assert_int_equal(command_code_of_tally(&session, &batch, &tally), 65);
    results_explain(&session, &batch, &tally, &err);
    assert_non_null(strstr(err.message, "batch night has 11 outcomes for 10 requests: "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),          cmocka_unit_test(test_lines_empty),
        cmocka_unit_test(test_lines_too_long), cmocka_unit_test(test_lines_no_file),
        cmocka_unit_test(test_line_name_kept), cmocka_unit_test(test_line_good),
        cmocka_unit_test(test_line_bad),       cmocka_unit_test(test_line_hostile),
        cmocka_unit_test(test_line_blank),     cmocka_unit_test(test_line_duplicate),
        cmocka_unit_test(test_render),         cmocka_unit_test(test_render_rejected),
        cmocka_unit_test(test_stream),         cmocka_unit_test(test_stream_unsound),
        cmocka_unit_test(test_meter_text),     cmocka_unit_test(test_tally),
        cmocka_unit_test(test_tally_unsound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
