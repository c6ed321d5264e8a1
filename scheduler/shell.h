/* SPDX-License-Identifier: Apache-2.0
 *
 * shell - pelton-scheduler between its configuration and its exit code.
 *
 * Stands by in the leader's group and runs one term after another while it holds the lock. After
 * being fenced it leaves the group and waits before it stands by again: two processes that believe
 * to lead would otherwise fence each other for ever.
 */
#ifndef SCHEDULER_SHELL_H
#define SCHEDULER_SHELL_H

#include "common/config.h"
#include "common/err.h"
#include "scheduler/exporter.h"
#include "scheduler/settings.h"

struct shell_options {
    const struct settings *settings;
    struct config_list kafka_settings;
    const struct lstm *lstm; /* of prediction_model_path, or NULL */
    struct exporter *exporter;
};

/* Until SIGTERM or SIGINT: true. REJECT: a topic is missing or unusable; FATAL: what trying again
 * would not repair. */
bool shell_run(const struct shell_options *options, struct err *err);

#endif
