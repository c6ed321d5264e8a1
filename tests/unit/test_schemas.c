/* SPDX-License-Identifier: Apache-2.0
 *
 * Every record by its own table: filled with extreme values, round trip, against avro-c's reader
 * and writer, cut at every byte, every bit flipped. Evolution and framing by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <avro.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/arena.h"
#include "schemas/codec.h"
#include "schemas/fields.h"
#include "schemas/fingerprint.h"

enum { HEADER_SIZE = 10 }; /* C3 01 and the fingerprint */

struct fixture {
    struct codec *codec;
    struct arena arena;
    struct buffer out;
    struct record record;
    struct err err;
    uint32_t random;
};

static int setup(void **state)
{
    static struct fixture f;

    f = (struct fixture){.random = 7};
    if (!codec_open(&f.codec, &f.err)) {
        print_error("%s\n", f.err.message);
        return -1;
    }
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    codec_close(f->codec);
    arena_free(&f->arena);
    buffer_free(&f->out);
    return 0;
}

static uint32_t draw(struct fixture *f, uint32_t below)
{
    f->random = f->random * 1664525u + 1013904223u;
    return (f->random >> 8) % below;
}

/* ---- records of all types, by their tables ---- */

static int64_t extreme(struct fixture *f, int64_t min, int64_t max)
{
    const int64_t values[] = {min, max, 0, 63, 64, min < 0 ? -64 : 127, min < 0 ? -65 : 128};

    return values[draw(f, sizeof values / sizeof *values)];
}

static void fill(struct fixture *f, const struct fields *fields, char *to);

static void fill_array(struct fixture *f, const struct field *field, char *to)
{
    size_t count = draw(f, 4);
    size_t item_size = field->kind == FIELD_RECORD_ARRAY ? field->record->size : 4;
    char *items = count ? arena_zalloc(&f->arena, count, item_size) : NULL;

    for (size_t i = 0; i < count; i++) {
        void *item = items + i * item_size;
        if (field->kind == FIELD_I32_ARRAY)
            *(int32_t *)item = (int32_t)extreme(f, INT32_MIN, INT32_MAX);
        else if (field->kind == FIELD_F32_ARRAY)
            *(float *)item = draw(f, 2) ? 3.4e38f : -1.5e-45f;
        else
            fill(f, field->record, item);
    }
    memcpy(to + field->offset, &items, sizeof items);
    if (field->kind == FIELD_I32_ARRAY)
        ((struct i32_array *)(void *)(to + field->offset))->count = count;
    else
        memcpy(to + field->count_offset, &count, sizeof count);
}

static void fill_field(struct fixture *f, const struct field *field, char *to)
{
    static const char *const texts[] = {"", "a", "zw\xc3\xb6lf", "\xf0\x9f\x98\x8a",
                                        "quote \" and \\ and \n and tab"};
    void *member = to + field->offset;
    unsigned symbols = 0;

    switch (field->kind) {
    case FIELD_STR:
        *(struct str *)member = str_from(texts[draw(f, 5)]);
        break;
    case FIELD_UUID:
    case FIELD_FIXED:
        for (size_t i = 0; i < (field->kind == FIELD_UUID ? 16 : field->size); i++)
            ((uint8_t *)member)[i] = (uint8_t)draw(f, 256);
        break;
    case FIELD_BOOL:
        *(bool *)member = draw(f, 2);
        break;
    case FIELD_I32:
        *(int32_t *)member = (int32_t)extreme(f, INT32_MIN, INT32_MAX);
        break;
    case FIELD_U32:
        *(uint32_t *)member = (uint32_t)extreme(f, 0, UINT32_MAX);
        break;
    case FIELD_I64:
        *(int64_t *)member = extreme(f, INT64_MIN, INT64_MAX);
        break;
    case FIELD_U64:
        *(uint64_t *)member = (uint64_t)extreme(f, 0, INT64_MAX);
        break;
    case FIELD_F64:
        *(double *)member = draw(f, 2) ? 1.7e308 : -4.9e-324;
        break;
    case FIELD_ENUM:
        while (field->symbols[symbols])
            symbols++;
        *(unsigned *)member = draw(f, symbols);
        break;
    case FIELD_RECORD:
        fill(f, field->record, member);
        break;
    default:
        fill_array(f, field, to);
    }
}

