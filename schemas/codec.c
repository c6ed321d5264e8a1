/* SPDX-License-Identifier: Apache-2.0 */
#include "schemas/codec.h"

#include <stdlib.h>
#include <string.h>

#include "common/arena.h"
#include "common/check.h"
#include "schemas/avsc.h"
#include "schemas/fingerprint.h"
#include "schemas/wire.h"

enum {
    WRITERS_MAX = 512,
    SINGLE_OBJECT_SIZE = 10, /* C3 01 and the fingerprint */
    CONFLUENT_SIZE = 5,      /* 00 and the id */
    ID_NONE = -1,
};

/* A schema that somebody writes with. */
struct writer {
    uint64_t fingerprint;
    int32_t id; /* Confluent; ID_NONE */
    enum record_type type;
    const struct node *plan;
};

struct codec {
    struct arena arena; /* of the plans */
    struct writer *writers;
    size_t count;
    size_t last; /* index of the writer that decoded last: messages come in runs */
    uint64_t own_fingerprints[RECORD_TYPE_COUNT];
    int32_t write_ids[RECORD_TYPE_COUNT];
};

void buffer_free(struct buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct buffer){0};
}

const char *codec_schema_json(enum record_type type)
{
    return avsc_texts[type];
}

const char *record_type_name(enum record_type type)
{
    return record_fields[type]->name;
}

static bool find_type(const char *name_space, const char *name, enum record_type *type)
{
    if (!name_space || strcmp(name_space, "pelton") != 0)
        return false;
    for (int i = 0; i < RECORD_TYPE_COUNT; i++) {
        if (strcmp(record_fields[i]->name, name) == 0) {
            *type = (enum record_type)i;
            return true;
        }
    }
    return false;
}

static bool add_writer(struct codec *codec, avro_schema_t schema, int32_t id, struct err *err)
{
    struct writer writer = {.fingerprint = fingerprint_schema(schema), .id = id};

    if (!is_avro_record(schema) ||
        !find_type(avro_schema_namespace(schema), avro_schema_name(schema), &writer.type))
        return err_set(err, ERR_REJECT, "schema %.100s is none of pelton's records",
                       avro_schema_type_name(schema));
    for (size_t i = 0; i < codec->count; i++) {
        const struct writer *known = &codec->writers[i];
        if (id != ID_NONE && known->id == id && known->fingerprint != writer.fingerprint)
            return err_set(err, ERR_REJECT, "schema id %d is taken by another schema", id);
        if (known->fingerprint == writer.fingerprint && known->id == id)
            return true;
    }
    if (codec->count == WRITERS_MAX)
        return err_set(err, ERR_REJECT, "more than %d schemas", WRITERS_MAX);
    writer.plan = plan_make(&codec->arena, schema, record_fields[writer.type], err);
    if (!writer.plan)
        return false;
    codec->writers[codec->count++] = writer;
    return true;
}

bool codec_register(struct codec *codec, const char *schema_json, int32_t id, struct err *err)
{
    avro_schema_t schema;
    bool ok;

    if (avro_schema_from_json_length(schema_json, strlen(schema_json), &schema) != 0)
        return err_set(err, ERR_REJECT, "not an Avro schema: %.150s", avro_strerror());
    ok = add_writer(codec, schema, id < 0 ? ID_NONE : id, err);
    avro_schema_decref(schema);
    return ok;
}

static bool register_published(struct codec *codec, struct err *err)
{
    for (int type = 0; type < RECORD_TYPE_COUNT; type++) {
        codec->write_ids[type] = ID_NONE;
        if (!codec_register(codec, avsc_texts[type], ID_NONE, err))
            return false;
        codec->own_fingerprints[type] = codec->writers[type].fingerprint;
    }
    for (size_t i = 0; avsc_past_texts[i]; i++)
        if (!codec_register(codec, avsc_past_texts[i], ID_NONE, err))
            return false;
    return true;
}

bool codec_open(struct codec **codec, struct err *err)
{
    struct codec *opened = calloc(1, sizeof *opened);

    CHECK(opened);
    opened->writers = calloc(WRITERS_MAX, sizeof *opened->writers);
    CHECK(opened->writers);
    if (!register_published(opened, err)) {
        codec_close(opened);
        return false;
    }
    *codec = opened;
    return true;
}

