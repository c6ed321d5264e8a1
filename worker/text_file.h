/* SPDX-License-Identifier: Apache-2.0
 *
 * text_file - a small file of a directory as one string.
 */
#ifndef WORKER_TEXT_FILE_H
#define WORKER_TEXT_FILE_H

#include <stdbool.h>

#include "common/err.h"

enum { TEXT_FILE_SIZE_MAX = 16 << 20 }; /* configurations have kilobytes */

/* dir/name, NUL-terminated; *text is the caller's to free. A file that does not exist is no error
 * and gives NULL. */
bool text_file_read(const char *dir, const char *name, char **text, struct err *err);

#endif
