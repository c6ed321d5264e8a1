/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "common/kafka_admin.h"
#include "common/stop.h"
#include "producer/command.h"
#include "producer/render.h"

struct options {
    struct session_options session;
    int64_t slots;
    int64_t partitions;
    int64_t replication;
};

static const struct config_key keys[] = {
    {.name = "slots",
     .type = CONFIG_INT,
     .offset = offsetof(struct options, slots),
     .default_value = "8",
     .min = 1,
     .max = 10000,
     .help = "Worker slots, and so partitions of assignments and worker-events."},
    {.name = "partitions",
     .type = CONFIG_INT,
     .offset = offsetof(struct options, partitions),
     .default_value = "4",
     .min = 1,
     .max = 1000,
     .help = "Partitions of requests, tokens, results and usage."},
    {.name = "replication",
     .type = CONFIG_INT,
     .offset = offsetof(struct options, replication),
     .default_value = "auto",
     .min = 1,
     .max = 9,
     .word = "auto",
     .help = "Replicas; auto: 3 with 2 in sync where there are three brokers, else 1."},
    SESSION_KEYS(struct options, session),
};

static const struct config_program program = {
    .name = "pelton topics",
    .version = PELTON_VERSION,
    .synopsis = "create|list [options]",
    .summary =
        "create: makes every topic with its partitions, replication and retention. Topics that\n"
        "exist stay as they are; where they differ from what would be made, that is said.\n"
        "list: compares without making any.",
    .epilogue =
        "Exit code: 0 (differences are warnings), 66 list: a topic is missing, 69 no answer\n"
        "from Kafka.",
    .keys = keys,
    .keys_count = sizeof keys / sizeof *keys,
    .arguments_max = 1,
};

enum { SETTINGS_MAX = 20 };

static void add_setting(const char **settings, size_t *count, const char *name, const char *value)
{
    settings[*count] = name;
    settings[*count + 1] = value;
    settings[*count + 2] = NULL;
    *count += 2;
}

/* The settings of a topic, names and values in turns. */
static void make_settings(enum topic topic, bool replicated, const char *settings[SETTINGS_MAX])
{
    const struct topic_spec *spec = &topic_specs[topic];
    size_t count = 0;

    add_setting(settings, &count, "cleanup.policy", spec->cleanup);
    add_setting(settings, &count, "retention.ms", spec->retention_ms);
    add_setting(settings, &count, "max.message.bytes", "18874368"); /* 18 MiB */
    add_setting(settings, &count, "min.insync.replicas", replicated ? "2" : "1");
    if (topic == TOPIC_REQUESTS_INTERACTIVE || topic == TOPIC_REQUESTS_BULK)
        /* The brokers' clock: the time of admission is a partition key of the ledger, and a
         * producer with a wrong clock must not reach into other years. */
        add_setting(settings, &count, "message.timestamp.type", "LogAppendTime");
    if (strcmp(spec->cleanup, "compact") == 0) {
        /* A takeover reads the whole topic: compaction runs within minutes, not at Kafka's leisure.
         */
        add_setting(settings, &count, "segment.ms", "600000");
        add_setting(settings, &count, "min.cleanable.dirty.ratio", "0.1");
        add_setting(settings, &count, "max.compaction.lag.ms", "3600000");
    }
}

static int32_t partitions_of(enum topic topic, const struct options *options)
{
    switch (topic) {
    case TOPIC_ASSIGNMENTS:
    case TOPIC_WORKER_EVENTS:
        return (int32_t)options->slots;
    case TOPIC_REQUESTS_INTERACTIVE:
    case TOPIC_REQUESTS_BULK:
    case TOPIC_TOKENS:
    case TOPIC_RESULTS:
    case TOPIC_USAGE:
        return (int32_t)options->partitions;
    default:
        return (int32_t)topic_specs[topic].partitions;
    }
}

static void print_topic(const struct kafka_topic *topic, const char *state, const char *difference,
                        bool json)
{
    if (json)
        render_event(stdout, "topic",
                     json_pack("{s:s, s:s, s:i, s:i, s:s}", "name", topic->name, "state", state,
                               "partitions", topic->partitions, "replication", topic->replication,
                               "difference", difference));
    else
        printf("%-32s %-9s %4d partitions  replication %d%s%s\n", topic->name, state,
               topic->partitions, topic->replication, *difference ? "  differs: " : "", difference);
}

static bool handle_topic(struct session *session, enum topic topic, const struct options *options,
                         int16_t replication, bool create, bool *missing, struct err *err)
{
    static const char *const states[] = {"created", "same", "differs"};
    const char *settings[SETTINGS_MAX];
    char name[TOPIC_NAME_SIZE_MAX];
    struct kafka_topic_report report;
    struct kafka_topic wanted = {.name = name,
                                 .partitions = partitions_of(topic, options),
                                 .replication = replication,
                                 .settings = settings};
    bool ok;

    session_topic(session, topic, name);
    make_settings(topic, replication >= 3, settings);
    ok = create ? kafka_topic_ensure(session->producer, &wanted, SESSION_TIMEOUT_MS, &report, err)
                : kafka_topic_check(session->producer, &wanted, SESSION_TIMEOUT_MS, &report, err);
    if (ok) {
        print_topic(&wanted, states[report.state], report.difference, options->session.json);
    } else if (!create && err->kind == ERR_REJECT) {
        print_topic(&wanted, "missing", "", options->session.json);
        *missing = true;
        ok = true;
    }
    return ok;
}

static int handle_topics(struct session *session, const struct options *options, bool create)
{
    int16_t replication = (int16_t)options->replication;
    bool missing = false;
    struct err err;
    int brokers;

    if (!kafka_broker_count(session->producer, SESSION_TIMEOUT_MS, &brokers, &err))
        return command_fail(stop_requested() ? EX_TEMPFAIL : EX_UNAVAILABLE, &err);
    if (replication == 0)
        replication = brokers >= 3 ? 3 : 1;
    for (int topic = 0; topic < TOPIC_COUNT; topic++)
        if (!handle_topic(session, (enum topic)topic, options, replication, create, &missing, &err))
            return command_fail(command_code(&err), &err);
    return missing ? EX_NOINPUT : EX_OK;
}

int command_topics(int argc, char **argv)
{
    struct options options = {.slots = 0}; /* a tenant there is not */
    struct session session;
    struct config *config;
    const char *what;
    int code;

    if (!command_configure(&config, &program, argc, argv, &options, &code))
        return code;
    session = (struct session){.options = &options.session};
    what = command_argument(config, "create or list");
    if (!what) {
        code = EX_USAGE;
    } else if (strcmp(what, "create") != 0 && strcmp(what, "list") != 0) {
        fprintf(stderr, "pelton: topics %s: expected create or list\n", what);
        code = EX_USAGE;
    } else if (command_open(&session, &options.session, config, SESSION_PRODUCES, &code)) {
        code = handle_topics(&session, &options, strcmp(what, "create") == 0);
    }
    session_close(&session);
    config_free(config);
    return code;
}
