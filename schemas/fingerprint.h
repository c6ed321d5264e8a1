/* SPDX-License-Identifier: Apache-2.0
 *
 * fingerprint - the 8 bytes that name a schema in single-object encoding; for schemas/ alone.
 */
#ifndef SCHEMAS_FINGERPRINT_H
#define SCHEMAS_FINGERPRINT_H

#include <avro.h>

#include "schemas/codec.h"

/* Appends the Parsing Canonical Form: full names, no doc strings, defaults or logical types. */
void fingerprint_canonical(avro_schema_t schema, struct buffer *out);
/* CRC-64-AVRO of it. */
uint64_t fingerprint_schema(avro_schema_t schema);
uint64_t fingerprint_bytes(const void *data, size_t size);

#endif
