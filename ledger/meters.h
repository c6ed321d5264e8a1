/* SPDX-License-Identifier: Apache-2.0
 *
 * meters - what pelton-ledger shows at /metrics and /readyz.
 *
 * The loop writes, the HTTP server's thread reads.
 */
#ifndef LEDGER_METERS_H
#define LEDGER_METERS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/metrics.h"
#include "ledger/store.h"

struct meters {
    struct metrics *metrics;
    struct metric *usage;
    struct metric *worker_time;
    struct metric *broken;
    struct metric *duplicates;
    struct metric *batches;
    struct metric *commit_seconds;
    struct metric *retries;
    struct metric *default_rows;
    struct metric *months_ahead;
    struct metric *epoch;
    pthread_mutex_t lock; /* of what follows */
    bool ready;
    char reason[240]; /* why not */
};

void meters_open(struct meters *meters);
void meters_close(struct meters *meters);

void meters_batch(struct meters *meters, const struct store_result *result, int64_t commit_us);
/* What is behind, and where the ledger stands, per partition. */
void meters_partition(struct meters *meters, int32_t partition, int64_t next, int64_t lag);
/* Connected to both sides; or waiting for one of them, and why. */
void meters_connected(struct meters *meters);
void meters_waiting(struct meters *meters, const struct err *err);

/* For struct metrics_http_options; context is the struct meters. */
bool meters_ready(void *context, char *reason, size_t reason_size);

#endif
