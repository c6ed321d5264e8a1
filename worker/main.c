/* SPDX-License-Identifier: Apache-2.0
 *
 * pelton-worker: worker/shell/session.h says what it does, worker/config.c has its options. Here
 * its parts are opened in the order in which they need each other, and closed in reverse.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/exits.h"
#include "common/log.h"
#include "common/stop.h"
#include "worker/config.h"
#include "worker/shell/session.h"

enum {
    ENGINE_WAITING = 2, /* batches that wait inside the engine, ready for the next step */
    TASKS = 16,         /* batches held in all: assign_ahead goes up to 8 */
    CLOSE_MS = 2000,
};

/* Said before anything is read: a path that leads nowhere is not a broken model. */
static bool find_model(const char *dir, struct err *err)
{
    static const char name[] = "config.json";
    char path[PATH_MAX];

    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
        return err_set(err, ERR_REJECT, "%.100s...: the path is too long", dir);
    return access(path, R_OK) == 0 ||
           err_set(err, ERR_REJECT, "no model in %.150s: %s: %s", dir, name, strerror(errno));
}

static bool open_engine(struct engine **engine, const struct worker_config *config, struct err *err)
{
    struct engine_config options = {
        .model_dir = config->model,
        .backend = config->backend,
        .numerics = (enum engine_numerics)config->numerics,
        .threads = (uint32_t)config->threads,
        .max_seqs = (uint32_t)config->max_batch_size,
        .max_waiting = ENGINE_WAITING * (uint32_t)config->max_batch_size,
        .max_context = (uint32_t)config->max_context,
        .chunk_tokens = (uint32_t)config->chunk_tokens,
        .step_us_target = (uint32_t)config->step_time_us,
        .prefix_cache = config->prefix_cache,
        .overlap = config->overlap,
        .kv_size = (size_t)config->kv_size,
    };

    return engine_open(engine, &options, err);
}

static bool open_runner(struct runner **runner, const struct worker_config *config,
                        struct engine *engine, const struct text *text, struct err *err)
{
    uint32_t batch = (uint32_t)config->max_batch_size;
    struct runner_options options = {
        .engine = engine,
        .text = text,
        .tasks_max = TASKS * batch,
        .engine_max = (1 + ENGINE_WAITING) * batch,
        .stream_tokens = (uint32_t)config->stream_tokens,
        .stream_us = config->stream_us,
        .progress_tokens = (uint32_t)config->progress_tokens,
        .progress_us = config->progress_us,
        .prefix_shared = config->prefix_cache_shared,
    };

    return runner_open(runner, &options, err);
}

static void wake(void *runner)
{
    runner_wake(runner);
}

struct parts {
    struct text *text;
    struct engine *engine;
    struct runner *runner;
    struct exporter *exporter;
    struct link *link;
    struct session session;
};

/* False: *code says more than err's kind. */
static bool open_model(struct parts *parts, const struct worker_config *config, int *code,
                       struct err *err)
{
    *code = EX_NOINPUT;
    if (!find_model(config->model, err))
        return false;
    if (!text_open(config->model, &parts->text, err) || !open_engine(&parts->engine, config, err)) {
        /* Besides its files, there are threads, memory, context and instruction set to be had. */
        *code = err->kind == ERR_REJECT ? EX_DATAERR : EX_CONFIG;
        return false;
    }
    return true;
}

static bool run(struct parts *parts, const struct worker_config *config,
                struct config_list kafka_settings, struct err *err)
{
    struct session_options options = {
        .slot = (uint32_t)config->slot,
        .tasks_max = TASKS * (uint32_t)config->max_batch_size,
        .lease_us = config->lease_us,
        .keep_us = config->keep_us,
        .drain_timeout_us = config->drain_timeout_us,
    };
    char hardware[32];

    if (!open_runner(&parts->runner, config, parts->engine, parts->text, err))
        return false;
    engine_info(parts->engine, &options.info);
    if (!exporter_open(&parts->exporter, &config->common, &options.info, err))
        return false;

    struct link_options link_options = {
        .common = &config->common,
        .kafka_settings = kafka_settings,
        .slot = options.slot,
        .wake = wake,
        .wake_context = parts->runner,
        .delivered = session_delivered,
        .delivered_context = &parts->session,
    };
    if (!link_open(&parts->link, &link_options, err) || !link_await(parts->link, err))
        return false;
    snprintf(hardware, sizeof hardware, "cpu-%ld",
             config->threads > 0 ? (long)config->threads : sysconf(_SC_NPROCESSORS_ONLN));
    options.text = parts->text;
    options.runner = parts->runner;
    options.exporter = parts->exporter;
    options.link = parts->link;
    options.hardware = config->hardware[0] != '\0' ? config->hardware : hardware;
    options.model_name =
        config->model_name[0] != '\0' ? config->model_name : options.info.model_name;
    return session_run(&parts->session, &options, err);
}

static int run_and_close(const struct worker_config *config, const struct config *loaded)
{
    struct config_list no_effect = config_no_effect(loaded);
    struct parts parts = {0};
    struct err err;
    int code;
    bool ok;

    for (size_t i = 0; i < no_effect.count; i++)
        LOG_WARN("no_effect_yet", "key=%s", no_effect.items[i]);
    ok = open_model(&parts, config, &code, &err);
    if (ok) {
        ok = run(&parts, config, config_kafka_settings(loaded), &err);
        /* A supervisor starts us again, except after EX_CONFIG: two workers that take each other's
         * slot would go on for ever. */
        code = ok ? EX_OK : exits_code(&err);
    }
    link_close(parts.link, ok ? 0 : CLOSE_MS); /* a Goodbye has flushed what could be flushed */
    exporter_close(parts.exporter);
    runner_close(parts.runner);
    engine_close(parts.engine);
    text_close(parts.text);
    if (!ok)
        return exits_with(code, worker_program.name, &err);
    LOG_INFO("stopped", "slot=%u reason=signal", (unsigned)config->slot);
    return EX_OK;
}

int main(int argc, char **argv)
{
    struct worker_config config;
    struct config *loaded;
    enum config_outcome outcome;
    struct err err;
    int code = EX_OK;

    if (!config_load(&loaded, &worker_program, argc, argv, &config, &outcome, &err))
        return exits_with(exits_config_code(outcome), worker_program.name, &err);
    if (outcome == CONFIG_RUN) {
        if (worker_config_check(&config, &err)) {
            log_open(worker_program.name, (enum log_level)config.common.log_level);
            stop_install();
            code = run_and_close(&config, loaded);
        } else {
            code = exits_with(EX_CONFIG, worker_program.name, &err);
        }
    }
    config_free(loaded);
    return code;
}
