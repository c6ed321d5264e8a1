/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a request body: one error, or a prompt that keeps its promises.
 * The first byte chooses the endpoint.
 */
#include <stddef.h>
#include <stdint.h>

#include "common/check.h"
#include "worker/prompt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct text *text; /* opened once: it takes longer than thousands of runs */
    struct prompt *prompt = NULL;
    struct prompt_fault fault = {0};
    struct err err = {0};

    if (text == NULL)
        CHECK(text_open("ops/demo/model", &text, &err));
    if (size == 0)
        return 0;
    struct prompt_source source = {
        .text = text,
        .endpoint = data[0] % 2 == 0 ? ENDPOINT_CHAT_COMPLETIONS : ENDPOINT_COMPLETIONS,
        .body = {(const char *)data + 1, size - 1},
        .max_context = 1024,
        .vocab_size = 2048,
    };
    if (!prompt_open(&prompt, &source, &fault, &err)) {
        CHECK(fault.code != NULL && fault.param != NULL && err.message[0] != '\0');
        return 0;
    }
    CHECK(prompt->count > 0);
    CHECK(prompt->max_tokens > 0);
    CHECK(prompt->count + prompt->max_tokens <= 1024);
    prompt_close(prompt);
    return 0;
}
