/* SPDX-License-Identifier: Apache-2.0
 *
 * term - one time of leading, from the lock to its end.
 *
 * Initialises the transactional id, recovers a core from Kafka and then ticks: reads messages,
 * steps the core, and sends what it answers in one transaction a tick (R3). The time between two
 * ticks follows the last commit's duration within tick_min and tick_max. A term repairs nothing:
 * whatever goes wrong ends it, and the next one begins from Kafka again (R4).
 */
#ifndef SCHEDULER_TERM_H
#define SCHEDULER_TERM_H

#include <stdbool.h>

#include "common/config.h"
#include "common/err.h"
#include "scheduler/exporter.h"
#include "scheduler/leadership.h"
#include "scheduler/settings.h"

struct term_options {
    const struct settings *settings;
    struct config_list kafka_settings;
    const char *client_id;
    const char *transactional_id;
    const char *lag_group_id;
    struct leadership *leadership; /* held */
    const struct lstm *lstm;       /* the planner's; NULL where it needs none */
    struct exporter *exporter;
    int64_t commit_timeout_ms; /* for this term; the caller lengthens it after failures */
};

enum term_end {
    TERM_STOPPED, /* SIGTERM */
    TERM_LOST,    /* the lock went to another process: stand by */
    TERM_FENCED,  /* another process has initialised our transactional id: leave the group */
    TERM_FAILED,  /* a new term may do better */
    TERM_FATAL,   /* trying again would not help */
};

/* Returns when the term has ended. err says why, except for STOPPED. *healthy: it has committed
 * within the configured commit_timeout. */
enum term_end term_run(const struct term_options *options, bool *healthy, struct err *err);

#endif
