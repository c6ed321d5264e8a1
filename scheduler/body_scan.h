/* SPDX-License-Identifier: Apache-2.0
 *
 * body_scan - the answer length a request asks for, read from its JSON body in one pass.
 *
 * The scheduler only estimates with it, so this is no validator: it finds max_completion_tokens
 * or max_tokens at the top level of the object and stops. The worker parses the body properly and
 * rejects what is wrong. Any bytes are safe. Speed is that of one look at each byte.
 */
#ifndef SCHEDULER_BODY_SCAN_H
#define SCHEDULER_BODY_SCAN_H

#include <stddef.h>
#include <stdint.h>

#include "schemas/records.h"

/* The number, or missing where there is none; max_completion_tokens goes before max_tokens. */
uint32_t body_max_tokens(struct str body, uint32_t missing);

/* start stands behind an opening quote; the index of the closing one, or size. A body is mostly one
 * long prompt, so memchr() looks for quotes, and one behind an odd number of backslashes is none.
 */
size_t body_string_end(struct str body, size_t start);

/* The first index from i on that is no JSON white space, or size. */
size_t body_skip_space(struct str body, size_t i);

#endif
