/* SPDX-License-Identifier: Apache-2.0
 *
 * What other writers write: older and newer versions by hand, and every record cut at every byte,
 * with every bit flipped, with lengths that lie.
 */
#include "tests/unit/schemas_fixture.h"

#include <avro.h>
#include <jansson.h>

#include "schemas/fingerprint.h"

/* ---- evolution ---- */

/* Registers text and puts its frame before the body. */
static void frame(struct fixture *f, const char *schema_json, const void *body, size_t size,
                  struct buffer *message)
{
    avro_schema_t schema;
    uint64_t fingerprint;

    if (!codec_register(f->codec, schema_json, -1, &f->err))
        fail_msg("%s", f->err.message);
    assert_int_equal(avro_schema_from_json_length(schema_json, strlen(schema_json), &schema), 0);
    fingerprint = fingerprint_schema(schema);
    avro_schema_decref(schema);
    message->data = realloc(message->data, HEADER_SIZE + size);
    message->size = HEADER_SIZE + size;
    message->data[0] = 0xc3;
    message->data[1] = 0x01;
    for (size_t i = 0; i < 8; i++)
        message->data[2 + i] = (uint8_t)(fingerprint >> 8 * i);
    memcpy(message->data + HEADER_SIZE, body, size);
}

/* A newer writer has a field more, in front, nullable: we skip it. */
static void test_old_reader_new_writer(void **state)
{
    struct fixture *f = *state;
    struct buffer message = {0};

    for (int type = 0; type < RECORD_TYPE_COUNT; type++) {
        json_t *schema = json_loads(codec_schema_json((enum record_type)type), 0, NULL);
        json_t *fields = json_object_get(schema, "fields");
        uint8_t *body;
        char *text;
        json_array_insert_new(
            fields, 0,
            json_loads("{\"name\":\"newer\",\"type\":[\"null\",{\"type\":\"map\",\"values\":"
                       "{\"type\":\"array\",\"items\":\"double\"}}]}",
                       0, NULL));
        text = json_dumps(schema, 0);
        make_record(f, (enum record_type)type);
        assert_encoded(f);
        body = malloc(f->out.size + 20);
        /* branch 1; one entry, key "k", one block of one double; end, end */
        memcpy(body, "\x02\x02\x02k\x02\0\0\0\0\0\0\xf0\x3f\0\0", 15);
        memcpy(body + 15, f->out.data + HEADER_SIZE, f->out.size - HEADER_SIZE);
        frame(f, text, body, 15 + f->out.size - HEADER_SIZE, &message);
        assert_decodes_to_itself(f, message.data, message.size);
        free(body);
        free(text);
        json_decref(schema);
    }
    buffer_free(&message);
}

/* An older writer lacks our last field: it gets its default, which is zero and takes one byte. */
static void test_new_reader_old_writer(void **state)
{
    struct fixture *f = *state;
    struct buffer message = {0};
    int tried = 0;

    for (int type = 0; type < RECORD_TYPE_COUNT; type++) {
        const struct fields *fields = record_fields[type];
        const struct field *last = &fields->rows[fields->count - 1];
        json_t *schema, *rows;
        char *text;
        size_t member_size = last->kind == FIELD_ENUM || last->kind == FIELD_U32 ? 4
                             : last->kind == FIELD_I64                           ? 8
                                                                                 : 16;
        if (last->required || last->kind == FIELD_RECORD || last->kind == FIELD_RECORD_ARRAY)
            continue;
        schema = json_loads(codec_schema_json((enum record_type)type), 0, NULL);
        rows = json_object_get(schema, "fields");
        json_array_remove(rows, json_array_size(rows) - 1);
        text = json_dumps(schema, 0);
        make_record(f, (enum record_type)type);
        memset((char *)&f->record.u + last->offset, 0, member_size);
        assert_encoded(f);
        frame(f, text, f->out.data + HEADER_SIZE, f->out.size - HEADER_SIZE - 1, &message);
        assert_decodes_to_itself(f, message.data, message.size);
        free(text);
        json_decref(schema);
        tried++;
    }
    assert_true(tried >= 12);
    buffer_free(&message);
}

#define YIELD(fields)                                                                              \
    "{\"type\":\"record\",\"name\":\"Yield\",\"namespace\":\"pelton\",\"fields\":[" fields "]}"
#define UUIDS                                                                                      \
    "{\"name\":\"slot\",\"type\":\"int\"},{\"name\":\"incarnation\",\"type\":\"bytes\"},"          \
    "{\"name\":\"request_id\",\"type\":\"string\"}"
