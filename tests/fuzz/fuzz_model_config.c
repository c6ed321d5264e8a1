/* SPDX-License-Identifier: Apache-2.0
 *
 * Any text as config.json: one error, or a configuration within its bounds.
 * What comes after the first NUL is generation_config.json.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "worker/model_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = calloc(1, size + 2);
    struct model_config config;
    struct err err = {0};

    CHECK(text);
    if (size > 0)
        memcpy(text, data, size);
    if (model_config_parse(&config, "fuzz", text, text + strlen(text) + 1, &err)) {
        CHECK(config.hidden >= 1);
        CHECK(config.layers >= 1 && config.layers <= MODEL_LAYERS_MAX);
        CHECK(config.rope_dim % 2 == 0);
        CHECK(config.experts == 0 || config.top_k <= config.experts);
        CHECK(config.eos_count <= MODEL_EOS_MAX);
    } else {
        CHECK(err.message[0] != '\0');
    }
    free(text);
    return 0;
}
