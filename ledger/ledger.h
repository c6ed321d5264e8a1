/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger - the usage topic into PostgreSQL, exactly once.
 *
 * PostgreSQL holds the offsets, and they move in the transaction that books the rows,
 * so after any crash both tell the same story. An epoch that each ledger takes at its
 * start fences the ones before it: a ledger that was paused finds its offsets owned by
 * another, books nothing and ends.
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
 * in the topic when the ledger connected. False, FATAL: another ledger has taken over, or the
 * offsets do not fit the topic or the cluster. */
bool ledger_run(const struct settings *settings, struct config_list kafka_settings,
                struct meters *meters, struct err *err);

#endif
