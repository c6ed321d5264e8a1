/* SPDX-License-Identifier: Apache-2.0
 *
 * codec - records to bytes and back.
 *
 * Framing: Avro single-object encoding (C3 01, 8-byte CRC-64-AVRO fingerprint
 * of the writer's schema, little-endian, then the body), which needs no
 * registry. Confluent framing (00, 4-byte schema id, big-endian) is read too,
 * for ids made known by codec_register(), and written for types that
 * codec_write_id() has given an id.
 *
 * avro-c reads schemas here, never messages, since it trusts the lengths that it meets. The raw
 * bytes are walked against the writer's schema first: every length, count and union branch must fit
 * what is left of the message. A record of an older or newer writer is decoded with the
 * writer's schema and mapped by field name: every schema that was ever published is known by its
 * fingerprint (schemas/past), others by codec_register(). Fields the
 * reader lacks are skipped, fields the writer lacked get the default of the
 * reader's .avsc, enum symbols match by name (an unknown symbol is a REJECT), and a null from a
 * union of the writer's is a missing value.
 *
 * Threads: a codec belongs to one thread; open one per thread.
 */
#ifndef SCHEMAS_CODEC_H
#define SCHEMAS_CODEC_H

#include "common/err.h"
#include "schemas/records.h"

enum {
    CODEC_MESSAGE_SIZE_MAX = 18 * 1024 * 1024, /* bytes; topics allow this much */
    CODEC_REQUEST_SIZE_MAX = 16 * 1024 * 1024, /* bytes of one encoded request, Done or result */
};

struct codec;

/* Growing output buffer, reused from message to message; zero-initialise it. */
struct buffer {
    uint8_t *data;
    size_t size;
    size_t capacity;
};
void buffer_free(struct buffer *buffer);

bool codec_open(struct codec **codec, struct err *err);
void codec_close(struct codec *codec);

/* Replaces the contents of out by the framed message. REJECT when it would exceed
 * CODEC_MESSAGE_SIZE_MAX; callers that have a tighter limit look at out->size. */
bool codec_encode(struct codec *codec, const struct record *record, struct buffer *out,
                  struct err *err);

/* *record is the caller's, for record_free(). REJECT with the reason for bytes that are no
 * known record; the caller sends such a message to dead-letters and goes on. */
bool codec_decode(struct codec *codec, const void *data, size_t size, struct record **record,
                  struct err *err);
void record_free(struct record *record); /* NULL is allowed */

/* The .avsc text of a type as shipped (doc strings and logical types included). */
const char *codec_schema_json(enum record_type type);
const char *record_type_name(enum record_type type);

/* Make a foreign writer's schema known, under its fingerprint and, when id >= 0, under that
 * Confluent id. Its full name selects the record type. */
bool codec_register(struct codec *codec, const char *schema_json, int32_t id, struct err *err);
/* From now on this type is written in Confluent framing with this id. */
bool codec_write_id(struct codec *codec, enum record_type type, int32_t id, struct err *err);

/* Kafka keys. */
enum {
    REQUEST_ID_TEXT_SIZE = 36,
    BATCH_ID_SIZE_MAX = 256, /* bytes */
    TENANT_SIZE_MAX = 128,
    CUSTOM_ID_SIZE_MAX = 512,
    MODEL_ID_SIZE_MAX = 256,
    STATE_KEY_SIZE_MAX = 420, /* both, and "tenant/128:" and "/cancel/" */
};
#define TENANT_DEFAULT "default" /* who pays where nobody says otherwise */

/* Are the names of a request no longer than that, and without NUL, which PostgreSQL cannot store?
 * REJECT names the first that is not. Whoever takes requests or usage from outside asks. */
bool names_check(struct str tenant, struct str batch_id, struct str custom_id, struct str model,
                 struct err *err);

void request_id_format(const struct request_id *id, char text[REQUEST_ID_TEXT_SIZE + 1]);
bool request_id_parse(struct str text, struct request_id *id);
bool request_id_equal(const struct request_id *a, const struct request_id *b);
/* UUIDv5 over the fixed namespace and the length-prefixed tenant, batch_id and custom_id. */
void request_id_make(struct str tenant, struct str batch_id, struct str custom_id,
                     struct request_id *id);

/* Key of a record in a compacted topic. state: "request/UUID" for InFlight and DoneMark alike (the
 * mark replaces the entry), "tick", "slot/N"; control: "claim/UUID", and for the jobs of
 * TENANT_DEFAULT "batch/ID" and "cancel/ID", for those of others "tenant/4:acme/batch/ID" with the
 * size of the name before it, so that no choice of names makes two jobs share a key. Returns the
 * key's size in bytes; longer ids and tenants are refused before they get here. */
size_t state_key(const struct record *record, char key[STATE_KEY_SIZE_MAX]);

struct str str_from(const char *text);
bool str_equal(struct str a, struct str b);

#endif
