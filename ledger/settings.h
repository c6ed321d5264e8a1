/* SPDX-License-Identifier: Apache-2.0
 *
 * settings - what can be set about pelton-ledger; the table is its manual.
 */
#ifndef LEDGER_SETTINGS_H
#define LEDGER_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/config.h"

struct settings {
    struct config_common common;
    const char *database;
    const char *database_role;
    int64_t batch_rows;
    int64_t batch_wait_us;
    int64_t lag_interval_us;
    int64_t partitions_interval_us;
    int64_t premake_interval_us;
    int64_t premake_months;
    bool once;
};

extern const struct config_program settings_program;

#endif
