/* SPDX-License-Identifier: Apache-2.0
 *
 * What a record of the usage topic becomes: a row, or a broken one with its reason.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ledger/row.h"
#include "ledger/statement.h"

static struct record usage_record(void)
{
    return (struct record){
        .type = RECORD_USAGE,
        .u.usage =
            {
                .request_id = {{1, 2, 3}},
                .admitted_ms = 1764504000123,
                .tenant = str_from("acme"),
                .model = str_from("pelton-demo"),
                .revision = str_from("r"),
                .batch_id = str_from("b"),
                .custom_id = str_from("c"),
                .service_class = CLASS_BULK,
                .status = RESULT_EXPIRED,
                .attempt = 2,
                .usage = {.prompt_tokens_uncached = 7, .prompt_tokens_cached = 3},
                .precision = str_from("f32"),
                .slot = 4294967295u,
                .hardware = str_from("cpu-2"),
                .finished_ms = 1764504001000,
            },
    };
}

static struct record worker_time_record(int64_t from_ms, int64_t to_ms)
{
    return (struct record){
        .type = RECORD_WORKER_TIME,
        .u.worker_time = {.hardware = str_from("h"), .from_ms = from_ms, .to_ms = to_ms},
    };
}

/* The row that a record becomes on its way through the topic; the caller frees. */
static struct row row_of(struct codec *codec, const struct record *record, struct buffer *buffer)
{
    struct row row = {.partition = 3, .offset = 42};
    struct err err;

    assert_true(codec_encode(codec, record, buffer, &err));
    row.data = buffer->data;
    row.size = buffer->size;
    row_read(&row, codec);
    return row;
}

static void assert_broken(struct codec *codec, const struct record *record, const char *reason)
{
    struct buffer buffer = {0};
    struct row row = row_of(codec, record, &buffer);

    assert_int_equal(row.kind, ROW_BROKEN);
    assert_string_equal(row.reason, reason);
    assert_null(row.record);
    row_free(&row);
    buffer_free(&buffer);
}

static int open_codec(void **state)
{
    struct err err;

    return codec_open((struct codec **)state, &err) ? 0 : -1;
}

static int close_codec(void **state)
{
    codec_close(*state);
    return 0;
}

static void test_good_records(void **state)
{
    struct record record = usage_record();
    struct buffer buffer = {0};
    struct row row = row_of(*state, &record, &buffer);

    assert_int_equal(row.kind, ROW_USAGE);
    assert_int_equal(row.record->u.usage.usage.prompt_tokens_uncached, 7);
    row_free(&row);

    record = worker_time_record(1000, 1000);
    row = row_of(*state, &record, &buffer);
    assert_int_equal(row.kind, ROW_WORKER_TIME);
    row_free(&row);
    buffer_free(&buffer);
}

static void test_bytes_that_are_no_record(void **state)
{
    struct row row = {.data = "garbage", .size = 7};

    row_read(&row, *state);
    assert_int_equal(row.kind, ROW_BROKEN);
    assert_true(strlen(row.reason) > 0);

    row = (struct row){.data = NULL, .size = 0};
    row_read(&row, *state);
    assert_int_equal(row.kind, ROW_BROKEN);
    assert_string_equal(row.reason, "the record has no value");
}

static void test_foreign_record(void **state)
{
    struct record record = {.type = RECORD_GOODBYE, .u.goodbye = {.sent_ms = 1}};
    struct buffer buffer = {0};
    struct row row = row_of(*state, &record, &buffer);

    assert_int_equal(row.kind, ROW_BROKEN);
    assert_non_null(strstr(row.reason, "is no record of the usage topic"));
    row_free(&row);
    buffer_free(&buffer);
}

static void test_impossible_values(void **state)
{
    struct record record = usage_record();

    record.u.usage.admitted_ms = 0;
    assert_broken(*state, &record, "admitted_ms is no time from 1970 to 9999");
    record = usage_record();
    record.u.usage.finished_ms = INT64_MAX;
    assert_broken(*state, &record, "finished_ms is no time from 1970 to 9999");
    record = usage_record();
    record.u.usage.custom_id = (struct str){"a\0b", 3};
    assert_broken(*state, &record, "custom_id contains a NUL");
    record = usage_record();
    record.u.usage.usage.decode_us = -1;
    assert_broken(*state, &record, "decode_us is negative");
    record = usage_record();
    record.u.usage.usage.prefill_us = INT64_MAX;
    assert_broken(*state, &record, "prefill_us is beyond ten years");
    record = worker_time_record(2000, 1999);
    assert_broken(*state, &record, "to_ms is before from_ms");
}

