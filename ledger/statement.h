/* SPDX-License-Identifier: Apache-2.0
 *
 * statement - the ledger's SQL statements and their parameters.
 *
 * Parameters travel in PostgreSQL's binary format: numbers big-endian, times as
 * microseconds since 2000, text as it is. So nothing is formatted, escaped or
 * terminated, and text with a NUL is refused by the server instead of being cut here.
 */
#ifndef LEDGER_STATEMENT_H
#define LEDGER_STATEMENT_H

#include <stddef.h>
#include <stdint.h>

#include "ledger/row.h"
#include "schemas/records.h"

enum { PARAMS_MAX = 24 };

/* Values of one execution, as PQexecPrepared() takes them. Text is pointed to, not copied; scalars
 * stand in scratch, so a struct params must not be moved once it has been filled. */
struct params {
    int count;
    const char *values[PARAMS_MAX];
    int sizes[PARAMS_MAX];
    int formats[PARAMS_MAX];
    uint8_t scratch[PARAMS_MAX][8];
};

enum statement {
    STATEMENT_USAGE,
    STATEMENT_WORKER_TIME,
    STATEMENT_ERROR,
    STATEMENT_CLAIM,
    STATEMENT_ADVANCE,
    STATEMENT_COUNT
};

struct statement_text {
    const char *name; /* of the prepared statement */
    const char *sql;
};
extern const struct statement_text statements[STATEMENT_COUNT];

void params_int(struct params *params, int64_t value);        /* int8 */
void params_int4(struct params *params, int32_t value);       /* int4 */
void params_text(struct params *params, struct str value);    /* text, bytea */
void params_time(struct params *params, int64_t ms);          /* timestamptz */
void params_uuid(struct params *params, const uint8_t *uuid); /* 16 bytes, pointed to */

/* Fills params for the statement that a row of this kind needs, and names it. */
enum statement statement_row(struct params *params, const char *topic, const struct row *row);

#endif
