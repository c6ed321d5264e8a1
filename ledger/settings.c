/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/settings.h"

#include <stddef.h>

enum { SECOND_US = 1000000 };

static const struct config_key keys[] = {
    CONFIG_COMMON_KEYS(struct settings, common),
    CONFIG_METRICS_KEYS(struct settings, common),
    {.name = "database",
     .type = CONFIG_STRING,
     .offset = offsetof(struct settings, database),
     .default_value = "",
     .value_name = "CONNINFO",
     .help = "PostgreSQL connection string or URI; what it lacks comes from PGHOST, PGPORT, "
             "PGUSER, PGDATABASE and their like, passwords best from ~/.pgpass."},
    {.name = "database_role",
     .type = CONFIG_STRING,
     .offset = offsetof(struct settings, database_role),
     .default_value = "pelton_ledger",
     .help = "Role to act as, so that a powerful login does no more than it needs; empty keeps "
             "the login's."},
    {.name = "batch_rows",
     .type = CONFIG_INT,
     .offset = offsetof(struct settings, batch_rows),
     .default_value = "2000",
     .min = 1,
     .max = 20000,
     .help = "Most rows of one SQL transaction."},
    {.name = "batch_wait",
     .type = CONFIG_DURATION,
     .offset = offsetof(struct settings, batch_wait_us),
     .default_value = "200ms",
     .min = 1000,
     .max = 60.0 * SECOND_US,
     .help = "Longest time that a row waits for others to share its transaction."},
    {.name = "lag_interval",
     .type = CONFIG_DURATION,
     .offset = offsetof(struct settings, lag_interval_us),
     .default_value = "2s",
     .min = 100000,
     .max = 3600.0 * SECOND_US,
     .help = "How often the ends of the partitions are asked for, for the lag metric."},
    {.name = "partitions_interval",
     .type = CONFIG_DURATION,
     .offset = offsetof(struct settings, partitions_interval_us),
     .default_value = "30s",
     .min = 1.0 * SECOND_US,
     .max = 86400.0 * SECOND_US,
     .help = "How often new partitions of the usage topic are looked for."},
    {.name = "premake_interval",
     .type = CONFIG_DURATION,
     .offset = offsetof(struct settings, premake_interval_us),
     .default_value = "1h",
     .min = 1.0 * SECOND_US,
     .max = 7.0 * 86400 * SECOND_US,
     .help = "How often the table's partitions of coming months are made."},
    {.name = "premake_months",
     .type = CONFIG_INT,
     .offset = offsetof(struct settings, premake_months),
     .default_value = "3",
     .min = 1,
     .max = 120,
     .help = "How many months ahead they are made."},
    {.name = "once",
     .type = CONFIG_BOOL,
     .offset = offsetof(struct settings, once),
     .help = "Book what is there now and exit."},
};

const struct config_program settings_program = {
    .name = "pelton-ledger",
    .version = PELTON_VERSION,
    .synopsis = "[--config FILE] [options]",
    .summary = "Writes the usage topic into PostgreSQL, exactly once: rows and the next offset "
               "are one SQL\ntransaction. A record that cannot be booked goes to the table "
               "ledger_error and stops nothing.\nRuns until SIGTERM; a lost database or broker "
               "is waited for. A second ledger stands by until the first one ends.",
    .epilogue = "Exit codes: 0 stopped or done, 64 an option, 78 wrong configuration or no tables, "
                "69 cannot go\non: the topic is missing or the stored offsets do not fit it, the "
                "metrics port is taken,\nor with --once Kafka or PostgreSQL did not answer for 30 "
                "s; 75 with --once: another\nledger books the topic.\n",
    .keys = keys,
    .keys_count = sizeof keys / sizeof *keys,
};
