/* SPDX-License-Identifier: Apache-2.0 */
#include "common/escape.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "common/utf8.h"

/* Bytes at the start that pass as they are: 0 for a control character, 1 to 4 for another. */
static size_t plain_size(const char *data, size_t size)
{
    const uint8_t *s = (const uint8_t *)data;
    size_t length = s[0] < 0x80 ? 1 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;

    if (length > size || !utf8_valid(data, length))
        return 0;
    if (s[0] < 0x20 || s[0] == 0x7f || (s[0] == 0xc2 && s[1] < 0xa0))
        return 0;
    /* U+2028 to U+202E and U+2066 to U+2069: line ends and direction. */
    if (s[0] == 0xe2 && ((s[1] == 0x80 && s[2] >= 0xa8 && s[2] <= 0xae) ||
                         (s[1] == 0x81 && s[2] >= 0xa6 && s[2] <= 0xa9)))
        return 0;
    return length;
}

bool escape_needed(const char *data, size_t size)
{
    for (size_t at = 0, step; at < size; at += step) {
        step = plain_size(data + at, size - at);
        if (step == 0)
            return true;
    }
    return false;
}

static void print_byte(FILE *out, char byte)
{
    if (byte == '\n' || byte == '\t' || byte == '\r')
        fprintf(out, "\\%c", byte == '\n' ? 'n' : byte == '\t' ? 't' : 'r');
    else
        fprintf(out, "\\x%02x", (unsigned)(uint8_t)byte);
}

void escape_print(FILE *out, const char *data, size_t size, const char *kept)
{
    for (size_t at = 0; at < size;) {
        size_t step = plain_size(data + at, size - at);
        bool keeps = data[at] != '\0' && strchr(kept, data[at]);
        if (step > 0 || keeps)
            fwrite(data + at, 1, step > 0 ? step : 1, out);
        else
            print_byte(out, data[at]);
        at += step > 0 ? step : 1;
    }
}

void escape_line(FILE *out, const char *format, ...)
{
    char *text = NULL, *line = NULL;
    size_t text_size = 0, line_size = 0;
    FILE *memory = open_memstream(&text, &text_size);
    va_list args;

    CHECK(memory);
    va_start(args, format);
    vfprintf(memory, format, args);
    va_end(args);
    CHECK(fclose(memory) == 0);
    memory = open_memstream(&line, &line_size);
    CHECK(memory);
    escape_print(memory, text, text_size, "");
    fputc('\n', memory);
    CHECK(fclose(memory) == 0);
    fwrite(line, 1, line_size, out);
    free(text);
    free(line);
}
