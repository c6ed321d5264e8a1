/* SPDX-License-Identifier: Apache-2.0
 *
 * exporter - what the scheduler shows on /metrics, and when it is ready.
 *
 * The shell's thread updates it; the HTTP server's thread renders. Gauges of the core are those of
 * the leader; a stand-by shows zeros.
 */
#ifndef SCHEDULER_EXPORTER_H
#define SCHEDULER_EXPORTER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/config.h"
#include "common/err.h"
#include "scheduler/capacity.h"
#include "scheduler/scheduler.h"

struct exporter;

enum exporter_role {
    EXPORTER_CONNECTING, /* not ready: no broker, or not yet a member of the group */
    EXPORTER_STANDBY,    /* ready: leads when the leader is gone */
    EXPORTER_RECOVERING, /* not ready: leads, but reads its state first */
    EXPORTER_LEADING,    /* ready */
};

/* Serves on metrics_address and metrics_port of the configuration; -1: serves nothing. */
bool exporter_open(struct exporter **exporter, const struct config_common *common, struct err *err);
void exporter_close(struct exporter *exporter); /* NULL is allowed */

void exporter_role(struct exporter *exporter, enum exporter_role role);

/* One committed transaction of so many messages. */
void exporter_commit(struct exporter *exporter, int64_t commit_us, size_t messages);
/* A TICK step of the core alone. */
void exporter_tick(struct exporter *exporter, int64_t tick_us);
void exporter_reload(struct exporter *exporter); /* a term ended by a failure */
void exporter_fenced(struct exporter *exporter);

/* All gauges of the core; slots: how many workers there may be. */
void exporter_core(struct exporter *exporter, const struct scheduler *scheduler, uint32_t slots);
/* A decision of the planner. */
void exporter_plan(struct exporter *exporter, const struct capacity *capacity);
/* Zeros for them, and no plan (NaN): this process does not lead. */
void exporter_no_core(struct exporter *exporter);

/* Requests of a class that are not admitted yet, over all partitions. */
void exporter_lag(struct exporter *exporter, enum service_class service_class, int64_t messages);
void exporter_messages(struct exporter *exporter, uint64_t read_total, uint64_t unreadable_total);

#endif
