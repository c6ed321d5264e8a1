/* SPDX-License-Identifier: Apache-2.0
 *
 * Any text through the tokenizer and back: bytes that are UTF-8 come back
 * unchanged, others are one error, and no content makes a control token.
 */
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "common/utf8.h"
#include "worker/text/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_chat(const struct text *text, const char *content, size_t size)
{
    json_t *messages =
        json_pack("[{s:s, s:o}]", "role", "user", "content", json_stringn_nocheck(content, size));
    char *dumped = json_dumps(messages, 0);
    struct text_ids ids = {0};
    struct err err = {0};
    char *out = malloc(size + 1);
    size_t out_size = 0;

    CHECK(out != NULL);
    CHECK(text_chat(text, dumped, strlen(dumped), 0, &ids, &err));
    for (size_t i = 2; i + 1 < ids.count; i++)
        CHECK(!text_piece(text, ids.ids[i]).special);
    CHECK(text_decode(text, ids.ids, ids.count, out, size, &out_size, &err));
    CHECK(out_size == size);
    CHECK(memcmp(out, content, size) == 0);
    free(out);
    free(dumped);
    json_decref(messages);
    text_ids_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct text *text; /* opened once: it takes longer than thousands of runs */
    struct text_ids ids = {0};
    struct err err = {0};
    bool valid = utf8_valid((const char *)data, size);

    if (text == NULL)
        CHECK(text_open("ops/demo/model", &text, &err));
    CHECK(text_encode(text, (const char *)data, size, &ids, &err) == valid);
    text_ids_free(&ids);
    if (valid)
        check_chat(text, (const char *)data, size);
    return 0;
}
