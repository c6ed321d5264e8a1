/* SPDX-License-Identifier: Apache-2.0
 *
 * The same walk runs twice. The first one touches nothing: it proves that every length, count,
 * branch and symbol fits what is left of the message, and adds up the memory that arrays need. The
 * second one walks a copy of the message behind the new record and fills it; text points into the
 * copy. So a message costs one allocation, of a size that its own bytes have paid for, whatever
 * they claim.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "common/utf8.h"
#include "schemas/wire.h"

enum {
    DEPTH_MAX = 64, /* of recursive values in foreign schemas, which are skipped */
    ARRAYS_MAX = 8, /* array members of one record, with those of its nested records */
    ALIGNMENT = 16,
};

struct walk {
    const uint8_t *start, *at, *end;
    bool fill;                 /* the second walk */
    size_t counts[ARRAYS_MAX]; /* items of each array member, from the first walk */
    size_t arrays;             /* met so far in this walk */
    size_t memory_size;        /* first walk: needed by arrays */
    char *memory;              /* second walk: free part of it */
    struct err *err;
};

static bool read_node(struct walk *walk, const struct node *node, char *base, int depth);

static bool refuse(const struct walk *walk, const struct node *node, const char *why)
{
    return err_set(walk->err, ERR_REJECT, "byte %td of %td%s%s: %s", walk->at - walk->start,
                   walk->end - walk->start, node->field ? ", field " : "",
                   node->field ? node->field->name : "", why);
}

static bool read_long(struct walk *walk, const struct node *node, int64_t *value)
{
    uint64_t zigzag = 0;

    for (unsigned shift = 0; shift < 70; shift += 7) {
        uint8_t byte;
        if (walk->at == walk->end)
            return refuse(walk, node, "cut inside a number");
        byte = *walk->at++;
        if (shift == 63 && byte > 1)
            break;
        zigzag |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value = (int64_t)(zigzag >> 1) ^ -(int64_t)(zigzag & 1);
            return true;
        }
    }
    return refuse(walk, node, "a number of more than 64 bits");
}

/* Takes size bytes off the message; NULL if there are not as many. */
static const uint8_t *take(struct walk *walk, const struct node *node, int64_t size)
{
    const uint8_t *data = walk->at;

    if (size < 0 || size > walk->end - walk->at) {
        refuse(walk, node, "a length beyond the end of the message");
        return NULL;
    }
    walk->at += size;
    return data;
}

static bool read_text(struct walk *walk, const struct node *node, void *to)
{
    const uint8_t *data;
    int64_t size;
    struct str text;
    struct request_id id;

    if (!read_long(walk, node, &size))
        return false;
    data = take(walk, node, size);
    if (!data)
        return false;
    if (!node->field)
        return true;
    text = (struct str){(const char *)data, (size_t)size};
    if (node->field->kind == FIELD_UUID) {
        if (!request_id_parse(text, &id))
            return refuse(walk, node, "text that is no UUID");
        if (to)
            memcpy(to, &id, sizeof id);
        return true;
    }
    if (!walk->fill && !utf8_valid(text.data, text.size))
        return refuse(walk, node, "text that is no UTF-8");
    if (to)
        memcpy(to, &text, sizeof text);
    return true;
}

static bool store_integer(const struct walk *walk, const struct node *node, int64_t value, void *to)
{
    enum field_kind kind = node->field ? node->field->kind : FIELD_I64;
    bool fits = kind == FIELD_U32   ? value >= 0 && value <= UINT32_MAX
                : kind == FIELD_U64 ? value >= 0
                                    : true;

    if (!fits)
        return refuse(walk, node, "a number out of range");
    if (!to)
        return true;
    if (kind == FIELD_I32)
        *(int32_t *)to = (int32_t)value;
    else if (kind == FIELD_U32)
        *(uint32_t *)to = (uint32_t)value;
    else if (kind == FIELD_F64)
        *(double *)to = (double)value;
    else if (kind == FIELD_F32)
        *(float *)to = (float)value;
    else
        memcpy(to, &value, sizeof value); /* I64 and U64 */
    return true;
}

