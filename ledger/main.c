/* SPDX-License-Identifier: Apache-2.0
 *
 * pelton-ledger: configuration, metrics, and the loop of ledger/ledger.h.
 */
#include "common/exits.h"
#include "common/log.h"
#include "common/metrics_http.h"
#include "common/stop.h"
#include "ledger/ledger.h"
#include "ledger/meters.h"
#include "ledger/settings.h"

static bool serve_metrics(struct metrics_http **server, const struct config_common *common,
                          struct meters *meters, struct err *err)
{
    struct metrics_http_options options = {
        .address = common->metrics_address,
        .port = (uint16_t)common->metrics_port,
        .metrics = meters->metrics,
        .ready = meters_ready,
        .context = meters,
    };

    if (common->metrics_port < 0)
        return true;
    if (!metrics_http_open(server, &options, err))
        return false;
    LOG_INFO("metrics", "address=%s port=%d", common->metrics_address,
             (int)metrics_http_port(*server));
    return true;
}

int main(int argc, char **argv)
{
    struct settings settings;
    struct config *config;
    enum config_outcome outcome;
    struct meters meters;
    struct metrics_http *server = NULL;
    struct err err;

    if (!config_load(&config, &settings_program, argc, argv, &settings, &outcome, &err)) {
        return exits_with(exits_config_code(outcome), settings_program.name, &err);
    }
    if (outcome == CONFIG_EXIT)
        return EX_OK;
    log_open(settings_program.name, (enum log_level)settings.common.log_level);
    stop_install();
    meters_open(&meters);
    LOG_INFO("start", "version=%s brokers=%s", settings_program.version, settings.common.brokers);
    int status;
    if (serve_metrics(&server, &settings.common, &meters, &err))
        status = ledger_run(&settings, config_kafka_settings(config), &meters, &err);
    else
        status = exits_code(&err);
    if (status != EX_OK)
        exits_with(status, settings_program.name, &err);
    else
        LOG_INFO("end", "usage=%.0f worker_time=%.0f broken=%.0f duplicates=%.0f",
                 metric_value(meters.usage), metric_value(meters.worker_time),
                 metric_value(meters.broken), metric_value(meters.duplicates));
    metrics_http_close(server);
    meters_close(&meters);
    config_free(config);
    return status;
}
