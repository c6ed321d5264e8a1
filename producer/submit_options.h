/* SPDX-License-Identifier: Apache-2.0
 *
 * submit_options - what `pelton submit` can be told, and what its --help says.
 */
#ifndef PRODUCER_SUBMIT_OPTIONS_H
#define PRODUCER_SUBMIT_OPTIONS_H

#include "common/config.h"
#include "producer/session.h"

struct submit_options {
    struct session_options session;
    const char *batch; /* "": not given, as for the others */
    const char *retry;
    int class;
    int64_t window_us;
    bool stream;
    bool wait;
    const char *errors;
};

extern const struct config_program submit_program;

#endif