static bool read_integer(struct walk *walk, const struct node *node, void *to)
{
    int64_t value;

    if (!read_long(walk, node, &value))
        return false;
    if (node->type == AVRO_INT32 && (value < INT32_MIN || value > INT32_MAX))
        return refuse(walk, node, "an int of more than 32 bits");
    return store_integer(walk, node, value, to);
}

static bool read_real(struct walk *walk, const struct node *node, void *to)
{
    bool is_float = node->type == AVRO_FLOAT;
    const uint8_t *data = take(walk, node, is_float ? 4 : 8);
    uint64_t bits = 0;
    uint32_t float_bits;
    float single = 0;
    double value;

    if (!data)
        return false;
    for (size_t i = 0; i < (is_float ? 4u : 8u); i++)
        bits |= (uint64_t)data[i] << 8 * i;
    if (!to)
        return true;
    float_bits = (uint32_t)bits;
    memcpy(&single, &float_bits, sizeof single);
    memcpy(&value, &bits, sizeof value);
    if (node->field->kind == FIELD_F32)
        *(float *)to = single;
    else
        *(double *)to = is_float ? (double)single : value;
    return true;
}

static bool read_enum(struct walk *walk, const struct node *node, void *to)
{
    int64_t index;
    int ours;

    if (!read_long(walk, node, &index))
        return false;
    if (index < 0 || (uint64_t)index >= node->size)
        return refuse(walk, node, "an enum without such a symbol");
    if (!node->field)
        return true;
    ours = node->symbols[index];
    if (ours < 0)
        return refuse(walk, node, "an enum symbol that this version does not know");
    if (to)
        memcpy(to, &ours, sizeof ours);
    return true;
}

static bool read_fixed(struct walk *walk, const struct node *node, void *to)
{
    const uint8_t *data = take(walk, node, (int64_t)node->size);

    if (!data)
        return false;
    if (to)
        memcpy(to, data, node->size);
    return true;
}

static bool read_bool(struct walk *walk, const struct node *node, void *to)
{
    const uint8_t *data = take(walk, node, 1);

    if (!data)
        return false;
    if (*data > 1)
        return refuse(walk, node, "a boolean that is neither 0 nor 1");
    if (to)
        *(bool *)to = *data == 1;
    return true;
}

/* The start of a block of an array or map: its count, 0 at the end. */
static bool read_block(struct walk *walk, const struct node *node, uint64_t *count)
{
    const uint8_t *left = walk->at;
    int64_t value, size;

    if (!read_long(walk, node, &value))
        return false;
    if (value < 0) { /* followed by its size in bytes, for those who skip */
        if (value == INT64_MIN || !read_long(walk, node, &size))
            return refuse(walk, node, "a block with a broken count");
        left = walk->at;
        if (size < 0 || size > walk->end - left)
            return refuse(walk, node, "a block beyond the end of the message");
        value = -value;
    }
    if (value > walk->end - walk->at)
        return refuse(walk, node, "more items than bytes left");
    *count = (uint64_t)value;
    return true;
}

static bool read_items(struct walk *walk, const struct node *node, char *items, size_t item_size,
                       size_t *total, int depth)
{
    int64_t key_size;
    uint64_t count;

    *total = 0;
    for (;;) {
        if (!read_block(walk, node, &count))
            return false;
        if (count == 0)
            return true;
        for (; count > 0; count--) {
            const uint8_t *before = walk->at;
            if (node->type == AVRO_MAP &&
                (!read_long(walk, node, &key_size) || !take(walk, node, key_size)))
                return false;
            if (!read_node(walk, node->children[0], items ? items + *total * item_size : NULL,
                           depth + 1))
                return false;
            if (walk->at == before) /* 16 million nulls fit in five bytes */
                return refuse(walk, node, "items that take no bytes");
            ++*total;
        }
    }
}

