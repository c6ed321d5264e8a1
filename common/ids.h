/* SPDX-License-Identifier: Apache-2.0
 *
 * ids - UUIDs, SHA-256 and trace identifiers.
 *
 * Ids are raw bytes here; request_id_format() in schemas/codec.h writes their text. Hashes
 * come from libcrypto. Any thread; a struct sha256 belongs to one.
 */
#ifndef COMMON_IDS_H
#define COMMON_IDS_H

#include <stddef.h>
#include <stdint.h>

enum { UUID_SIZE = 16, SHA256_SIZE = 32, TRACEPARENT_SIZE = 56 /* with NUL */ };

void random_bytes(void *out, size_t size); /* from the kernel; CHECKs that it delivers */
void uuid_random(uint8_t uuid[UUID_SIZE]); /* version 4 */

/* One piece of what is hashed. */
struct bytes {
    const void *data;
    size_t size;
};

/* Version 5 (SHA-1) of the concatenated pieces under a namespace. */
void uuid_from_name(const uint8_t name_space[UUID_SIZE], const struct bytes *pieces, size_t count,
                    uint8_t uuid[UUID_SIZE]);

void sha256(const void *data, size_t size, uint8_t digest[SHA256_SIZE]);

/* The same over a stream: open, update..., close (which writes the digest and frees). */
struct sha256;
struct sha256 *sha256_open(void);
void sha256_update(struct sha256 *sha, const void *data, size_t size);
void sha256_close(struct sha256 *sha, uint8_t digest[SHA256_SIZE]);

/* Lower-case hexadecimal, 2 * size + 1 bytes with the NUL. */
void hex_format(const uint8_t *data, size_t size, char *text);

/* W3C trace context, version 00, sampled: "00-<trace_id>-<random span>-01". The trace id of
 * everything about a request is its request_id. */
void traceparent_format(const uint8_t trace_id[UUID_SIZE], char text[TRACEPARENT_SIZE]);

#endif
