/* SPDX-License-Identifier: Apache-2.0
 *
 * intake - what a command of the scheduler does. Internal to the session.
 */
#ifndef WORKER_SHELL_INTAKE_H
#define WORKER_SHELL_INTAKE_H

#include "worker/shell/session.h"

/* Takes the record. Commands for other incarnations and of schedulers that are not the newest are
 * ignored; a request that cannot run becomes its Failed. */
bool intake_command(struct session *session, struct record *record, struct err *err);

#endif
