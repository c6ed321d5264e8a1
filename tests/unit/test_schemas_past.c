/* SPDX-License-Identifier: Apache-2.0
 *
 * Whatever an earlier version wrote is read: every published fingerprint is known, and messages
 * that avro-c writes by every past schema keep their values, today's defaults beside them.
 */
#include "tests/unit/schemas_fixture.h"

#include <avro.h>
#include <jansson.h>
#include <stdio.h>

#include "schemas/avsc.h"
#include "schemas/fingerprint.h"

static avro_schema_t parse(const char *text)
{
    avro_schema_t schema;

    if (avro_schema_from_json_length(text, strlen(text), &schema) != 0)
        fail_msg("%s", avro_strerror());
    return schema;
}

static uint64_t fingerprint_text(const char *text)
{
    avro_schema_t schema = parse(text);
    uint64_t fingerprint = fingerprint_schema(schema);

    avro_schema_decref(schema);
    return fingerprint;
}

static void put_header(uint8_t header[HEADER_SIZE], uint64_t fingerprint)
{
    header[0] = 0xc3;
    header[1] = 0x01;
    for (size_t i = 0; i < 8; i++)
        header[2 + i] = (uint8_t)(fingerprint >> 8 * i);
}

/* ---- the list ---- */

enum { LIST_MAX = 400 };
static const char list_path[] = "schemas/past/fingerprints.txt";

static size_t read_list(uint64_t list[LIST_MAX])
{
    FILE *file = fopen(list_path, "r");
    unsigned long long value;
    size_t count = 0;

    assert_non_null(file);
    while (fscanf(file, "%*s %llx", &value) == 1) {
        assert_true(count < LIST_MAX);
        list[count++] = value;
    }
    assert_true(feof(file));
    fclose(file);
    return count;
}

static bool is_listed(uint64_t fingerprint)
{
    uint64_t list[LIST_MAX];
    size_t count = read_list(list);

    for (size_t i = 0; i < count; i++)
        if (list[i] == fingerprint)
            return true;
    return false;
}

/* A changed .avsc without its predecessor in schemas/past fails here. */
static void test_published_are_known(void **state)
{
    struct fixture *f = *state;
    uint64_t list[LIST_MAX];
    size_t count = read_list(list);
    struct record *record;

    assert_true(count >= 28); /* so many on the day when the list was begun */
    for (size_t i = 0; i < count; i++) {
        uint8_t header[HEADER_SIZE];
        put_header(header, list[i]);
        assert_false(codec_decode(f->codec, header, sizeof header, &record, &f->err));
        if (strstr(f->err.message, "unknown schema"))
            fail_msg("%s: published, but not kept in schemas/past (see its README.md)",
                     f->err.message);
    }
}

static void test_known_are_published(void **state)
{
    (void)state;
    for (int type = 0; type < RECORD_TYPE_COUNT; type++) {
        uint64_t fingerprint = fingerprint_text(avsc_texts[type]);
        if (!is_listed(fingerprint))
            fail_msg("%s changed: see schemas/past/README.md, then add to %s:\n%s %016llx",
                     record_type_name((enum record_type)type), list_path,
                     record_type_name((enum record_type)type), (unsigned long long)fingerprint);
    }
    for (size_t i = 0; avsc_past_texts[i]; i++) {
        uint64_t fingerprint = fingerprint_text(avsc_past_texts[i]);
        assert_true(is_listed(fingerprint));
        for (int type = 0; type < RECORD_TYPE_COUNT; type++)
            assert_true(fingerprint != fingerprint_text(avsc_texts[type]));
    }
}

/* ---- the bytes ---- */

static void set_values(struct fixture *f, avro_value_t *value);

static void set_record(struct fixture *f, avro_value_t *value)
{
    size_t count;

    avro_value_get_size(value, &count);
    for (size_t i = 0; i < count; i++) {
        avro_value_t field;
        assert_int_equal(avro_value_get_by_index(value, i, &field, NULL), 0);
        set_values(f, &field);
    }
}

/* No zeros, so that a value cannot be mistaken for a default; each string is a UUID. */
static void set_values(struct fixture *f, avro_value_t *value)
{
    char text[REQUEST_ID_TEXT_SIZE + 1];
    uint8_t bytes[64];
    int number = 1 + (int)draw(f, 1000);

    switch (avro_value_get_type(value)) {
    case AVRO_RECORD:
        set_record(f, value);
        break;
    case AVRO_ARRAY:
        for (int i = 0; i < 2; i++) {
            avro_value_t item;
            assert_int_equal(avro_value_append(value, &item, NULL), 0);
            set_values(f, &item);
        }
        break;
    case AVRO_STRING:
        snprintf(text, sizeof text, "01234567-89ab-cdef-0000-%012d", number);
        assert_int_equal(avro_value_set_string(value, text), 0);
        break;
    case AVRO_FIXED:
        memset(bytes, number % 127, sizeof bytes);
        assert_int_equal(
            avro_value_set_fixed(value, bytes,
                                 (size_t)avro_schema_fixed_size(avro_value_get_schema(value))),
            0);
        break;
    case AVRO_ENUM:
        assert_int_equal(avro_value_set_enum(value, 1), 0);
        break;
    case AVRO_BOOLEAN:
        assert_int_equal(avro_value_set_boolean(value, 1), 0);
        break;
    case AVRO_INT32:
        assert_int_equal(avro_value_set_int(value, number), 0);
        break;
    case AVRO_INT64:
        assert_int_equal(avro_value_set_long(value, number), 0);
        break;
    case AVRO_FLOAT:
        assert_int_equal(avro_value_set_float(value, (float)number / 4), 0);
        break;
    default:
        assert_int_equal(avro_value_get_type(value), AVRO_DOUBLE);
        assert_int_equal(avro_value_set_double(value, number / 4.0), 0);
    }
}

