/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger - the usage topic into PostgreSQL, exactly once.
 *
 * PostgreSQL holds the offsets, and they move in the transaction that books the rows,
 * so after any crash both tell the same story. One ledger books a topic at a time: it
 * holds a lock in PostgreSQL for as long as its session lives, and others stand by until
 * then. Behind the lock an epoch fences a ledger whose session was ended unnoticed: it
 * books nothing any more, connects again and stands by.
 *
 * There is one way to recover, whatever failed: drop everything that is not committed,
 * connect again, read the offsets, go on from there. Faults that pass are waited for,
 * from 100 ms up to 10 s between attempts.
 */
#ifndef LEDGER_LEDGER_H
#define LEDGER_LEDGER_H

#include <stdbool.h>

#include "common/config.h"
#include "common/err.h"
#include "ledger/meters.h"
#include "ledger/settings.h"

/* Runs until stop_requested(), or with settings->once until everything is booked that was committed
 * in the topic when the ledger connected. Returns an exit code of sysexits, and err unless it is
 * EX_OK: EX_CONFIG wrong settings or no migrations; EX_TEMPFAIL with once, another ledger books the
 * topic; EX_UNAVAILABLE the offsets do not fit the topic or the cluster, or, with once, Kafka or
 * PostgreSQL did not answer for 30 s. */
int ledger_run(const struct settings *settings, struct config_list kafka_settings,
               struct meters *meters, struct err *err);

#endif
