/* SPDX-License-Identifier: Apache-2.0 */
#include "common/ids.h"

#include <errno.h>
#include <openssl/evp.h>
#include <string.h>
#include <sys/random.h>

#include "common/check.h"

struct sha256 {
    EVP_MD_CTX *context;
};

void random_bytes(void *out, size_t size)
{
    uint8_t *bytes = out;

    while (size > 0) {
        ssize_t got = getrandom(bytes, size, 0);
        CHECK(got > 0 || errno == EINTR);
        if (got > 0) {
            bytes += got;
            size -= (size_t)got;
        }
    }
}

static void uuid_mark(uint8_t uuid[UUID_SIZE], unsigned version)
{
    uuid[6] = (uint8_t)((uuid[6] & 0x0f) | version << 4);
    uuid[8] = (uint8_t)((uuid[8] & 0x3f) | 0x80); /* the variant of RFC 9562 */
}

void uuid_random(uint8_t uuid[UUID_SIZE])
{
    random_bytes(uuid, UUID_SIZE);
    uuid_mark(uuid, 4);
}

void uuid_from_name(const uint8_t name_space[UUID_SIZE], const struct bytes *pieces, size_t count,
                    uint8_t uuid[UUID_SIZE])
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    uint8_t digest[EVP_MAX_MD_SIZE];

    CHECK(context);
    CHECK(EVP_DigestInit_ex(context, EVP_sha1(), NULL));
    CHECK(EVP_DigestUpdate(context, name_space, UUID_SIZE));
    for (size_t i = 0; i < count; i++)
        CHECK(EVP_DigestUpdate(context, pieces[i].data, pieces[i].size));
    CHECK(EVP_DigestFinal_ex(context, digest, NULL));
    EVP_MD_CTX_free(context);
    memcpy(uuid, digest, UUID_SIZE);
    uuid_mark(uuid, 5);
}

void sha256(const void *data, size_t size, uint8_t digest[SHA256_SIZE])
{
    CHECK(EVP_Digest(data, size, digest, NULL, EVP_sha256(), NULL));
}

struct sha256 *sha256_open(void)
{
    struct sha256 *sha = malloc(sizeof *sha);

    CHECK(sha);
    sha->context = EVP_MD_CTX_new();
    CHECK(sha->context);
    CHECK(EVP_DigestInit_ex(sha->context, EVP_sha256(), NULL));
    return sha;
}

void sha256_update(struct sha256 *sha, const void *data, size_t size)
{
    CHECK(EVP_DigestUpdate(sha->context, data, size));
}

void sha256_close(struct sha256 *sha, uint8_t digest[SHA256_SIZE])
{
    CHECK(EVP_DigestFinal_ex(sha->context, digest, NULL));
    EVP_MD_CTX_free(sha->context);
    free(sha);
}

void hex_format(const uint8_t *data, size_t size, char *text)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < size; i++) {
        text[2 * i] = digits[data[i] >> 4];
        text[2 * i + 1] = digits[data[i] & 15];
    }
    text[2 * size] = '\0';
}

void traceparent_format(const uint8_t trace_id[UUID_SIZE], char text[TRACEPARENT_SIZE])
{
    uint8_t span_id[8];

    random_bytes(span_id, sizeof span_id);
    memcpy(text, "00-", 3);
    hex_format(trace_id, UUID_SIZE, text + 3);
    text[35] = '-';
    hex_format(span_id, sizeof span_id, text + 36);
    memcpy(text + 52, "-01", 4);
}
