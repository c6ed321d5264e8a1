/* SPDX-License-Identifier: Apache-2.0 */
#include "schemas/fingerprint.h"

#include <stdio.h>
#include <string.h>

#include "schemas/wire.h"

static void put(struct buffer *out, const char *text)
{
    size_t size = strlen(text);

    memcpy(buffer_extend(out, size), text, size);
}

static void put_full_name(struct buffer *out, avro_schema_t schema)
{
    const char *name_space = avro_schema_namespace(schema);

    put(out, "\"");
    if (name_space && *name_space) {
        put(out, name_space);
        put(out, ".");
    }
    put(out, avro_schema_name(schema));
    put(out, "\"");
}

static void put_record(avro_schema_t schema, struct buffer *out)
{
    put(out, ",\"type\":\"record\",\"fields\":[");
    for (size_t i = 0; i < avro_schema_record_size(schema); i++) {
        put(out, i ? ",{\"name\":\"" : "{\"name\":\"");
        put(out, avro_schema_record_field_name(schema, (int)i));
        put(out, "\",\"type\":");
        fingerprint_canonical(avro_schema_record_field_get_by_index(schema, (int)i), out);
        put(out, "}");
    }
    put(out, "]}");
}

static void put_named(avro_schema_t schema, struct buffer *out)
{
    char size[24];

    put(out, "{\"name\":");
    put_full_name(out, schema);
    if (is_avro_record(schema)) {
        put_record(schema, out);
    } else if (is_avro_enum(schema)) {
        put(out, ",\"type\":\"enum\",\"symbols\":[");
        for (int i = 0; i < avro_schema_enum_number_of_symbols(schema); i++) {
            put(out, i ? ",\"" : "\"");
            put(out, avro_schema_enum_get(schema, i));
            put(out, "\"");
        }
        put(out, "]}");
    } else {
        snprintf(size, sizeof size, "%lld", (long long)avro_schema_fixed_size(schema));
        put(out, ",\"type\":\"fixed\",\"size\":");
        put(out, size);
        put(out, "}");
    }
}

void fingerprint_canonical(avro_schema_t schema, struct buffer *out)
{
    static const char *const primitives[] = {
        [AVRO_STRING] = "\"string\"",   [AVRO_BYTES] = "\"bytes\"", [AVRO_INT32] = "\"int\"",
        [AVRO_INT64] = "\"long\"",      [AVRO_FLOAT] = "\"float\"", [AVRO_DOUBLE] = "\"double\"",
        [AVRO_BOOLEAN] = "\"boolean\"", [AVRO_NULL] = "\"null\"",
    };

    switch (avro_typeof(schema)) {
    case AVRO_RECORD:
    case AVRO_ENUM:
    case AVRO_FIXED:
        put_named(schema, out);
        break;
    case AVRO_LINK:
        put_full_name(out, avro_schema_link_target(schema));
        break;
    case AVRO_ARRAY:
        put(out, "{\"type\":\"array\",\"items\":");
        fingerprint_canonical(avro_schema_array_items(schema), out);
        put(out, "}");
        break;
    case AVRO_MAP:
        put(out, "{\"type\":\"map\",\"values\":");
        fingerprint_canonical(avro_schema_map_values(schema), out);
        put(out, "}");
        break;
    case AVRO_UNION:
        put(out, "[");
        for (size_t i = 0; i < avro_schema_union_size(schema); i++) {
            put(out, i ? "," : "");
            fingerprint_canonical(avro_schema_union_branch(schema, (int)i), out);
        }
        put(out, "]");
        break;
    default:
        put(out, primitives[avro_typeof(schema)]);
        break;
    }
}

uint64_t fingerprint_bytes(const void *data, size_t size)
{
    const uint64_t empty = 0xc15d213aa4d7a795u;
    const uint8_t *bytes = data;
    uint64_t value = empty;

    for (size_t i = 0; i < size; i++) {
        value ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            value = (value >> 1) ^ (empty & (0 - (value & 1)));
    }
    return value;
}

uint64_t fingerprint_schema(avro_schema_t schema)
{
    struct buffer canonical = {0};
    uint64_t value;

    fingerprint_canonical(schema, &canonical);
    value = fingerprint_bytes(canonical.data, canonical.size);
    buffer_free(&canonical);
    return value;
}
