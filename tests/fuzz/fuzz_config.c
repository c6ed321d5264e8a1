/* SPDX-License-Identifier: Apache-2.0
 *
 * YAML files against a table with every type.
 */
#include <stdlib.h>
#include <string.h>

#include "common/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct values {
    bool flag;
    int64_t integer;
    int64_t size;
    int64_t duration_us;
    double share;
    double real;
    const char *text;
    int choice;
    struct config_list list;
};

static const struct config_key keys[] = {
    {.name = "a", .type = CONFIG_BOOL, .offset = offsetof(struct values, flag), .help = ""},
    {.name = "b.i", .type = CONFIG_INT, .offset = offsetof(struct values, integer), .help = ""},
    {.name = "b.s", .type = CONFIG_SIZE, .offset = offsetof(struct values, size), .help = ""},
    {.name = "b.d",
     .type = CONFIG_DURATION,
     .offset = offsetof(struct values, duration_us),
     .min = 1,
     .max = 1e9,
     .help = ""},
    {.name = "c", .type = CONFIG_PERCENT, .offset = offsetof(struct values, share), .help = ""},
    {.name = "d", .type = CONFIG_DOUBLE, .offset = offsetof(struct values, real), .help = ""},
    {.name = "e", .type = CONFIG_STRING, .offset = offsetof(struct values, text), .help = ""},
    {.name = "f",
     .type = CONFIG_CHOICE,
     .offset = offsetof(struct values, choice),
     .choices = "x|y",
     .help = ""},
    {.name = "g", .type = CONFIG_LIST, .offset = offsetof(struct values, list), .help = ""},
};

static const struct config_program program = {
    .name = "fuzz", .keys = keys, .keys_count = sizeof keys / sizeof *keys};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *yaml = malloc(size + 1);
    struct config *config;
    struct values values;
    struct err err;

    memcpy(yaml, data, size);
    yaml[size] = '\0';
    if (config_load_text(&config, &program, "fuzz.yaml", yaml, &values, &err))
        config_free(config);
    free(yaml);
    return 0;
}
