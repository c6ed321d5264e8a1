/* SPDX-License-Identifier: Apache-2.0
 *
 * pelton-scheduler: see scheduler/shell.h for what it does, scheduler/settings.c for its options.
 */
#include "common/config.h"
#include "common/exits.h"
#include "common/log.h"
#include "common/stop.h"
#include "scheduler/exporter.h"
#include "scheduler/settings.h"
#include "scheduler/shell.h"

static int run(const struct settings *settings, const struct config *config)
{
    struct config_list no_effect = config_no_effect(config);
    struct shell_options options = {.settings = settings,
                                    .kafka_settings = config_kafka_settings(config)};
    struct lstm lstm;
    struct err err;

    if (settings->traffic_prediction && settings_predictor(settings) == PREDICT_LSTM) {
        if (!lstm_read(&lstm, settings->prediction_model_path, &err))
            return exits_with(EX_CONFIG, settings_program.name, &err);
        options.lstm = &lstm;
    }
    for (size_t i = 0; i < no_effect.count; i++)
        LOG_WARN("no_effect_yet", "key=%s", no_effect.items[i]);
    /* Said once: somebody who sets these keys for several ranks would look for the moves. */
    if (settings->expert_load_balancing)
        LOG_INFO("expert_placement", "ranks=1 load_balance_interval_ms=%lld reason=%s",
                 (long long)settings->load_balance_interval_us / 1000,
                 "one rank holds all experts, there is nothing to move");
    if (!exporter_open(&options.exporter, &settings->common, &err))
        return exits_with(exits_code(&err), settings_program.name, &err);
    bool ok = shell_run(&options, &err);
    exporter_close(options.exporter);
    if (!ok)
        return exits_with(exits_code(&err), settings_program.name, &err);
    LOG_INFO("stopped", "reason=signal");
    return EX_OK;
}

int main(int argc, char **argv)
{
    struct settings settings;
    struct config *config;
    enum config_outcome outcome;
    struct err err;

    if (!config_load(&config, &settings_program, argc, argv, &settings, &outcome, &err))
        return exits_with(exits_config_code(outcome), settings_program.name, &err);
    int code = EX_OK;
    if (outcome == CONFIG_RUN && !settings_check(&settings, &err)) {
        code = exits_with(EX_CONFIG, settings_program.name, &err);
    } else if (outcome == CONFIG_RUN) {
        log_open(settings_program.name, (enum log_level)settings.common.log_level);
        stop_install();
        code = run(&settings, config);
    }
    config_free(config);
    return code;
}
