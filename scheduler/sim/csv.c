/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/csv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Takes the quotes off and returns what stands behind the field: its comma or the line's end. Bytes
 * between a closing quote and the comma stay with the field. */
static char *unquote(char *field)
{
    char *from = field + 1, *to = field;

    while (*from && !(from[0] == '"' && from[1] != '"')) {
        from += *from == '"';
        *to++ = *from++;
    }
    from += *from == '"';
    while (*from && *from != ',')
        *to++ = *from++;
    *to = 0; /* before from: a quote is gone */
    return from;
}

size_t csv_split(char *line, char **fields, size_t max)
{
    size_t count = 0;

    for (char *at = line; count < max;) {
        fields[count++] = at;
        char *end = *at == '"' ? unquote(at) : at + strcspn(at, ",");
        if (!*end)
            break;
        *end = 0;
        at = end + 1;
    }
    return count;
}

bool csv_find(char *const *fields, size_t count, const char *name, size_t *at)
{
    for (*at = 0; *at < count; ++*at)
        if (strcmp(fields[*at], name) == 0)
            return true;
    return false;
}

void csv_names(char *const *fields, size_t count, char *buffer, size_t size)
{
    size_t used = 0;

    *buffer = 0;
    for (size_t i = 0; i < count; i++) {
        int more = snprintf(buffer + used, size - used, "%s%s", i ? ", " : "", fields[i]);
        if (more < 0 || (size_t)more >= size - used) {
            snprintf(buffer + (used < size - 4 ? used : size - 4), 4, "...");
            return;
        }
        used += (size_t)more;
    }
}

bool csv_number(const char *text, double *number)
{
    char *end;

    errno = 0;
    *number = strtod(text, &end);
    return end != text && *end == 0 && errno == 0 && isfinite(*number);
}
