/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/detok.h"

#include "common/check.h"

#include <string.h>

static const char replacement[] = "\xEF\xBF\xBD";

/* Size of the character that starts with lead; 0 if none does. */
static size_t character_size(unsigned char lead)
{
    if (lead < 0x80)
        return 1;
    if (lead >= 0xC2 && lead <= 0xDF)
        return 2;
    if (lead >= 0xE0 && lead <= 0xEF)
        return 3;
    return lead >= 0xF0 && lead <= 0xF4 ? 4 : 0;
}

/* May next follow part (size, at least 1)? The second byte excludes overlong forms, surrogates
 * and what lies above U+10FFFF (Unicode table 3-7). */
static bool may_follow(const unsigned char *part, size_t size, unsigned char next)
{
    unsigned char low = 0x80, high = 0xBF;

    if (size == 1 && part[0] == 0xE0)
        low = 0xA0;
    if (size == 1 && part[0] == 0xED)
        high = 0x9F;
    if (size == 1 && part[0] == 0xF0)
        low = 0x90;
    if (size == 1 && part[0] == 0xF4)
        high = 0x8F;
    return next >= low && next <= high;
}

static size_t replace(struct detok *detok, char *out)
{
    memcpy(out, replacement, sizeof replacement - 1);
    detok->held_size = 0;
    return sizeof replacement - 1;
}

static size_t push_byte(struct detok *detok, unsigned char byte, char *out)
{
    size_t written = 0;
    size_t whole;

    if (detok->held_size > 0 && !may_follow(detok->held, detok->held_size, byte))
        written = replace(detok, out);
    whole = detok->held_size > 0 ? character_size(detok->held[0]) : character_size(byte);
    if (whole == 0)
        return written + replace(detok, out + written);
    if (detok->held_size + 1 < whole) {
        CHECK(detok->held_size < sizeof detok->held);
        detok->held[detok->held_size++] = byte;
        return written;
    }
    memcpy(out + written, detok->held, detok->held_size);
    written += detok->held_size;
    detok->held_size = 0;
    out[written] = (char)byte;
    return written + 1;
}

void detok_init(struct detok *detok, bool strip_first_space)
{
    *detok = (struct detok){.strip_space = strip_first_space};
}

size_t detok_push(struct detok *detok, const char *bytes, size_t size, char *out)
{
    size_t written = 0;
    size_t from = 0;

    if (size > 0 && detok->strip_space) {
        detok->strip_space = false;
        from = bytes[0] == ' ' ? 1 : 0;
    }
    for (size_t i = from; i < size; i++)
        written += push_byte(detok, (unsigned char)bytes[i], out + written);
    CHECK(written <= DETOK_OUT_SIZE_MAX(size));
    return written;
}

size_t detok_finish(struct detok *detok, char *out)
{
    return detok->held_size > 0 ? replace(detok, out) : 0;
}
