/* SPDX-License-Identifier: Apache-2.0
 *
 * row - what one record of the usage topic means to the ledger.
 *
 * Every record becomes exactly one row: a usage row, a worker_time row, or, where it
 * cannot be read or says something that cannot be, a broken one that goes to
 * ledger_error with its reason. A broken record never stops the ones around it.
 *
 * The checks are those that the database would make, so that a batch rarely fails
 * there; what only the database sees (a CHECK of a newer migration) is handled in
 * ledger/store.h. No I/O here.
 */
#ifndef LEDGER_ROW_H
#define LEDGER_ROW_H

#include <stddef.h>
#include <stdint.h>

#include "schemas/codec.h"
#include "schemas/records.h"

enum row_kind { ROW_USAGE, ROW_WORKER_TIME, ROW_BROKEN };

struct row {
    enum row_kind kind;
    int32_t partition; /* where the record stands */
    int64_t offset;
    const void *data; /* the record's bytes; not the row's own */
    size_t size;
    struct record *record; /* USAGE, WORKER_TIME: the row's own, until row_free() */
    char reason[240];      /* BROKEN: printable ASCII */
};

/* Fills kind, record and reason from data and size. */
void row_read(struct row *row, struct codec *codec);
/* Says that the database refused the row: it becomes a broken one. */
void row_refuse(struct row *row, const char *reason);
void row_free(struct row *row);

#endif