static json_t *value_to_json(const avro_value_t *value)
{
    char *text;
    json_t *json;

    assert_int_equal(avro_value_to_json(value, 1, &text), 0);
    json = json_loads(text, 0, NULL);
    assert_non_null(json);
    free(text);
    return json;
}

static void assert_same(const json_t *a, const json_t *b, const char *where)
{
    bool same = json_is_number(a) && json_is_number(b)
                    ? json_number_value(a) - json_number_value(b) == 0
                    : json_equal(a, b);

    if (!same)
        fail_msg("%s: a value was lost on the way", where);
}

/* old and now are values of the type in today's schema; where old lacks a field, now has today's
 * default. */
static void compare(const json_t *type, const json_t *old, const json_t *now, const char *where)
{
    const json_t *fields = json_object_get(type, "fields");
    const json_t *items = json_object_get(type, "items");
    size_t i;
    const json_t *field, *item;

    if (items && json_is_object(items)) {
        assert_int_equal(json_array_size(old), json_array_size(now));
        json_array_foreach(old, i, item) compare(items, item, json_array_get(now, i), where);
    }
    if (!fields) {
        if (!json_is_object(items))
            assert_same(old, now, where);
        return;
    }
    json_array_foreach(fields, i, field)
    {
        const char *name = json_string_value(json_object_get(field, "name"));
        const json_t *was = json_object_get(old, name);
        const json_t *is = json_object_get(now, name);
        assert_non_null(is);
        if (was)
            compare(json_object_get(field, "type"), was, is, name);
        else
            assert_same(json_object_get(field, "default"), is, name);
    }
}

/* What codec made of a message, as avro-c reads it from the bytes that codec writes today. */
static json_t *read_today(struct fixture *f, const uint8_t *data, size_t size, json_t **schema)
{
    struct record *record;
    const char *text;
    avro_schema_t today;
    avro_value_iface_t *class;
    avro_value_t value;
    avro_reader_t reader;
    json_t *json;

    if (!codec_decode(f->codec, data, size, &record, &f->err))
        fail_msg("%s", f->err.message);
    assert_true(codec_encode(f->codec, record, &f->out, &f->err));
    text = codec_schema_json(record->type);
    *schema = json_loads(text, 0, NULL);
    today = parse(text);
    class = avro_generic_class_from_schema(today);
    avro_generic_value_new(class, &value);
    reader = avro_reader_memory((const char *)f->out.data + HEADER_SIZE,
                                (int64_t)(f->out.size - HEADER_SIZE));
    assert_int_equal(avro_value_read(reader, &value), 0);
    json = value_to_json(&value);
    avro_reader_free(reader);
    avro_value_decref(&value);
    avro_value_iface_decref(class);
    avro_schema_decref(today);
    record_free(record);
    return json;
}

static void test_past_bytes_are_read(void **state)
{
    struct fixture *f = *state;

    for (size_t i = 0; avsc_past_texts[i]; i++) {
        uint8_t message[8192];
        avro_schema_t past = parse(avsc_past_texts[i]);
        avro_value_iface_t *class = avro_generic_class_from_schema(past);
        avro_writer_t writer =
            avro_writer_memory((char *)message + HEADER_SIZE, sizeof message - HEADER_SIZE);
        avro_value_t value;
        json_t *old, *now, *schema;

        avro_generic_value_new(class, &value);
        set_values(f, &value);
        assert_int_equal(avro_value_write(writer, &value), 0);
        put_header(message, fingerprint_schema(past));
        old = value_to_json(&value);
        now = read_today(f, message, HEADER_SIZE + (size_t)avro_writer_tell(writer), &schema);
        compare(schema, old, now, "record");
        json_decref(old);
        json_decref(now);
        json_decref(schema);
        avro_writer_free(writer);
        avro_value_decref(&value);
        avro_value_iface_decref(class);
        avro_schema_decref(past);
    }
}

/* A renewal as the first version wrote it, byte by byte: epoch 3, incarnation ..07, heartbeat 5,
 * 64 sequences, and no word of micro-batches. */
static void test_past_by_hand(void **state)
{
    struct fixture *f = *state;
    const char message[] = "\xc3\x01\xd8\xc0\xe7\x79\x4e\x37\xf5\xe0"
                           "\x06"
                           "\x48"
                           "00000000-0000-0000-0000-000000000007"
                           "\x0a"
                           "\x80\x01";
    struct record *record;

    if (!codec_decode(f->codec, message, sizeof message - 1, &record, &f->err))
        fail_msg("%s", f->err.message);
    assert_int_equal(record->type, RECORD_LEASE_RENEWAL);
    assert_int_equal(record->u.lease_renewal.epoch, 3);
    assert_int_equal(record->u.lease_renewal.incarnation.bytes[15], 7);
    assert_int_equal(record->u.lease_renewal.heartbeat_seq, 5);
    assert_int_equal(record->u.lease_renewal.batch_size, 64);
    assert_int_equal(record->u.lease_renewal.micro_batch_size, 0);
    record_free(record);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_past_by_hand, setup, teardown),
        cmocka_unit_test_setup_teardown(test_published_are_known, setup, teardown),
        cmocka_unit_test(test_known_are_published),
        cmocka_unit_test_setup_teardown(test_past_bytes_are_read, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
