/* SPDX-License-Identifier: Apache-2.0
 *
 * Every record by its own table: filled with extreme values, round trip, against avro-c's reader
 * and writer. Framing, names and keys by hand.
 */
#include "tests/unit/schemas_fixture.h"

#include <avro.h>
#include <jansson.h>
#include <stdio.h>

#include "schemas/fingerprint.h"

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
                        "\xc3\x01\x24"
                        "\x59"
                        "\x99"
                        "\x60"
                        "\x2f"
                        "\xe0"
                        "\x3c"
                        "\x39",
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
    record = (struct record){.type = RECORD_BATCH_CLAIM, .u.batch_claim.claim = a};
    assert_int_equal(state_key(&record, key), 42);
    assert_memory_equal(key, "claim/", 6);
    record = (struct record){.type = RECORD_TICK};
    size = state_key(&record, key);
    assert_true(str_equal((struct str){key, size}, str_from("tick")));
}

static void assert_batch_key(const char *tenant, const char *batch_id, const char *batch_key,
                             const char *cancel_key)
{
    struct record record = {
        .type = RECORD_BATCH,
        .u.batch = {.tenant = str_from(tenant), .batch_id = str_from(batch_id)}};
    char key[STATE_KEY_SIZE_MAX];
    size_t size = state_key(&record, key);

    assert_true(str_equal((struct str){key, size}, str_from(batch_key)));
    record = (struct record){
        .type = RECORD_CANCEL_BATCH,
        .u.cancel_batch = {.tenant = str_from(tenant), .batch_id = str_from(batch_id)}};
    size = state_key(&record, key);
    assert_true(str_equal((struct str){key, size}, str_from(cancel_key)));
}

/* Tenant and id are both free text: whatever they are, two jobs have two keys. */
static void test_keys_of_batches(void **state)
{
    char tenant[TENANT_SIZE_MAX + 1], batch_id[BATCH_ID_SIZE_MAX + 1], key[STATE_KEY_SIZE_MAX];
    struct record record = {.type = RECORD_CANCEL_BATCH};

    (void)state;
    assert_batch_key("default", "b1", "batch/b1", "cancel/b1");
    assert_batch_key("acme", "b1", "tenant/4:acme/batch/b1", "tenant/4:acme/cancel/b1");
    assert_batch_key("acme/batch", "b1", "tenant/10:acme/batch/batch/b1",
                     "tenant/10:acme/batch/cancel/b1");
    assert_batch_key("acme", "batch/b1", "tenant/4:acme/batch/batch/b1",
                     "tenant/4:acme/cancel/batch/b1");
    assert_batch_key("", "", "tenant/0:/batch/", "tenant/0:/cancel/");
    memset(tenant, 't', TENANT_SIZE_MAX);
    memset(batch_id, 'b', BATCH_ID_SIZE_MAX);
    record.u.cancel_batch.tenant = (struct str){tenant, TENANT_SIZE_MAX};
    record.u.cancel_batch.batch_id = (struct str){batch_id, BATCH_ID_SIZE_MAX};
    assert_int_equal(state_key(&record, key), 11 + TENANT_SIZE_MAX + 8 + BATCH_ID_SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
        cmocka_unit_test_setup_teardown(test_round_trip_by_hand, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bytes_are_avro, setup, teardown),
        cmocka_unit_test(test_tables_match_schemas),
        cmocka_unit_test_setup_teardown(test_encode_refuses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_poison_then_good, setup, teardown),
        cmocka_unit_test_setup_teardown(test_confluent_framing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fingerprints, setup, teardown),
        cmocka_unit_test(test_ids_and_keys),
        cmocka_unit_test(test_keys_of_batches),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
