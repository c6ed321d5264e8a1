/* SPDX-License-Identifier: Apache-2.0
 *
 * suspect - which record keeps a working database from taking a batch.
 *
 * An ABORT of store_write() says neither that the database is in trouble nor which record it does
 * not take. After three of them the ledger books record by record; the one that meets three more,
 * each on a connection that took everything before it, is a broken one. Pure: no clock, no I/O.
 */
#ifndef LEDGER_SUSPECT_H
#define LEDGER_SUSPECT_H

#include <stdbool.h>
#include <stdint.h>

#include "ledger/row.h"

/* Zero is the start. */
struct suspect {
    int batch_aborts; /* since a whole batch was booked */
    int row_aborts;   /* of the one record below */
    int32_t partition;
    int64_t offset;
};

/* The records of a batch are to be booked one by one. */
bool suspect_alone(const struct suspect *suspect);
/* This record, alone, is not to be tried again. */
bool suspect_guilty(const struct suspect *suspect, const struct row *row);
/* The record met an ABORT while it was alone. */
void suspect_row_aborted(struct suspect *suspect, const struct row *row);
void suspect_batch_aborted(struct suspect *suspect);
/* Every record of the batch is booked. */
void suspect_batch_booked(struct suspect *suspect);

#endif
