/* SPDX-License-Identifier: Apache-2.0
 *
 * fields - which struct member carries which Avro field; for schemas/ alone.
 *
 * One table per record, in the order of its .avsc, which is the order of the bytes. Every default
 * is the type's zero ("", 0, false, the first symbol, no items), so a field that a writer lacks is
 * what a zeroed struct holds; tests/unit/test_schemas.c holds table and .avsc against each other.
 */
#ifndef SCHEMAS_FIELDS_H
#define SCHEMAS_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "schemas/records.h"

/* C type of the member; Avro type. */
enum field_kind {
    FIELD_STR,          /* struct str; string */
    FIELD_UUID,         /* struct request_id; string of 36 characters */
    FIELD_FIXED,        /* uint8_t[size]; fixed */
    FIELD_BOOL,         /* bool; boolean */
    FIELD_I32,          /* int32_t; int */
    FIELD_U32,          /* uint32_t; long, as int has no room */
    FIELD_I64,          /* int64_t; long */
    FIELD_U64,          /* uint64_t up to INT64_MAX; long */
    FIELD_F64,          /* double; double */
    FIELD_F32,          /* float; float; only as the item of FIELD_F32_ARRAY */
    FIELD_ENUM,         /* an enum from 0 without gaps; enum */
    FIELD_I32_ARRAY,    /* struct i32_array; array of int */
    FIELD_F32_ARRAY,    /* const float * and size_t; array of float */
    FIELD_RECORD,       /* a struct; record */
    FIELD_RECORD_ARRAY, /* pointer to structs without arrays, and size_t; array of record */
};

struct fields;

struct field {
    const char *name;
    enum field_kind kind;
    size_t offset;
    bool required;              /* has no default: a writer without it is refused */
    size_t size;                /* FIELD_FIXED, bytes */
    size_t count_offset;        /* FIELD_F32_ARRAY, FIELD_RECORD_ARRAY */
    const char *const *symbols; /* FIELD_ENUM, NULL at the end */
    const struct fields *record;
};

struct fields {
    const char *name; /* without namespace, which is "pelton" */
    size_t size;      /* of the struct */
    const struct field *rows;
    size_t count;
};

extern const struct fields *const record_fields[RECORD_TYPE_COUNT];

#endif
