/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/stop_strings.h"

#include <string.h>

/* Does text (size) start with a stop string, or is it the start of one? */
static bool starts(const struct stop_strings *stops, const char *text, size_t size, bool whole)
{
    for (size_t i = 0; i < stops->count; i++) {
        struct str stop = stops->items[i];

        if (whole ? size >= stop.size : size < stop.size) {
            if (memcmp(text, stop.data, whole ? stop.size : size) == 0)
                return true;
        }
    }
    return false;
}

bool stop_strings_scan(const struct stop_strings *stops, const char *text, size_t size,
                       size_t scanned, size_t *safe)
{
    size_t back = 0; /* a stop string may have begun this far before `scanned` */
    size_t from;

    for (size_t i = 0; i < stops->count; i++)
        back = stops->items[i].size > back ? stops->items[i].size : back;
    from = scanned > back ? scanned - back : 0;
    for (*safe = from; *safe < size; (*safe)++) {
        if (starts(stops, text + *safe, size - *safe, true))
            return true;
    }
    for (*safe = from; *safe < size; (*safe)++) {
        if (starts(stops, text + *safe, size - *safe, false))
            break;
    }
    return false;
}
