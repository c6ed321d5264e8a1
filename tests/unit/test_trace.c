/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "scheduler/sim/trace.h"

#define AZURE   "TIMESTAMP,ContextTokens,GeneratedTokens\n"
#define WINDOWS "window_start_s,rate_rps,clients,mean_input_tokens,mean_output_tokens\n"

static char path[] = "/tmp/test_trace_XXXXXX";

static int open_file(void **state)
{
    int fd = mkstemp(path);

    (void)state;
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

static void write_text(const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static struct trace_options plain(void)
{
    return (struct trace_options){.path = path, .scale = 1, .seed = 1};
}

static void read_text(struct trace *trace, const char *text, const struct trace_options *options)
{
    struct err err;

    write_text(text);
    assert_true(trace_read(trace, options, &err));
}

/* Refused, by file and line. */
static void refuse(const char *text, unsigned line, const char *what,
                   const struct trace_options *options)
{
    struct trace trace;
    struct err err;
    char place[64];

    write_text(text);
    assert_false(trace_read(&trace, options, &err));
    assert_int_equal(err.kind, ERR_REJECT);
    snprintf(place, sizeof place, "%s, line %u: ", path, line);
    assert_non_null(strstr(err.message, place));
    assert_non_null(strstr(err.message, what));
}

static void expect(const struct trace *trace, size_t i, int64_t at_us, uint32_t prompt,
                   uint32_t output)
{
    assert_true(i < trace->count);
    assert_int_equal(trace->requests[i].arrival_us, at_us);
    assert_int_equal(trace->requests[i].prompt_tokens, prompt);
    assert_int_equal(trace->requests[i].output_tokens, output);
}

static void azure(void **state)
{
    struct trace trace;
    struct trace_options options = plain();
    const char *text = AZURE "2023-11-16 23:59:59.5000000,100,10\r\n"
                             "2023-11-17 00:00:01.0000000,200,0\n"
                             "2023-11-17 00:00:03.5000000,300,30\n";

    (void)state;
    read_text(&trace, text, &options);
    assert_int_equal(trace.count, 3);
    expect(&trace, 0, 0, 100, 10);
    expect(&trace, 1, 1500000, 200, 1); /* no request is without a token */
    expect(&trace, 2, 4000000, 300, 30);
    assert_int_equal(trace.prompt_tokens, 600);
    assert_int_equal(trace.output_tokens, 41);
    /* 10 * 105 + 1 * 200.5 + 30 * 315 */
    assert_true(fabs(trace.context_tokens - 10700.5) < 1e-6);
    trace_free(&trace);

    options.scale = 2;
    options.from_us = 1000000;
    options.length_us = 2000000; /* [1, 3) s: the second one only */
    read_text(&trace, text, &options);
    assert_int_equal(trace.count, 1);
    expect(&trace, 0, 250000, 200, 1);
    trace_free(&trace);
}

static void azure_refused(void **state)
{
    const struct trace_options options = plain();

    (void)state;
    refuse(AZURE "2023-11-16 18:15:46.68,1,2\n2023-11-16 18:15:46.69,1\n", 3, "expected TIMESTAMP",
           &options);
    refuse(AZURE "yesterday,1,2\n", 2, "expected TIMESTAMP", &options);
    refuse(AZURE "2023-11-16 18:15:66.68,-1,2\n", 2, "expected TIMESTAMP", &options);
    refuse(AZURE "2023-11-16 18:15:46.68,1,x\n", 2, "expected TIMESTAMP", &options);
    refuse(AZURE "2023-11-16 18:15:46.68,1,2\n2023-11-16 18:15:45.68,1,2\n", 3, "time goes back",
           &options);
}

static void no_trace(void **state)
{
    struct trace_options options = plain();
    struct trace trace;
    struct err err;

    (void)state;
    write_text("");
    assert_false(trace_read(&trace, &options, &err));
    assert_non_null(strstr(err.message, ": the file is empty"));
    options.path = "/tmp";
    assert_false(trace_read(&trace, &options, &err));
    assert_string_equal(err.message, "trace /tmp: a folder, not a file");
}

static void mooncake(void **state)
{
    struct trace trace;
    const struct trace_options options = plain();

    (void)state;
    read_text(&trace,
              "{\"timestamp\": 5, \"input_length\": 7, \"output_length\": 8, \"hash_ids\": [1]}\n"
              "{\"timestamp\": 1005, \"input_length\": 9, \"output_length\": 1}\n",
              &options);
    expect(&trace, 0, 0, 7, 8);
    expect(&trace, 1, 1000000, 9, 1);
    trace_free(&trace);
    refuse("{\"timestamp\": 5, \"input_length\": 7}\n", 1, "expected {timestamp", &options);
    refuse("{\"timestamp\": 5, \"input_length\": 7, \"output_length\": 8}\n[]\n", 2,
           "expected {timestamp", &options);
    refuse("{\"timestamp\": 5, \"input_length\": 7, \"output_length\": 8}\n"
           "{\"timestamp\": 4, \"input_length\": 7, \"output_length\": 8}\n",
           2, "time goes back", &options);
}

/* 1,500 tokens in three blocks; the second shares two of them, the third is the first again, whose
 * last token is always computed; a block that came before counts only at the beginning. */
static void mooncake_blocks(void **state)
{
    static const char first[] = "{\"timestamp\": 0, \"input_length\": 1500, \"output_length\": 1, "
                                "\"hash_ids\": [4, 7, 9]}\n";
    static const uint32_t ids[] = {4, 7, 9, 4, 7, 3, 9, 4, 4, 7, 9};
    struct trace trace;
    struct trace_options options = plain();
    char text[1024];

    (void)state;
    snprintf(text, sizeof text,
             "%s{\"timestamp\": 1, \"input_length\": 1100, \"output_length\": 1, "
             "\"hash_ids\": [4, 7, 3]}\n"
             "{\"timestamp\": 2, \"input_length\": 600, \"output_length\": 1, "
             "\"hash_ids\": [9, 4]}\n%s",
             first,
             "{\"timestamp\": 3, \"input_length\": 1500, \"output_length\": 1, "
             "\"hash_ids\": [4, 7, 9]}\n");
    read_text(&trace, text, &options);
    assert_int_equal(trace.blocks_count, 11);
    assert_memory_equal(trace.blocks, ids, sizeof ids);
    assert_int_equal(trace.blocks_limit, 10);
    assert_int_equal(trace.requests[1].blocks, 3);
    assert_int_equal(trace.requests[2].blocks_at, 6);
    assert_int_equal(trace.repeated_tokens, 1024 + 599 + 1499);
    trace_free(&trace);
    /* What was not selected was not seen. */
    options.from_us = 3000;
    read_text(&trace, text, &options);
    assert_int_equal(trace.count, 1);
    assert_int_equal(trace.repeated_tokens, 0);
    trace_free(&trace);
    options.from_us = 0;
    refuse("{\"timestamp\": 0, \"input_length\": 513, \"output_length\": 1, \"hash_ids\": [1]}\n",
           1, "not as many as the prompt's blocks", &options);
    refuse("{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [-1]}\n", 1,
           "hash_ids are numbers", &options);
    refuse("{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, "
           "\"hash_ids\": [16777216]}\n",
           1, "hash_ids are numbers", &options);
}

/* 1,000 s at 10/s, then 1,000 s of nothing. */
static void windows(void **state)
{
    struct trace trace, again;
    struct trace_options options = plain();
    const char *text = WINDOWS "0,10,1,200,100\n1000,0,0,0,0\n";

    (void)state;
    read_text(&trace, text, &options);
    assert_int_equal(trace.duration_us, 2000000000);
    assert_in_range(trace.count, 9700, 10300); /* Poisson: 10,000 +- 3 sigma */
    assert_true(fabs((double)trace.prompt_tokens / (double)trace.count - 200) < 8);
    assert_true(fabs((double)trace.output_tokens / (double)trace.count - 100) < 5);
    for (size_t i = 1; i < trace.count; i++)
        assert_true(trace.requests[i].arrival_us >= trace.requests[i - 1].arrival_us);
    assert_true(trace.requests[trace.count - 1].arrival_us < 1000000000);
    assert_true(trace_read(&again, &options, &(struct err){0}));
    assert_int_equal(again.count, trace.count);
    assert_memory_equal(again.requests, trace.requests, trace.count * sizeof *trace.requests);
    trace_free(&again);
    trace_free(&trace);

    options.scale = 3; /* more requests, not shorter days */
    read_text(&trace, text, &options);
    assert_in_range(trace.count, 29400, 30600);
    assert_int_equal(trace.duration_us, 2000000000);
    trace_free(&trace);
}

static void windows_with_sigmas(void **state)
{
    struct trace trace;
    struct trace_windows read;
    const struct trace_options options = plain();

    (void)state;
    read_text(&trace, WINDOWS "0,1,1,200,100,0,0\n", &options);
    for (size_t i = 0; i < trace.count; i++)
        assert_int_equal(trace.requests[i].output_tokens, 100);
    trace_free(&trace);
    assert_true(trace_read_windows(&read, &options, &(struct err){0}));
    assert_true(trace_window_context(&read.windows[0]) == 250);
    trace_windows_free(&read);
    /* The long ones run longest: 200 + 50 * e. */
    assert_true(fabs(trace_window_context(
                         &(struct trace_window){.prompt = 200, .output = 100, .output_sigma = 1}) -
                     335.914) < 0.001);
}

static void windows_refused(void **state)
{
    struct trace_windows read;
    struct err err;
    const struct trace_options options = plain();

    (void)state;
    refuse(WINDOWS "0,10,1,200,100\n600,10,1,200,100\n1000,1,1,1,1\n", 4, "of equal width",
           &options);
    refuse(WINDOWS "5,10,1,200,100\n", 2, "windows start at 0", &options);
    refuse(WINDOWS "0,-1,1,200,100\n", 2, "expected window_start_s", &options);
    refuse(WINDOWS "0,1,1,200\n", 2, "expected window_start_s", &options);
    refuse(WINDOWS "0,1,1,200,100,9,9\n", 2, "expected window_start_s", &options);
    write_text(AZURE);
    assert_false(trace_read_windows(&read, &options, &err));
    assert_non_null(strstr(err.message, "needs a trace by windows"));
}

static void offline(void **state)
{
    struct trace trace;
    struct trace_options options = plain();

    (void)state;
    refuse("id,in,out\n1,2,3\n", 1, "--columns", &options);
    options.column_prompt = "in";
    options.column_output = "out";
    read_text(&trace, "id,in,out\na,2,3\nb,4,5\n", &options);
    assert_true(trace.offline);
    assert_int_equal(trace.duration_us, 0);
    expect(&trace, 0, 0, 2, 3);
    expect(&trace, 1, 0, 4, 5);
    trace_free(&trace);
    refuse("id,in,out\na,2,3\nb,4\n", 3, "expected token counts", &options);
    refuse("id,in,out\na,2,1e9\n", 2, "expected token counts", &options);
    refuse("id,in,answer\na,2,3\n", 1, "no column \"out\"; the header has id, in, answer",
           &options);
    refuse("{\"timestamp\": 0}\n", 1, "these are JSON lines", &options);
    /* A byte order mark, quotes around names and values, a comma and a quote within. */
    read_text(&trace, "\xef\xbb\xbf\"in\",\"a, \"\"b\"\"\",out\r\n\"2\",\"x,\"\"y\",3\r\n",
              &options);
    expect(&trace, 0, 0, 2, 3);
    trace_free(&trace);

    options.length_us = 1;
    refuse("id,in,out\na,2,3\n", 1, "no times for --from and --length", &options);
    options.length_us = 0;

    /* A known header is a table of lengths, too, when columns are named. */
    options.column_prompt = "ContextTokens";
    options.column_output = "GeneratedTokens";
    read_text(&trace, AZURE "2023-11-16 18:15:46.68,7,2\n2023-11-16 18:15:47.68,8,3\n", &options);
    assert_true(trace.offline);
    expect(&trace, 0, 0, 7, 2);
    expect(&trace, 1, 0, 8, 3);
    trace_free(&trace);
    options = plain();
    read_text(&trace,
              "\xef\xbb\xbf\"TIMESTAMP\",\"ContextTokens\",\"GeneratedTokens\"\n"
              "2023-11-16 18:15:46.68,7,2\n",
              &options);
    assert_false(trace.offline);
    trace_free(&trace);
}

/* Told before any is drawn; a part of the time or of the rate is taken. */
static void too_many(void **state)
{
    struct trace_options options = plain();
    struct trace trace;
    struct err err;

    (void)state;
    write_text(WINDOWS "0,1e9,1,100,100\n");
    assert_false(trace_read(&trace, &options, &err));
    assert_int_equal(err.kind, ERR_REJECT);
    assert_non_null(strstr(err.message, "about 6e+11 requests, more than 10000000"));
    options.length_us = 1000; /* a million on average */
    assert_true(trace_read(&trace, &options, &err));
    assert_in_range(trace.count, 990000, 1010000);
    trace_free(&trace);
}

static void nothing_selected(void **state)
{
    struct trace trace;
    struct err err;
    struct trace_options options = plain();

    (void)state;
    options.from_us = 1000000;
    write_text(AZURE "2023-11-16 18:15:46.68,1,2\n");
    assert_false(trace_read(&trace, &options, &err));
    assert_non_null(strstr(err.message, "no request in the selected time"));
    options.path = "/nowhere/trace.csv";
    assert_false(trace_read(&trace, &options, &err));
    assert_non_null(strstr(err.message, "/nowhere/trace.csv: No such file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(azure),
        cmocka_unit_test(azure_refused),
        cmocka_unit_test(no_trace),
        cmocka_unit_test(mooncake),
        cmocka_unit_test(mooncake_blocks),
        cmocka_unit_test(windows),
        cmocka_unit_test(windows_with_sigmas),
        cmocka_unit_test(windows_refused),
        cmocka_unit_test(offline),
        cmocka_unit_test(too_many),
        cmocka_unit_test(nothing_selected),
    };

    return cmocka_run_group_tests(tests, open_file, remove_file);
}