static void fill(struct fixture *f, const struct fields *fields, char *to)
{
    for (size_t i = 0; i < fields->count; i++)
        fill_field(f, &fields->rows[i], to);
}

static void make_record(struct fixture *f, enum record_type type)
{
    memset(&f->record, 0, sizeof f->record);
    f->record.type = type;
    fill(f, record_fields[type], (char *)&f->record.u);
}

static void assert_encoded(struct fixture *f)
{
    if (!codec_encode(f->codec, &f->record, &f->out, &f->err))
        fail_msg("%s", f->err.message);
}

/* Encoding is a function of the value, so equal bytes mean equal records. */
static void assert_decodes_to_itself(struct fixture *f, const void *data, size_t size)
{
    struct record *record;
    struct buffer again = {0};

    if (!codec_decode(f->codec, data, size, &record, &f->err))
        fail_msg("%s", f->err.message);
    assert_int_equal(record->type, f->record.type);
    assert_true(codec_encode(f->codec, record, &again, &f->err));
    assert_int_equal(again.size, f->out.size);
    assert_memory_equal(again.data, f->out.data, again.size);
    record_free(record);
    buffer_free(&again);
}

static void test_round_trip(void **state)
{
    struct fixture *f = *state;

    for (int type = 0; type < RECORD_TYPE_COUNT; type++) {
        for (int i = 0; i < 200; i++) {
            make_record(f, (enum record_type)type);
            assert_encoded(f);
            assert_decodes_to_itself(f, f->out.data, f->out.size);
        }
        arena_reset(&f->arena);
    }
}

/* Field by field for one record with everything in it, in case encode and decode share a mistake.
 */
static void test_round_trip_by_hand(void **state)
{
    struct fixture *f = *state;
    const int32_t ids[] = {1, -2, INT32_MAX};
    struct record *record;

    f->record =
        (struct record){.type = RECORD_DONE,
                        .u.done = {.slot = UINT32_MAX,
                                   .incarnation = {{1, 2, 3}},
                                   .attempt = 3,
                                   .text = str_from("fertig"),
                                   .ids = {ids, 3},
                                   .finish_reason = FINISH_LENGTH,
                                   .usage = {.prompt_tokens_cached = 5, .run_us = INT64_MIN}}};
    assert_encoded(f);
    assert_true(codec_decode(f->codec, f->out.data, f->out.size, &record, &f->err));
    assert_int_equal(record->type, RECORD_DONE);
    assert_true(record->u.done.slot == UINT32_MAX);
    assert_int_equal(record->u.done.incarnation.bytes[2], 3);
    assert_int_equal(record->u.done.attempt, 3);
    assert_true(str_equal(record->u.done.text, str_from("fertig")));
    assert_int_equal(record->u.done.ids.count, 3);
    assert_int_equal(record->u.done.ids.items[1], -2);
    assert_int_equal(record->u.done.finish_reason, FINISH_LENGTH);
    assert_int_equal(record->u.done.usage.prompt_tokens_cached, 5);
    assert_true(record->u.done.usage.run_us == INT64_MIN);
    record_free(record);
}

/* ---- against avro-c ---- */

static void test_bytes_are_avro(void **state)
{
    struct fixture *f = *state;

    for (int type = 0; type < RECORD_TYPE_COUNT; type++) {
        const char *json = codec_schema_json((enum record_type)type);
        avro_schema_t schema;
        avro_value_iface_t *class;
        avro_value_t value;
        assert_int_equal(avro_schema_from_json_length(json, strlen(json), &schema), 0);
        class = avro_generic_class_from_schema(schema);
        avro_generic_value_new(class, &value);
        for (int i = 0; i < 20; i++) {
            char again[16384];
            const char *body;
            avro_reader_t reader;
            avro_writer_t writer = avro_writer_memory(again, sizeof again);
            make_record(f, (enum record_type)type);
            assert_encoded(f);
            body = (const char *)f->out.data + HEADER_SIZE;
            reader = avro_reader_memory(body, (int64_t)(f->out.size - HEADER_SIZE));
            avro_value_reset(&value);
            assert_int_equal(avro_value_read(reader, &value), 0);
            assert_int_equal(avro_value_write(writer, &value), 0);
            assert_int_equal(avro_writer_tell(writer), f->out.size - HEADER_SIZE);
            assert_memory_equal(again, body, f->out.size - HEADER_SIZE);
            avro_reader_free(reader);
            avro_writer_free(writer);
        }
        avro_value_decref(&value);
        avro_value_iface_decref(class);
        avro_schema_decref(schema);
    }
}

