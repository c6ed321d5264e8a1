/* SPDX-License-Identifier: Apache-2.0 */
#include "common/exits.h"

#include <stdio.h>

#include "common/escape.h"

int exits_with(int code, const char *program, const struct err *err)
{
    escape_line(stderr, "%s: %s", program, err->message);
    return code;
}

int exits_code(const struct err *err)
{
    switch (err->kind) {
    case ERR_REJECT:
        return EX_CONFIG;
    case ERR_FATAL:
        return EX_SOFTWARE;
    default:
        return EX_UNAVAILABLE;
    }
}

int exits_config_code(enum config_outcome outcome)
{
    return outcome == CONFIG_BAD_FILE ? EX_CONFIG : EX_USAGE;
}
