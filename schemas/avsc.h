/* SPDX-License-Identifier: Apache-2.0
 *
 * avsc - the .avsc files, byte for byte; avsc.c is made of them by schemas/embed.cmake.
 *
 * Past versions stand in schemas/past; its README.md says how a schema is changed.
 */
#ifndef SCHEMAS_AVSC_H
#define SCHEMAS_AVSC_H

#include "schemas/records.h"

extern const char *const avsc_texts[RECORD_TYPE_COUNT];
extern const char *const avsc_past_texts[]; /* NULL at the end */

#endif
