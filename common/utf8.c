/* SPDX-License-Identifier: Apache-2.0 */
#include "common/utf8.h"

#include <stdint.h>
#include <string.h>

/* Bytes of the sequence that starts here, 0 if it is not well-formed (Unicode 15, table 3-7). */
static size_t sequence_size(const uint8_t *s, size_t size)
{
    uint8_t low = 0x80, high = 0xbf; /* of the second byte */
    size_t length;

    if (s[0] < 0x80)
        return 1;
    if (s[0] >= 0xc2 && s[0] <= 0xdf)
        length = 2;
    else if (s[0] >= 0xe0 && s[0] <= 0xef)
        length = 3;
    else if (s[0] >= 0xf0 && s[0] <= 0xf4)
        length = 4;
    else
        return 0;
    if (s[0] == 0xe0)
        low = 0xa0;
    else if (s[0] == 0xed)
        high = 0x9f; /* surrogates */
    else if (s[0] == 0xf0)
        low = 0x90;
    else if (s[0] == 0xf4)
        high = 0x8f;
    if (size < length || s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

size_t utf8_valid_size(const char *data, size_t size)
{
    const uint8_t *s = (const uint8_t *)data;
    size_t at = 0;

    while (at < size) {
        uint64_t eight;
        size_t step;

        if (size - at >= 8) { /* ASCII, eight at a time: bodies of 16 MB pass here */
            memcpy(&eight, s + at, 8);
            if (!(eight & 0x8080808080808080u)) {
                at += 8;
                continue;
            }
        }
        step = sequence_size(s + at, size - at);
        if (step == 0)
            break;
        at += step;
    }
    return at;
}

bool utf8_valid(const char *data, size_t size)
{
    return utf8_valid_size(data, size) == size;
}
