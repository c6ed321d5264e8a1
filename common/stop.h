/* SPDX-License-Identifier: Apache-2.0
 *
 * stop - the flag that SIGTERM and SIGINT set.
 *
 * The first signal asks for an orderly end; the second one kills the process as it would have
 * without us, so that a hung drain can be interrupted. SIGPIPE is ignored.
 */
#ifndef COMMON_STOP_H
#define COMMON_STOP_H

#include <stdbool.h>

void stop_install(void);   /* from main(), before other threads start */
bool stop_requested(void); /* any thread */
void stop_request(void);   /* as if SIGTERM had come; any thread */

#endif
