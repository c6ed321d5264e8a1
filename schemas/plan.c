/* SPDX-License-Identifier: Apache-2.0 */
#include "schemas/plan.h"

#include <string.h>

#include "common/check.h"

/* A named type that is being skipped: a recursive schema meets it again. */
struct seen {
    struct seen *next;
    avro_schema_t schema;
    struct node *node;
};

struct planner {
    struct arena *arena;
    struct seen *seen;
    const char *record; /* name, for messages */
    struct err *err;
};

static const struct field i32_item = {.name = "item", .kind = FIELD_I32};
static const struct field f32_item = {.name = "item", .kind = FIELD_F32};

static struct node *make(struct planner *planner, avro_schema_t schema, const struct field *field);

size_t plan_item_size(const struct field *field)
{
    switch (field->kind) {
    case FIELD_I32_ARRAY:
        return sizeof(int32_t);
    case FIELD_F32_ARRAY:
        return sizeof(float);
    default:
        CHECK(field->kind == FIELD_RECORD_ARRAY);
        return field->record->size;
    }
}

static bool is_whole(avro_type_t type)
{
    return type == AVRO_INT32 || type == AVRO_INT64;
}

/* May a value of this type go into the member? Avro's promotions, and no more. */
static bool accepts(const struct field *field, avro_schema_t schema)
{
    avro_type_t type = avro_typeof(schema);

    switch (field->kind) {
    case FIELD_STR:
    case FIELD_UUID:
        return type == AVRO_STRING || type == AVRO_BYTES;
    case FIELD_FIXED:
        return type == AVRO_FIXED && (size_t)avro_schema_fixed_size(schema) == field->size;
    case FIELD_BOOL:
        return type == AVRO_BOOLEAN;
    case FIELD_I32:
        return type == AVRO_INT32;
    case FIELD_U32:
    case FIELD_I64:
    case FIELD_U64:
        return is_whole(type);
    case FIELD_F32:
        return type == AVRO_FLOAT || is_whole(type);
    case FIELD_F64:
        return type == AVRO_DOUBLE || type == AVRO_FLOAT || is_whole(type);
    case FIELD_ENUM:
        return type == AVRO_ENUM;
    case FIELD_RECORD:
        return type == AVRO_RECORD;
    case FIELD_I32_ARRAY:
    case FIELD_F32_ARRAY:
    case FIELD_RECORD_ARRAY:
        return type == AVRO_ARRAY;
    }
    return false;
}

static const struct field *find_row(const struct fields *reader, const char *name)
{
    for (size_t i = 0; i < reader->count; i++)
        if (strcmp(reader->rows[i].name, name) == 0)
            return &reader->rows[i];
    return NULL;
}

static struct node *make_record(struct planner *planner, struct node *node, avro_schema_t schema,
                                const struct fields *reader)
{
    size_t mapped = 0, required = 0;

    node->count = avro_schema_record_size(schema);
    node->children = arena_zalloc(planner->arena, node->count, sizeof(struct node *));
    for (size_t i = 0; i < node->count; i++) {
        const char *name = avro_schema_record_field_name(schema, (int)i);
        const struct field *row = reader ? find_row(reader, name) : NULL;

        mapped += row && row->required;
        node->children[i] =
            make(planner, avro_schema_record_field_get_by_index(schema, (int)i), row);
        if (!node->children[i])
            return NULL;
    }
    for (size_t i = 0; reader && i < reader->count; i++)
        required += reader->rows[i].required;
    if (mapped < required) {
        err_set(planner->err, ERR_REJECT,
                "schema of %s: the writer lacks one of the fields of %s that have no default",
                planner->record, reader->name);
        return NULL;
    }
    return node;
}

static struct node *make_enum(struct planner *planner, struct node *node, avro_schema_t schema,
                              const struct field *field)
{
    node->size = (size_t)avro_schema_enum_number_of_symbols(schema);
    if (!field)
        return node;
    node->symbols = arena_alloc(planner->arena, node->size * sizeof *node->symbols);
    for (size_t i = 0; i < node->size; i++) {
        const char *symbol = avro_schema_enum_get(schema, (int)i);
        node->symbols[i] = -1;
        for (int ours = 0; field->symbols[ours]; ours++)
            if (strcmp(field->symbols[ours], symbol) == 0)
                node->symbols[i] = ours;
    }
    return node;
}

