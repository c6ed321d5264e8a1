/* SPDX-License-Identifier: Apache-2.0
 *
 * sqlstate - whom a failure of PostgreSQL is about: a record, the moment, or the installation.
 *
 * Codes: PostgreSQL's manual, appendix A; PL001 to PL003: migrations/deploy/kafka_offset.sql.
 * Pure functions.
 */
#ifndef LEDGER_SQLSTATE_H
#define LEDGER_SQLSTATE_H

#include <stdbool.h>

#include "common/err.h"

/* REJECT: the record. RETRY: the moment, or what somebody has to mend. FATAL: another ledger or
 * topic. ABORT: unknown, a lost connection (NULL) included; it may be of the records. */
enum err_kind sqlstate_kind(const char *state);

/* When a session is opened: is it wrong however often it is tried? A role that is not there or not
 * ours to take, and tables, functions or columns that are missing. NULL is allowed. */
bool sqlstate_stays(const char *state);

/* The same for the text of a connection that failed, since libpq gives no code there: options that
 * it does not know, a role or database that the server does not have, a login that it does not let
 * in (class 28). The texts are English: libpq's, because nothing calls setlocale(); a server that
 * speaks otherwise is waited for. So are LDAP, RADIUS, PAM and GSSAPI, whose own servers may be
 * away. */
bool sqlstate_refused(const char *text);

#endif
