/* SPDX-License-Identifier: Apache-2.0
 *
 * schemas_fixture - a codec, and records of all types with extreme values, made by their tables.
 */
#ifndef TESTS_UNIT_SCHEMAS_FIXTURE_H
#define TESTS_UNIT_SCHEMAS_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "common/arena.h"
#include "schemas/codec.h"
#include "schemas/fields.h"

enum { HEADER_SIZE = 10 }; /* C3 01 and the fingerprint */

struct fixture {
    struct codec *codec;
    struct arena arena;
    struct buffer out;
    struct record record;
    struct err err;
    uint32_t random;
};

static inline int setup(void **state)
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

static inline int teardown(void **state)
{
    struct fixture *f = *state;

    codec_close(f->codec);
    arena_free(&f->arena);
    buffer_free(&f->out);
    return 0;
}

static inline uint32_t draw(struct fixture *f, uint32_t below)
{
    f->random = f->random * 1664525u + 1013904223u;
    return (f->random >> 8) % below;
}

/* ---- records of all types, by their tables ---- */

static inline int64_t extreme(struct fixture *f, int64_t min, int64_t max)
{
    const int64_t values[] = {min, max, 0, 63, 64, min < 0 ? -64 : 127, min < 0 ? -65 : 128};

    return values[draw(f, sizeof values / sizeof *values)];
}

static inline void fill(struct fixture *f, const struct fields *fields, char *to);

static inline void fill_array(struct fixture *f, const struct field *field, char *to)
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

static inline void fill_field(struct fixture *f, const struct field *field, char *to)
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

static inline void fill(struct fixture *f, const struct fields *fields, char *to)
{
    for (size_t i = 0; i < fields->count; i++)
        fill_field(f, &fields->rows[i], to);
}

static inline void make_record(struct fixture *f, enum record_type type)
{
    memset(&f->record, 0, sizeof f->record);
    f->record.type = type;
    fill(f, record_fields[type], (char *)&f->record.u);
}

static inline void assert_encoded(struct fixture *f)
{
    if (!codec_encode(f->codec, &f->record, &f->out, &f->err))
        fail_msg("%s", f->err.message);
}

/* Encoding is a function of the value, so equal bytes mean equal records. */
static inline void assert_decodes_to_itself(struct fixture *f, const void *data, size_t size)
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

#endif
