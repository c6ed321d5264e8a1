/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/shell.h"

#include <stdio.h>

#include "common/clock.h"
#include "common/kafka.h"
#include "common/log.h"
#include "common/stop.h"
#include "common/topics.h"
#include "scheduler/leadership.h"
#include "scheduler/reader.h"
#include "scheduler/term.h"

enum {
    POLL_MS = 100,
    ASK_MS = 10000, /* the list of topics */
    RETRY_MS = 100, /* after a failed term; doubles from failure to failure */
    RETRY_MS_MAX = 5000,
    /* Brokers learn of new topics one after the other: what `pelton topics create` has just made
     * may be missing in the first answers. */
    CREATED_MS = 3000,
    COMMIT_MS_MAX = 30000, /* below the 60 s after which the broker aborts a transaction */
};

struct shell {
    const struct shell_options *options;
    const char *client_id;
    char transactional_id[TOPIC_NAME_SIZE_MAX];
    char group_id[TOPIC_NAME_SIZE_MAX];
    char lag_group_id[TOPIC_NAME_SIZE_MAX];
    char leader_topic[TOPIC_NAME_SIZE_MAX];
    struct leadership *leadership;
    int failures; /* terms in a row that ended without a healthy commit */
};

/* Of the clients that are opened later, once a broker has answered or at a takeover: a stand-by
 * whose settings cannot work would look healthy until it is needed. */
static bool shell_check_settings(const struct shell *shell, struct err *err)
{
    struct kafka_options options = {.brokers = shell->options->settings->common.brokers,
                                    .client_id = shell->client_id,
                                    .settings = shell->options->kafka_settings,
                                    .transactional_id = shell->transactional_id,
                                    .group_id = shell->group_id};

    return kafka_check(KAFKA_MEMBER, &options, err) &&
           kafka_check(KAFKA_TRANSACTIONAL, &options, err);
}

/* The first thing a new installation gets wrong, so it is said before anything else. Waits for a
 * broker as long as it takes: services start in any order. */
static bool shell_check_topics(const struct shell *shell, struct err *err)
{
    const struct settings *settings = shell->options->settings;
    struct reader_options options = {.brokers = settings->common.brokers,
                                     .client_id = shell->client_id,
                                     .settings = shell->options->kafka_settings,
                                     .group_id = shell->lag_group_id};
    const struct topic_map *topics;
    struct reader *reader;

    if (!reader_open(&reader, &options, err))
        return false;
    bool ok = false;
    int64_t give_up_us = clock_mono_us() + CREATED_MS * 1000;
    while (!stop_requested()) {
        ok = reader_topics(reader, settings->common.topic_prefix, ASK_MS, &topics, err);
        if (ok || (err->kind != ERR_RETRY && clock_mono_us() >= give_up_us))
            break;
        if (err->kind == ERR_RETRY && !stop_requested())
            log_err(LOG_LEVEL_WARN, "broker_away", err);
        clock_sleep_ms(RETRY_MS);
    }
    reader_close(reader);
    if (!ok && err->kind == ERR_REJECT)
        err->kind = ERR_RETRY; /* somebody may create them */
    return ok || stop_requested();
}

static bool shell_stand(struct shell *shell, struct err *err)
{
    const struct settings *settings = shell->options->settings;
    struct leadership_options options = {
        .brokers = settings->common.brokers,
        .client_id = shell->client_id,
        .settings = shell->options->kafka_settings,
        .group_id = shell->group_id,
        .topic = shell->leader_topic,
        .session_timeout_ms = settings->session_timeout_us / 1000,
    };

    LOG_INFO("standing_by", "group=%s", shell->group_id);
    exporter_role(shell->options->exporter, EXPORTER_CONNECTING);
    return leadership_open(&shell->leadership, &options, err);
}

/* Sleeps, but serves the group, and ends early with the lock or a signal. */
static bool shell_wait(struct shell *shell, int64_t wait_ms, struct err *err)
{
    int64_t until_us = clock_mono_us() + wait_ms * 1000;

    while (!stop_requested() && clock_mono_us() < until_us) {
        if (!shell->leadership)
            clock_sleep_ms(POLL_MS);
        else if (!leadership_poll(shell->leadership, POLL_MS, err))
            return false;
        else if (!leadership_held(shell->leadership))
            return true;
    }
    return true;
}