/* ---- tables against .avsc ---- */

static void assert_zero_default(const json_t *field)
{
    const json_t *value = json_object_get(field, "default");
    const json_t *type = json_object_get(field, "type");
    const json_t *symbols = json_object_get(type, "symbols");

    if (json_is_string(value) && json_string_length(value) > 0 && symbols)
        assert_true(json_equal(value, json_array_get(symbols, 0)));
    else if (json_is_string(value) && json_string_length(value) > 0)
        assert_true(json_is_string(type) && strncmp(json_string_value(type), "pelton.", 7) == 0);
    else
        assert_true(json_is_object(value) || json_is_false(value) ||
                    (json_is_number(value) && json_number_value(value) == 0) ||
                    (json_is_array(value) && json_array_size(value) == 0) || json_is_string(value));
}

static void check_record(const json_t *schema, const struct fields *fields)
{
    const json_t *rows = json_object_get(schema, "fields");

    assert_string_equal(json_string_value(json_object_get(schema, "name")), fields->name);
    assert_true(json_string_length(json_object_get(schema, "doc")) > 0);
    assert_int_equal(json_array_size(rows), fields->count);
    for (size_t i = 0; i < fields->count; i++) {
        const json_t *row = json_array_get(rows, i);
        const json_t *type = json_object_get(row, "type");
        const struct field *field = &fields->rows[i];
        assert_string_equal(json_string_value(json_object_get(row, "name")), field->name);
        assert_true(json_string_length(json_object_get(row, "doc")) > 0);
        assert_true(field->required == !json_object_get(row, "default"));
        if (!field->required)
            assert_zero_default(row);
        if (field->kind == FIELD_UUID)
            assert_string_equal(json_string_value(json_object_get(type, "logicalType")), "uuid");
        if (field->kind == FIELD_I64 && strstr(field->name, "_ms"))
            assert_string_equal(json_string_value(json_object_get(type, "logicalType")),
                                "timestamp-millis");
        if (json_object_get(type, "fields"))
            check_record(type, field->record);
    }
}

static void test_tables_match_schemas(void **state)
{
    (void)state;
    for (int type = 0; type < RECORD_TYPE_COUNT; type++) {
        json_t *schema = json_loads(codec_schema_json((enum record_type)type), 0, NULL);
        assert_non_null(schema);
        check_record(schema, record_fields[type]);
        json_decref(schema);
    }
}

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

static void test_encode_refuses(void **state)
{
    struct fixture *f = *state;
    char *large = calloc(CODEC_MESSAGE_SIZE_MAX + 1, 1);

    f->record = (struct record){.type = RECORD_YIELD, .u.yield.reason = str_from("\xff")};
    assert_false(codec_encode(f->codec, &f->record, &f->out, &f->err));
    assert_non_null(strstr(f->err.message, "reason: byte 0 is not UTF-8"));
    f->record.u.yield.reason = (struct str){large, CODEC_MESSAGE_SIZE_MAX};
    assert_false(codec_encode(f->codec, &f->record, &f->out, &f->err));
    f->record.u.yield.reason.size = CODEC_MESSAGE_SIZE_MAX - 200;
    assert_true(codec_encode(f->codec, &f->record, &f->out, &f->err));
    f->record = (struct record){.type = RECORD_BATCH, .u.batch.total = UINT64_MAX};
    assert_false(codec_encode(f->codec, &f->record, &f->out, &f->err));
    f->record = (struct record){.type = RECORD_DONE_MARK, .u.done_mark.status = 17};
    assert_false(codec_encode(f->codec, &f->record, &f->out, &f->err));
    free(large);
}

/* A record that nobody can read is refused by itself; the next one is read. */
static void test_poison_then_good(void **state)
{
    struct fixture *f = *state;
    struct record *record;

    assert_false(codec_decode(f->codec, "not a record at all", 19, &record, &f->err));
    assert_non_null(strstr(f->err.message, "neither Avro framing"));
    assert_false(codec_decode(f->codec, NULL, 0, &record, &f->err));
    assert_false(codec_decode(f->codec,
                              "\xc3\x01"
                              "12345678xyz",
                              13, &record, &f->err));
    assert_non_null(strstr(f->err.message, "unknown schema fingerprint 3837363534333231"));
    make_record(f, RECORD_TICK);
    assert_encoded(f);
    assert_decodes_to_itself(f, f->out.data, f->out.size);
}

