/* SPDX-License-Identifier: Apache-2.0
 *
 * plan - a writer's schema, matched with our structs once, so that reading needs no names.
 *
 * A plan is a tree like the schema's, whose nodes know the struct member that takes the value, or
 * that nobody wants it. Nodes live in the codec's arena. For schemas/ alone.
 */
#ifndef SCHEMAS_PLAN_H
#define SCHEMAS_PLAN_H

#include <avro.h>

#include "common/arena.h"
#include "common/err.h"
#include "schemas/fields.h"

struct node {
    avro_type_t type;          /* as written; links are resolved */
    const struct field *field; /* NULL: to be skipped, or the message itself */
    struct node **children; /* record: fields; array, map: one; union: branches, NULL: not ours */
    size_t count;
    int *symbols; /* enum: the writer's index to ours, -1: unknown to us. NULL if skipped */
    size_t size;  /* fixed: bytes; enum: symbols */
};

/* The node of a whole message. REJECT where the schema cannot become the record. */
struct node *plan_make(struct arena *arena, avro_schema_t writer, const struct fields *reader,
                       struct err *err);

/* Bytes of one item of an array member. */
size_t plan_item_size(const struct field *field);

#endif