#define UUID_BYTES                                                                                 \
    "\x48"                                                                                         \
    "00000000-0000-0000-0000-000000000001"

/* int for long, bytes for string, other order, and a union where "null" stands second. */
static void test_promotion_and_order(void **state)
{
    struct fixture *f = *state;
    struct buffer message = {0};
    struct record *record;
    const char schema[] = YIELD("{\"name\":\"reason\",\"type\":[\"string\",\"null\"],"
                                "\"default\":null}," UUIDS);
    const char text[] = "\x00\x04hi\x0e" UUID_BYTES UUID_BYTES;
    const char null[] = "\x02\x0e" UUID_BYTES UUID_BYTES;

    frame(f, schema, text, sizeof text - 1, &message);
    assert_true(codec_decode(f->codec, message.data, message.size, &record, &f->err));
    assert_int_equal(record->u.yield.slot, 7);
    assert_int_equal(record->u.yield.request_id.bytes[15], 1);
    assert_true(str_equal(record->u.yield.reason, str_from("hi")));
    assert_int_equal(record->u.yield.attempt, 0);
    record_free(record);
    /* null is what a missing field is: our default. A writer's own default is never looked at. */
    frame(f, schema, null, sizeof null - 1, &message);
    assert_true(codec_decode(f->codec, message.data, message.size, &record, &f->err));
    assert_int_equal(record->u.yield.reason.size, 0);
    record_free(record);
    buffer_free(&message);
}

/* Symbols match by name; one that we lack is refused, not mistaken for another. */
static void test_enum_by_name(void **state)
{
    struct fixture *f = *state;
    struct buffer message = {0};
    struct record *record;
    const char schema[] =
        "{\"type\":\"record\",\"name\":\"DoneMark\",\"namespace\":\"pelton\",\"fields\":["
        "{\"name\":\"request_id\",\"type\":\"string\"},"
        "{\"name\":\"body_hash\",\"type\":{\"type\":\"fixed\",\"name\":\"H\",\"size\":8}},"
        "{\"name\":\"status\",\"type\":{\"type\":\"enum\",\"name\":\"S\",\"symbols\":"
        "[\"CANCELLED\",\"PAUSED\",\"COMPLETED\"]}}]}";
    char body[] = UUID_BYTES "12345678\x00";
    size_t size = sizeof body - 1;

    frame(f, schema, body, size, &message);
    assert_true(codec_decode(f->codec, message.data, message.size, &record, &f->err));
    assert_int_equal(record->u.done_mark.status, RESULT_CANCELLED);
    record_free(record);
    message.data[message.size - 1] = 4;
    assert_true(codec_decode(f->codec, message.data, message.size, &record, &f->err));
    assert_int_equal(record->u.done_mark.status, RESULT_COMPLETED);
    record_free(record);
    message.data[message.size - 1] = 2;
    assert_false(codec_decode(f->codec, message.data, message.size, &record, &f->err));
    assert_non_null(strstr(f->err.message, "field status: an enum symbol that this version"));
    message.data[message.size - 1] = 6;
    assert_false(codec_decode(f->codec, message.data, message.size, &record, &f->err));
    buffer_free(&message);
}

static void test_schemas_refused(void **state)
{
    static const struct {
        const char *schema;
        const char *message;
    } cases[] = {
        {"\"long\"", "none of pelton's records"},
        {"{", "not an Avro schema"},
        {"{\"type\":\"record\",\"name\":\"Other\",\"namespace\":\"pelton\",\"fields\":[]}",
         "none of pelton's records"},
        {"{\"type\":\"record\",\"name\":\"Yield\",\"namespace\":\"else\",\"fields\":[]}",
         "none of pelton's records"},
        {YIELD("{\"name\":\"slot\",\"type\":\"int\"}"), "have no default"},
        {YIELD(UUIDS ",{\"name\":\"attempt\",\"type\":\"string\"}"), "type of attempt"},
        {YIELD(UUIDS ",{\"name\":\"reason\",\"type\":[\"null\",\"int\"]}"), "no branch"},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_false(codec_register(f->codec, cases[i].schema, -1, &f->err));
        if (!strstr(f->err.message, cases[i].message))
            fail_msg("%s: %s", cases[i].schema, f->err.message);
    }
}

/* ---- hostile bytes ---- */