/* ---- framing, names, keys ---- */

static void test_confluent_framing(void **state)
{
    struct fixture *f = *state;
    struct record *record;

    make_record(f, RECORD_CANCEL);
    assert_true(codec_write_id(f->codec, RECORD_CANCEL, 0x01020304, &f->err));
    assert_encoded(f);
    assert_memory_equal(f->out.data, "\0\1\2\3\4", 5);
    assert_decodes_to_itself(f, f->out.data, f->out.size);
    f->out.data[4] = 5;
    assert_false(codec_decode(f->codec, f->out.data, f->out.size, &record, &f->err));
    assert_non_null(strstr(f->err.message, "unknown schema id"));
    assert_false(codec_register(f->codec, codec_schema_json(RECORD_YIELD), 0x01020304, &f->err));
    assert_non_null(strstr(f->err.message, "taken by another schema"));
}

/* The first from Avro's own test data, the others as fastavro computes them. */
static void test_fingerprints(void **state)
{
    struct fixture *f = *state;

    assert_true(fingerprint_bytes("\"int\"", 5) == 0x7275d51a3f395c8fu);
    make_record(f, RECORD_REQUEST);
    assert_encoded(f);
    assert_memory_equal(f->out.data,
                        "\xc3\x01\x0e"
                        "\xf2"
                        "\x8e"
                        "\x4a"
                        "\x43"
                        "\xb1"
                        "\xe6"
                        "\xe6",
                        10);
    make_record(f, RECORD_TICK);
    assert_encoded(f);
    assert_memory_equal(f->out.data,
                        "\xc3\x01\xf9"
                        "\xa7"
                        "\x9b"
                        "\x94"
                        "\x1a"
                        "\xb9"
                        "\x5a"
                        "\x32",
                        10);
}

static void test_ids_and_keys(void **state)
{
    struct request_id a, b;
    struct record record = {.type = RECORD_DONE_MARK};
    char text[REQUEST_ID_TEXT_SIZE + 1], key[STATE_KEY_SIZE_MAX];
    size_t size;

    (void)state;
    /* Without the length prefixes these two would be the same bytes. */
    request_id_make(str_from("ab"), str_from("c"), str_from("d"), &a);
    request_id_make(str_from("a"), str_from("bc"), str_from("d"), &b);
    assert_false(request_id_equal(&a, &b));
    request_id_make(str_from("ab"), str_from("c"), str_from("d"), &b);
    assert_true(request_id_equal(&a, &b));
    request_id_format(&a, text);
    assert_string_equal(text, "673e288f-c7bc-5e5a-827a-4f045f7bcb71");
    assert_true(request_id_parse(str_from(text), &b));
    assert_true(request_id_equal(&a, &b));
    text[8] = 'x';
    assert_false(request_id_parse(str_from(text), &b));
    record.u.done_mark.request_id = a;
    size = state_key(&record, key);
    assert_int_equal(size, 44);
    assert_memory_equal(key, "request/", 8);
    record = (struct record){.type = RECORD_BATCH, .u.batch.batch_id = str_from("b1")};
    size = state_key(&record, key);
    assert_true(str_equal((struct str){key, size}, str_from("batch/b1")));
    record = (struct record){.type = RECORD_TICK};
    size = state_key(&record, key);
    assert_true(str_equal((struct str){key, size}, str_from("tick")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
        cmocka_unit_test_setup_teardown(test_round_trip_by_hand, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bytes_are_avro, setup, teardown),
        cmocka_unit_test(test_tables_match_schemas),
        cmocka_unit_test_setup_teardown(test_old_reader_new_writer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_new_reader_old_writer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_promotion_and_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_enum_by_name, setup, teardown),
        cmocka_unit_test_setup_teardown(test_schemas_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cut_anywhere, setup, teardown),
        cmocka_unit_test_setup_teardown(test_flipped_bits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hostile_lengths, setup, teardown),
        cmocka_unit_test_setup_teardown(test_values_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_encode_refuses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_poison_then_good, setup, teardown),
        cmocka_unit_test_setup_teardown(test_confluent_framing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fingerprints, setup, teardown),
        cmocka_unit_test(test_ids_and_keys),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
