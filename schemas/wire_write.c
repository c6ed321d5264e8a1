/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "common/utf8.h"
#include "schemas/wire.h"

enum { VARINT_SIZE_MAX = 10 };

uint8_t *buffer_extend(struct buffer *buffer, size_t size)
{
    uint8_t *start;

    if (buffer->capacity - buffer->size < size) {
        size_t capacity = buffer->capacity ? buffer->capacity * 2 : 512;
        while (capacity - buffer->size < size)
            capacity *= 2;
        buffer->data = realloc(buffer->data, capacity);
        CHECK(buffer->data);
        buffer->capacity = capacity;
    }
    start = buffer->data + buffer->size;
    buffer->size += size;
    return start;
}

static void write_bytes(struct buffer *out, const void *data, size_t size)
{
    uint8_t *to = buffer_extend(out, size);

    if (size > 0)
        memcpy(to, data, size);
}

static void write_long(struct buffer *out, int64_t value)
{
    uint64_t zigzag = ((uint64_t)value << 1) ^ (value < 0 ? UINT64_MAX : 0);
    uint8_t *to = buffer_extend(out, VARINT_SIZE_MAX);
    size_t size = 0;

    while (zigzag >= 0x80) {
        to[size++] = (uint8_t)(zigzag | 0x80);
        zigzag >>= 7;
    }
    to[size++] = (uint8_t)zigzag;
    out->size -= VARINT_SIZE_MAX - size;
}

static void write_float(struct buffer *out, float value)
{
    uint32_t bits;
    uint8_t *to = buffer_extend(out, sizeof bits);

    memcpy(&bits, &value, sizeof bits);
    for (size_t i = 0; i < sizeof bits; i++)
        to[i] = (uint8_t)(bits >> 8 * i);
}

static void write_double(struct buffer *out, double value)
{
    uint64_t bits;
    uint8_t *to = buffer_extend(out, sizeof bits);

    memcpy(&bits, &value, sizeof bits);
    for (size_t i = 0; i < sizeof bits; i++)
        to[i] = (uint8_t)(bits >> 8 * i);
}

static bool write_str(struct buffer *out, const struct field *field, const struct str *str,
                      struct err *err)
{
    if (str->size > CODEC_MESSAGE_SIZE_MAX)
        return err_set(err, ERR_REJECT, "field %s has %zu bytes, a message at most %d", field->name,
                       str->size, CODEC_MESSAGE_SIZE_MAX);
    if (!utf8_valid(str->data, str->size))
        return err_set(err, ERR_REJECT, "field %s: byte %zu is not UTF-8", field->name,
                       utf8_valid_size(str->data, str->size));
    write_long(out, (int64_t)str->size);
    write_bytes(out, str->data, str->size);
    return true;
}

static bool write_u64(struct buffer *out, const struct field *field, uint64_t value,
                      struct err *err)
{
    if (value > INT64_MAX)
        return err_set(err, ERR_REJECT, "field %s is beyond 2^63 - 1", field->name);
    write_long(out, (int64_t)value);
    return true;
}

static bool write_enum(struct buffer *out, const struct field *field, unsigned value,
                       struct err *err)
{
    unsigned count = 0;

    while (field->symbols[count])
        count++;
    if (value >= count)
        return err_set(err, ERR_REJECT, "field %s: there is no symbol %u", field->name, value);
    write_long(out, (int64_t)value);
    return true;
}

static bool write_array(struct buffer *out, const struct field *field, const char *from,
                        struct err *err)
{
    const void *items;
    size_t count;

    memcpy(&items, from + field->offset, sizeof items);
    if (field->kind == FIELD_I32_ARRAY)
        count = ((const struct i32_array *)(const void *)(from + field->offset))->count;
    else
        memcpy(&count, from + field->count_offset, sizeof count);
    if (count > CODEC_MESSAGE_SIZE_MAX)
        return err_set(err, ERR_REJECT, "field %s has %zu items", field->name, count);
    if (count > 0)
        write_long(out, (int64_t)count);
    for (size_t i = 0; i < count; i++) {
        if (field->kind == FIELD_I32_ARRAY)
            write_long(out, ((const int32_t *)items)[i]);
        else if (field->kind == FIELD_F32_ARRAY)
            write_float(out, ((const float *)items)[i]);
        else if (!wire_write(out, field->record, (const char *)items + i * field->record->size,
                             err))
            return false;
    }
    write_long(out, 0);
    return true;
}

static bool write_field(struct buffer *out, const struct field *field, const char *from,
                        struct err *err)
{
    /* Members are aligned; the detour over void says so to -Wcast-align. */
    const void *member = from + field->offset;
    char uuid[REQUEST_ID_TEXT_SIZE + 1];

    switch (field->kind) {
    case FIELD_STR:
        return write_str(out, field, member, err);
    case FIELD_UUID:
        request_id_format(member, uuid);
        write_long(out, REQUEST_ID_TEXT_SIZE);
        write_bytes(out, uuid, REQUEST_ID_TEXT_SIZE);
        return true;
    case FIELD_FIXED:
        write_bytes(out, member, field->size);
        return true;
    case FIELD_BOOL:
        *buffer_extend(out, 1) = *(const bool *)member;
        return true;
    case FIELD_I32:
        write_long(out, *(const int32_t *)member);
        return true;
    case FIELD_U32:
        write_long(out, *(const uint32_t *)member);
        return true;
    case FIELD_I64:
        write_long(out, *(const int64_t *)member);
        return true;
    case FIELD_U64:
        return write_u64(out, field, *(const uint64_t *)member, err);
    case FIELD_F32:
        write_float(out, *(const float *)member);
        return true;
    case FIELD_F64:
        write_double(out, *(const double *)member);
        return true;
    case FIELD_ENUM:
        return write_enum(out, field, *(const unsigned *)member, err);
    case FIELD_RECORD:
        return wire_write(out, field->record, member, err);
    case FIELD_I32_ARRAY:
    case FIELD_F32_ARRAY:
    case FIELD_RECORD_ARRAY:
        return write_array(out, field, from, err);
    }
    return false;
}

bool wire_write(struct buffer *out, const struct fields *fields, const void *from, struct err *err)
{
    for (size_t i = 0; i < fields->count; i++)
        if (!write_field(out, &fields->rows[i], from, err))
            return false;
    if (out->size > CODEC_MESSAGE_SIZE_MAX)
        return err_set(err, ERR_REJECT, "%s takes %zu bytes, a message at most %d", fields->name,
                       out->size, CODEC_MESSAGE_SIZE_MAX);
    return true;
}
