/* SPDX-License-Identifier: Apache-2.0
 *
 * exporter - the worker's numbers at /metrics, and whether it is ready: it is
 * while it has a lease.
 */
#ifndef WORKER_SHELL_EXPORTER_H
#define WORKER_SHELL_EXPORTER_H

#include "common/config.h"
#include "common/err.h"
#include "worker/shell/board.h"

struct exporter_values {
    const struct board_stats *stats;
    size_t held; /* requests */
    bool lease;
    uint64_t done, failed, yielded, chunks; /* messages sent so far */
};

struct exporter;

/* Without a server (metrics_port -1) the numbers are kept and nobody sees them. */
bool exporter_open(struct exporter **exporter, const struct config_common *common,
                   const struct engine_info *info, struct err *err);
void exporter_close(struct exporter *exporter); /* NULL is allowed */
void exporter_update(struct exporter *exporter, const struct exporter_values *values);

#endif