/* Branches that do not fit the member stay NULL; one besides "null" must fit. */
static struct node *make_union(struct planner *planner, struct node *node, avro_schema_t schema,
                               const struct field *field)
{
    bool fits = !field;

    node->count = avro_schema_union_size(schema);
    node->children = arena_zalloc(planner->arena, node->count, sizeof(struct node *));
    for (size_t i = 0; i < node->count; i++) {
        avro_schema_t branch = avro_schema_union_branch(schema, (int)i);
        avro_schema_t target = is_avro_link(branch) ? avro_schema_link_target(branch) : branch;
        bool is_null = is_avro_null(target);

        if (field && !is_null && !accepts(field, target))
            continue;
        fits = fits || !is_null;
        node->children[i] = make(planner, target, is_null ? NULL : field);
        if (!node->children[i])
            return NULL;
    }
    if (fits)
        return node;
    err_set(planner->err, ERR_REJECT, "schema of %s: no branch of the union fits field %s",
            planner->record, field->name);
    return NULL;
}

static struct node *make_items(struct planner *planner, struct node *node, avro_schema_t items,
                               const struct field *field)
{
    const struct field *item = NULL;

    if (field && field->kind == FIELD_RECORD_ARRAY) {
        struct field *made = arena_zalloc(planner->arena, 1, sizeof *made);
        *made = (struct field){.name = field->name, .kind = FIELD_RECORD, .record = field->record};
        item = made;
    } else if (field) {
        item = field->kind == FIELD_I32_ARRAY ? &i32_item : &f32_item;
    }
    node->count = 1;
    node->children = arena_zalloc(planner->arena, 1, sizeof(struct node *));
    node->children[0] = make(planner, items, item);
    return node->children[0] ? node : NULL;
}

static struct node *make(struct planner *planner, avro_schema_t schema, const struct field *field)
{
    struct node *node;

    if (is_avro_link(schema))
        schema = avro_schema_link_target(schema);
    if (field && !is_avro_union(schema) && !accepts(field, schema)) {
        err_set(planner->err, ERR_REJECT, "schema of %s: the writer's type of %s does not fit",
                planner->record, field->name);
        return NULL;
    }
    for (struct seen *seen = planner->seen; !field && seen; seen = seen->next)
        if (seen->schema == schema)
            return seen->node;
    node = arena_zalloc(planner->arena, 1, sizeof *node);
    *node = (struct node){.type = avro_typeof(schema), .field = field};
    if (!field && is_avro_record(schema)) {
        struct seen *seen = arena_alloc(planner->arena, sizeof *seen);
        *seen = (struct seen){.next = planner->seen, .schema = schema, .node = node};
        planner->seen = seen;
    }
    switch (node->type) {
    case AVRO_RECORD:
        return make_record(planner, node, schema, field ? field->record : NULL);
    case AVRO_ENUM:
        return make_enum(planner, node, schema, field);
    case AVRO_UNION:
        return make_union(planner, node, schema, field);
    case AVRO_ARRAY:
        return make_items(planner, node, avro_schema_array_items(schema), field);
    case AVRO_MAP:
        return make_items(planner, node, avro_schema_map_values(schema), NULL);
    case AVRO_FIXED:
        node->size = (size_t)avro_schema_fixed_size(schema);
        return node;
    default:
        return node;
    }
}

struct node *plan_make(struct arena *arena, avro_schema_t writer, const struct fields *reader,
                       struct err *err)
{
    struct planner planner = {.arena = arena, .record = reader->name, .err = err};
    struct node *root = arena_zalloc(arena, 1, sizeof *root);

    if (!is_avro_record(writer)) {
        err_set(err, ERR_REJECT, "schema of %s: it is no record", reader->name);
        return NULL;
    }
    root->type = AVRO_RECORD;
    return make_record(&planner, root, writer, reader);
}