/* A row of an index in PostgreSQL has 2,704 bytes at most. */
static void test_names_that_are_too_long(void **state)
{
    static char text[BATCH_ID_SIZE_MAX + 2];
    struct record record = usage_record();
    struct buffer buffer = {0};
    struct row row;

    memset(text, 'x', sizeof text - 1);
    record.u.usage.batch_id = str_from(text);
    assert_broken(*state, &record, "batch_id has 257 bytes, at most 256 are allowed");
    record.u.usage.batch_id.size--;
    record.u.usage.tenant = (struct str){text, TENANT_SIZE_MAX};
    row = row_of(*state, &record, &buffer);
    assert_int_equal(row.kind, ROW_USAGE);
    row_free(&row);
    buffer_free(&buffer);
    record.u.usage.tenant.size++;
    assert_broken(*state, &record, "tenant has 129 bytes, at most 128 are allowed");
    record = usage_record();
    record.u.usage.hardware = str_from(text);
    assert_broken(*state, &record, "hardware has more than 256 bytes");
}

static void test_refused_by_the_database(void **state)
{
    struct record record = usage_record();
    struct buffer buffer = {0};
    struct row row = row_of(*state, &record, &buffer);

    row_refuse(&row, "violates \"check\"\n\xff");
    assert_int_equal(row.kind, ROW_BROKEN);
    assert_string_equal(row.reason, "violates \"check\"??");
    assert_null(row.record);
    buffer_free(&buffer);
}

/* PostgreSQL's binary format: big-endian, microseconds since 2000, text as it is. */
static void test_parameters(void **state)
{
    struct record record = usage_record();
    struct buffer buffer = {0};
    struct row row = row_of(*state, &record, &buffer);
    struct params params;

    assert_int_equal(statement_row(&params, "pelton.usage", &row), STATEMENT_USAGE);
    assert_int_equal(params.count, 21);
    assert_int_equal(params.sizes[0], 16);
    assert_memory_equal(params.values[0], "\1\2\3\0", 4);
    /* 1764504000123 ms = 946684800000 ms + 817819200123000 us */
    assert_memory_equal(params.values[1], "\x00\x02\xe7\xcd\x5e\xe9\xf0\x78", 8);
    assert_int_equal(params.sizes[2], 4);
    assert_memory_equal(params.values[2], "acme", 4);
    assert_memory_equal(params.values[7], "bulk", 4);
    assert_memory_equal(params.values[8], "expired", 7);
    assert_int_equal(params.sizes[9], 4);
    assert_memory_equal(params.values[9], "\0\0\0\2", 4);
    assert_memory_equal(params.values[10], "\0\0\0\0\0\0\0\7", 8);
    assert_memory_equal(params.values[18], "\0\0\0\0\xff\xff\xff\xff", 8);

    row_refuse(&row, "why");
    assert_int_equal(statement_row(&params, "pelton.usage", &row), STATEMENT_ERROR);
    assert_int_equal(params.count, 6);
    assert_memory_equal(params.values[0], "pelton.usage", 12);
    assert_memory_equal(params.values[1], "\0\0\0\3", 4);
    assert_memory_equal(params.values[2], "\0\0\0\0\0\0\0\x2a", 8);
    assert_int_equal(params.sizes[4], (int)buffer.size);
    buffer_free(&buffer);
}

static void test_empty_text_is_not_null(void **state)
{
    struct params params = {0};

    (void)state;
    params_text(&params, (struct str){NULL, 0});
    assert_non_null(params.values[0]);
    assert_int_equal(params.sizes[0], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_records),
        cmocka_unit_test(test_bytes_that_are_no_record),
        cmocka_unit_test(test_foreign_record),
        cmocka_unit_test(test_impossible_values),
        cmocka_unit_test(test_names_that_are_too_long),
        cmocka_unit_test(test_refused_by_the_database),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_empty_text_is_not_null),
    };

    return cmocka_run_group_tests(tests, open_codec, close_codec);
}
