/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/prompt_parse.h"

#include "common/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool prompt_bad(struct prompt_parse *parse, const char *code, const char *param, const char *format,
                ...)
{
    char message[sizeof parse->err->message];
    va_list args;

    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    *parse->fault = (struct prompt_fault){code, param};
    return err_set(parse->err, ERR_REJECT, "%s", message);
}

json_t *prompt_field(const struct prompt_parse *parse, const char *name)
{
    json_t *value = json_object_get(parse->body, name);

    return json_is_null(value) ? NULL : value;
}

const char *prompt_show(const json_t *value, char shown[PROMPT_SHOWN_SIZE])
{
    char *dumped = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS);
    size_t size;

    CHECK(dumped != NULL);
    size = strlen(dumped);
    if (size < PROMPT_SHOWN_SIZE) {
        memcpy(shown, dumped, size + 1);
    } else {
        size = PROMPT_SHOWN_SIZE - 4;
        while (((unsigned char)dumped[size] & 0xC0) == 0x80) /* not inside a character */
            size--;
        snprintf(shown, PROMPT_SHOWN_SIZE, "%.*s...", (int)size, dumped);
    }
    free(dumped);
    return shown;
}