void codec_close(struct codec *codec)
{
    if (!codec)
        return;
    arena_free(&codec->arena);
    free(codec->writers);
    free(codec);
}

bool codec_write_id(struct codec *codec, enum record_type type, int32_t id, struct err *err)
{
    CHECK(id >= 0);
    if (!codec_register(codec, avsc_texts[type], id, err))
        return false;
    codec->write_ids[type] = id;
    return true;
}

bool codec_encode(struct codec *codec, const struct record *record, struct buffer *out,
                  struct err *err)
{
    int32_t id = codec->write_ids[record->type];
    uint64_t fingerprint = codec->own_fingerprints[record->type];
    uint8_t *header;

    out->size = 0;
    if (id == ID_NONE) {
        header = buffer_extend(out, SINGLE_OBJECT_SIZE);
        header[0] = 0xc3;
        header[1] = 0x01;
        for (size_t i = 0; i < 8; i++)
            header[2 + i] = (uint8_t)(fingerprint >> 8 * i);
    } else {
        header = buffer_extend(out, CONFLUENT_SIZE);
        header[0] = 0;
        for (size_t i = 0; i < 4; i++)
            header[1 + i] = (uint8_t)((uint32_t)id >> (24 - 8 * i));
    }
    return wire_write(out, record_fields[record->type], &record->u, err);
}

static const struct writer *find_fingerprint(struct codec *codec, uint64_t fingerprint)
{
    if (codec->writers[codec->last].fingerprint == fingerprint)
        return &codec->writers[codec->last];
    for (size_t i = 0; i < codec->count; i++) {
        if (codec->writers[i].fingerprint == fingerprint) {
            codec->last = i;
            return &codec->writers[i];
        }
    }
    return NULL;
}

static const struct writer *find_id(const struct codec *codec, int32_t id)
{
    for (size_t i = 0; i < codec->count; i++)
        if (codec->writers[i].id == id)
            return &codec->writers[i];
    return NULL;
}

/* Reads the frame: who wrote it (NULL: refused), and where the body starts. */
static const struct writer *read_header(struct codec *codec, const uint8_t *data, size_t size,
                                        size_t *header_size, struct err *err)
{
    const struct writer *writer;
    uint64_t fingerprint = 0;
    uint32_t id = 0;

    if (size >= SINGLE_OBJECT_SIZE && data[0] == 0xc3 && data[1] == 0x01) {
        for (size_t i = 0; i < 8; i++)
            fingerprint |= (uint64_t)data[2 + i] << 8 * i;
        *header_size = SINGLE_OBJECT_SIZE;
        writer = find_fingerprint(codec, fingerprint);
        if (!writer)
            err_set(err, ERR_REJECT, "unknown schema fingerprint %016llx",
                    (unsigned long long)fingerprint);
        return writer;
    }
    if (size >= CONFLUENT_SIZE && data[0] == 0) {
        for (size_t i = 0; i < 4; i++)
            id = id << 8 | data[1 + i];
        *header_size = CONFLUENT_SIZE;
        writer = id <= INT32_MAX ? find_id(codec, (int32_t)id) : NULL;
        if (!writer)
            err_set(err, ERR_REJECT, "unknown schema id %u", id);
        return writer;
    }
    err_set(err, ERR_REJECT, "%zu bytes that start with neither Avro framing", size);
    return NULL;
}

bool codec_decode(struct codec *codec, const void *data, size_t size, struct record **record,
                  struct err *err)
{
    const struct writer *writer;
    size_t header_size = 0;
    struct err why;

    if (!data)
        return err_set(err, ERR_REJECT, "a message without a value");
    if (size > CODEC_MESSAGE_SIZE_MAX)
        return err_set(err, ERR_REJECT, "a message of %zu bytes: the limit is %d", size,
                       CODEC_MESSAGE_SIZE_MAX);
    writer = read_header(codec, data, size, &header_size, err);
    if (!writer)
        return false;
    if (!wire_read(writer->plan, (const uint8_t *)data + header_size, size - header_size, record,
                   &why))
        return err_set(err, ERR_REJECT, "%s: %.200s", record_type_name(writer->type), why.message);
    (*record)->type = writer->type;
    return true;
}

void record_free(struct record *record)
{
    free(record);
}