/* Leaves the group for a while. The wait differs between processes: the fenced ones must not come
 * back in step. */
static bool shell_resign(struct shell *shell, struct err *err)
{
    int64_t wait_ms = shell->options->settings->stand_by_us / 1000;

    exporter_fenced(shell->options->exporter);
    leadership_close(shell->leadership);
    shell->leadership = NULL;
    exporter_role(shell->options->exporter, EXPORTER_CONNECTING);
    wait_ms += wait_ms * (clock_mono_us() % 1000) / 1000;
    return shell_wait(shell, wait_ms, err) && (stop_requested() || shell_stand(shell, err));
}

static int64_t shell_doubled(int64_t first, int times, int64_t max)
{
    int64_t value = first;

    for (int i = 0; i < times && value < max; i++)
        value *= 2;
    return value < max ? value : max;
}

/* One term and what its end asks for. */
static bool shell_lead(struct shell *shell, struct err *err)
{
    int64_t commit_ms = shell->options->settings->commit_timeout_us / 1000;
    bool healthy = false;
    struct err why = {.kind = ERR_FATAL};
    struct term_options options = {
        .settings = shell->options->settings,
        .kafka_settings = shell->options->kafka_settings,
        .client_id = shell->client_id,
        .transactional_id = shell->transactional_id,
        .lag_group_id = shell->lag_group_id,
        .leadership = shell->leadership,
        .lstm = shell->options->lstm,
        .exporter = shell->options->exporter,
        .commit_timeout_ms = shell_doubled(commit_ms, shell->failures,
                                           commit_ms > COMMIT_MS_MAX ? commit_ms : COMMIT_MS_MAX),
    };
    enum term_end end = term_run(&options, &healthy, &why);

    if (healthy)
        shell->failures = 0;
    switch (end) {
    case TERM_STOPPED:
        return true;
    case TERM_LOST:
        log_err(LOG_LEVEL_WARN, "term_lost", &why);
        return true;
    case TERM_FENCED:
        log_err(LOG_LEVEL_WARN, "term_fenced", &why);
        return shell_resign(shell, err);
    case TERM_FAILED:
        log_err(LOG_LEVEL_WARN, "term_failed", &why);
        exporter_reload(shell->options->exporter);
        shell->failures++;
        return shell_wait(shell, shell_doubled(RETRY_MS, shell->failures - 1, RETRY_MS_MAX), err);
    case TERM_FATAL:
        break;
    }
    *err = why;
    return false;
}

static bool shell_loop(struct shell *shell, struct err *err)
{
    while (!stop_requested()) {
        if (!leadership_poll(shell->leadership, POLL_MS, err))
            return false;
        if (leadership_held(shell->leadership)) {
            if (!shell_lead(shell, err))
                return false;
        } else {
            exporter_role(shell->options->exporter, leadership_joined(shell->leadership)
                                                        ? EXPORTER_STANDBY
                                                        : EXPORTER_CONNECTING);
        }
    }
    return true;
}

bool shell_run(const struct shell_options *options, struct err *err)
{
    const struct config_common *common = &options->settings->common;
    struct shell shell = {
        .options = options,
        .client_id = common->client_id[0] ? common->client_id : settings_program.name,
    };

    snprintf(shell.group_id, sizeof shell.group_id, "%sscheduler", common->topic_prefix);
    snprintf(shell.transactional_id, sizeof shell.transactional_id, "%sscheduler",
             common->topic_prefix);
    snprintf(shell.lag_group_id, sizeof shell.lag_group_id, "%sscheduler-lag",
             common->topic_prefix);
    topic_name(shell.leader_topic, common->topic_prefix, TOPIC_LEADER);
    bool ok = shell_check_settings(&shell, err) && shell_check_topics(&shell, err) &&
              (stop_requested() || (shell_stand(&shell, err) && shell_loop(&shell, err)));
    leadership_close(shell.leadership);
    return ok;
}
