/* SPDX-License-Identifier: Apache-2.0
 *
 * config - the worker's options; the table in config.c is their manual, and
 * ops/config/worker.yaml shows them as a file.
 */
#ifndef WORKER_CONFIG_H
#define WORKER_CONFIG_H

#include "common/config.h"
#include "schemas/records.h"
#include "worker/engine.h"

struct worker_config {
    struct config_common common;
    int64_t slot;
    const char *model;      /* directory */
    const char *model_name; /* "": the model's own */
    int role;               /* enum worker_role */
    int numerics;           /* enum engine_numerics */
    const char *backend;
    int64_t threads;
    int64_t max_batch_size;
    int64_t kv_size;
    int64_t max_context;
    int64_t chunk_tokens;
    int64_t step_time_us;
    bool overlap;
    bool prefix_cache;
    bool prefix_cache_shared;
    const char *hardware; /* "": cpu-<threads> */
    int64_t lease_us;
    int64_t keep_us;
    int64_t drain_timeout_us;
    int64_t stream_tokens;
    int64_t stream_us;
    int64_t progress_tokens;
    int64_t progress_us;
};

extern const struct config_program worker_program;

/* What the table cannot say. REJECT with one line for the user. */
bool worker_config_check(const struct worker_config *config, struct err *err);

#endif
