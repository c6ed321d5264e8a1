/* SPDX-License-Identifier: Apache-2.0
 *
 * utf8 - is this well-formed UTF-8?
 *
 * Overlong forms, surrogates and code points above U+10FFFF are not. NUL is a character.
 */
#ifndef COMMON_UTF8_H
#define COMMON_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Size of the longest well-formed start, in bytes; equals size where all is well. */
size_t utf8_valid_size(const char *data, size_t size);
bool utf8_valid(const char *data, size_t size);

#endif
