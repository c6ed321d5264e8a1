/* SPDX-License-Identifier: Apache-2.0
 *
 * wire - Avro's binary encoding, without framing; for schemas/ alone.
 */
#ifndef SCHEMAS_WIRE_H
#define SCHEMAS_WIRE_H

#include "common/err.h"
#include "schemas/codec.h"
#include "schemas/fields.h"
#include "schemas/plan.h"

/* Appends size bytes of room and returns where they start. */
uint8_t *buffer_extend(struct buffer *buffer, size_t size);

/* Appends the struct. REJECT for text that is no UTF-8, an integer that Avro's long cannot hold,
 * and a message beyond CODEC_MESSAGE_SIZE_MAX. */
bool wire_write(struct buffer *out, const struct fields *fields, const void *from, struct err *err);

/* Reads all of data into a new record of one malloc(), whose type the caller sets. */
bool wire_read(const struct node *plan, const void *data, size_t size, struct record **record,
               struct err *err);

#endif