static bool read_array(struct walk *walk, const struct node *node, char *base, int depth)
{
    const struct field *field = node->field;
    size_t item_size, total, size;
    size_t index = walk->arrays;
    char *items = NULL;

    if (!field)
        return read_items(walk, node, NULL, 0, &total, depth);
    CHECK(index < ARRAYS_MAX);
    walk->arrays++;
    item_size = plan_item_size(field);
    if (walk->fill && walk->counts[index] > 0) {
        size = walk->counts[index] * item_size;
        items = walk->memory;
        memset(items, 0, size);
        walk->memory += (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    }
    if (!read_items(walk, node, items, item_size, &total, depth))
        return false;
    if (!walk->fill) {
        walk->counts[index] = total;
        walk->memory_size += (total * item_size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
        return true;
    }
    CHECK(total == walk->counts[index]);
    memcpy(base + field->offset, &items, sizeof items);
    if (field->kind == FIELD_I32_ARRAY)
        ((struct i32_array *)(void *)(base + field->offset))->count = total;
    else
        memcpy(base + field->count_offset, &total, sizeof total);
    return true;
}

static bool read_union(struct walk *walk, const struct node *node, char *base, int depth)
{
    int64_t branch;

    if (!read_long(walk, node, &branch))
        return false;
    if (branch < 0 || (uint64_t)branch >= node->count)
        return refuse(walk, node, "a union without such a branch");
    if (!node->children[branch])
        return refuse(walk, node, "a union branch that does not fit");
    return read_node(walk, node->children[branch], base, depth + 1);
}

/* base: the struct that has the node's member; NULL in the first walk and while skipping. */
static bool read_node(struct walk *walk, const struct node *node, char *base, int depth)
{
    char *member = base && node->field ? base + node->field->offset : NULL;

    if (depth > DEPTH_MAX)
        return refuse(walk, node, "nested too deeply");
    switch (node->type) {
    case AVRO_STRING:
    case AVRO_BYTES:
        return read_text(walk, node, member);
    case AVRO_INT32:
    case AVRO_INT64:
        return read_integer(walk, node, member);
    case AVRO_FLOAT:
    case AVRO_DOUBLE:
        return read_real(walk, node, member);
    case AVRO_BOOLEAN:
        return read_bool(walk, node, member);
    case AVRO_NULL:
        return true;
    case AVRO_ENUM:
        return read_enum(walk, node, member);
    case AVRO_FIXED:
        return read_fixed(walk, node, member);
    case AVRO_MAP:
    case AVRO_ARRAY:
        return read_array(walk, node, base, depth);
    case AVRO_UNION:
        return read_union(walk, node, base, depth);
    case AVRO_RECORD:
        for (size_t i = 0; i < node->count; i++)
            if (!read_node(walk, node->children[i], member, depth + 1))
                return false;
        return true;
    default:
        return refuse(walk, node, "a type of no meaning");
    }
}

/* One walk over a message whose members start at base. */
static bool read_message(struct walk *walk, const struct node *plan, char *base)
{
    for (size_t i = 0; i < plan->count; i++)
        if (!read_node(walk, plan->children[i], base, 0))
            return false;
    if (walk->at != walk->end)
        return err_set(walk->err, ERR_REJECT, "%td bytes are left over", walk->end - walk->at);
    return true;
}

bool wire_read(const struct node *plan, const void *data, size_t size, struct record **record,
               struct err *err)
{
    const size_t record_size = (sizeof **record + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    struct walk walk = {.start = data, .at = data, .end = (const uint8_t *)data + size, .err = err};
    char *block, *copy;

    if (!read_message(&walk, plan, NULL))
        return false;
    block = malloc(record_size + walk.memory_size + size);
    CHECK(block);
    memset(block, 0, record_size);
    copy = block + record_size + walk.memory_size;
    memcpy(copy, data, size);
    walk.start = walk.at = (const uint8_t *)copy;
    walk.end = walk.start + size;
    walk.fill = true;
    walk.arrays = 0;
    walk.memory = block + record_size;
    *record = (struct record *)(void *)block;
    CHECK(read_message(&walk, plan, (char *)&(*record)->u)); /* the first walk has proved it */
    return true;
}