static void test_cut_anywhere(void **state)
{
    struct fixture *f = *state;
    struct record *record;

    for (int type = 0; type < RECORD_TYPE_COUNT; type++) {
        make_record(f, (enum record_type)type);
        assert_encoded(f);
        for (size_t size = 0; size < f->out.size; size++) {
            /* A copy of exactly this size, so that the sanitizer sees a read beyond it. */
            uint8_t *cut = malloc(size + 1);
            memcpy(cut, f->out.data, size);
            cut = realloc(cut, size ? size : 1);
            assert_false(codec_decode(f->codec, cut, size, &record, &f->err));
            assert_int_equal(f->err.kind, ERR_REJECT);
            free(cut);
        }
    }
}

static void test_flipped_bits(void **state)
{
    struct fixture *f = *state;
    struct record *record;
    size_t refused = 0;

    for (int type = 0; type < RECORD_TYPE_COUNT; type++) {
        make_record(f, (enum record_type)type);
        assert_encoded(f);
        for (size_t bit = 0; bit < 8 * f->out.size; bit++) {
            f->out.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
            if (codec_decode(f->codec, f->out.data, f->out.size, &record, &f->err)) {
                struct buffer again = {0};
                assert_true(codec_encode(f->codec, record, &again, &f->err));
                buffer_free(&again);
                record_free(record);
            } else {
                refused++;
            }
            f->out.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
    }
    assert_true(refused > 1000);
}

static void assert_refused(struct fixture *f, const char *schema, const void *body, size_t size,
                           const char *why)
{
    struct buffer message = {0};
    struct record *record;

    frame(f, schema, body, size, &message);
    assert_false(codec_decode(f->codec, message.data, message.size, &record, &f->err));
    assert_int_equal(f->err.kind, ERR_REJECT);
    if (!strstr(f->err.message, why))
        fail_msg("%s", f->err.message);
    buffer_free(&message);
}

static void test_hostile_lengths(void **state)
{
    struct fixture *f = *state;
    const char nulls[] =
        YIELD("{\"name\":\"x\",\"type\":{\"type\":\"array\",\"items\":\"null\"}}," UUIDS);
    const char longs[] =
        YIELD("{\"name\":\"x\",\"type\":{\"type\":\"array\",\"items\":\"long\"}}," UUIDS);
    const char bytes[] = YIELD("{\"name\":\"x\",\"type\":\"bytes\"}," UUIDS);
    const char tree[] =
        YIELD("{\"name\":\"x\",\"type\":{\"type\":\"record\",\"name\":\"T\",\"fields\":["
              "{\"name\":\"next\",\"type\":[\"null\",\"T\"]}]}}," UUIDS);
    uint8_t deep[5000];

    assert_refused(f, nulls, "\xfe\xff\xff\x0f\0", 5, "more items than bytes"); /* 16 million */
    assert_refused(f, nulls, "\x04\0\0\0\0", 5, "take no bytes");
    assert_refused(f, longs, "\xfe\xff\xff\xff\x0f\1", 6, "more items than bytes");
    assert_refused(f, longs, "\x01\xfe\xff\xff\x0f\2\0", 7, "beyond the end"); /* block size */
    assert_refused(f, longs, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\0", 11, "broken count");
    assert_refused(f, bytes, "\xfe\xff\xff\xff\x0f\1", 6, "beyond the end");
    assert_refused(f, bytes, "\x01\0", 2, "beyond the end"); /* length -1 */
    assert_refused(f, bytes, "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02", 10, "more than 64 bits");
    memset(deep, 2, sizeof deep);
    assert_refused(f, tree, deep, sizeof deep, "nested too deeply");
}

static void test_values_refused(void **state)
{
    struct fixture *f = *state;
    const char schema[] = YIELD(UUIDS ",{\"name\":\"attempt\",\"type\":\"long\"}");

    assert_refused(f, schema, "\x02" UUID_BYTES UUID_BYTES "\x01", 76, "attempt: a number out of");
    assert_refused(f, schema, "\x02" UUID_BYTES UUID_BYTES "\x02\x00", 77, "1 bytes are left over");
    assert_refused(f, schema, "\x02\x06xyz", 5, "incarnation: text that is no UUID");
    assert_refused(f, YIELD(UUIDS ",{\"name\":\"reason\",\"type\":\"string\"}"),
                   "\x02" UUID_BYTES UUID_BYTES "\x02\x80", 77, "reason: text that is no UTF-8");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_old_reader_new_writer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_new_reader_old_writer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_promotion_and_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_enum_by_name, setup, teardown),
        cmocka_unit_test_setup_teardown(test_schemas_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cut_anywhere, setup, teardown),
        cmocka_unit_test_setup_teardown(test_flipped_bits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hostile_lengths, setup, teardown),
        cmocka_unit_test_setup_teardown(test_values_refused, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
