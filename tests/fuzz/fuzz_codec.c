/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages. The first byte chooses the schema, so that the fuzzer need not guess fingerprints; what
 * decodes must encode again.
 */
#include <string.h>

#include "common/check.h"
#include "schemas/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A schema of its own, for what ours do not have: unions, maps, recursion. */
static const char foreign[] =
    "{\"type\":\"record\",\"name\":\"Yield\",\"namespace\":\"pelton\",\"fields\":["
    "{\"name\":\"slot\",\"type\":\"int\"},{\"name\":\"incarnation\",\"type\":\"string\"},"
    "{\"name\":\"request_id\",\"type\":[\"null\",\"bytes\"]},"
    "{\"name\":\"m\",\"type\":{\"type\":\"map\",\"values\":[\"null\",\"double\",\"float\"]}},"
    "{\"name\":\"t\",\"type\":{\"type\":\"record\",\"name\":\"T\",\"fields\":["
    "{\"name\":\"next\",\"type\":{\"type\":\"array\",\"items\":\"T\"}}]}},"
    "{\"name\":\"reason\",\"type\":[\"string\",\"null\"]}]}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct codec *codec; /* opened once: parsing 22 schemas takes longer than a message */
    struct buffer framed = {0};
    struct buffer again = {0};
    struct record *record;
    struct record like = {.type = RECORD_REQUEST};
    struct err err;

    if (size == 0)
        return 0;
    if (!codec) {
        CHECK(codec_open(&codec, &err));
        CHECK(codec_register(codec, foreign, 1, &err));
    }
    like.type = (enum record_type)(data[0] % (RECORD_TYPE_COUNT + 1));
    if (like.type == RECORD_TYPE_COUNT) {
        framed.data = malloc(5 + size);
        memcpy(framed.data, "\0\0\0\0\1", 5);
        framed.size = 5;
    } else {
        CHECK(codec_encode(codec, &like, &framed, &err));
        framed.size = 10;
        framed.data = realloc(framed.data, 10 + size);
    }
    memcpy(framed.data + framed.size, data + 1, size - 1);
    framed.size += size - 1;
    if (codec_decode(codec, framed.data, framed.size, &record, &err)) {
        CHECK(codec_encode(codec, record, &again, &err));
        record_free(record);
    }
    buffer_free(&again);
    buffer_free(&framed);
    return 0;
}
