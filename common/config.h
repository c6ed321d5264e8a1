/* SPDX-License-Identifier: Apache-2.0
 *
 * config - one table per program: key, type, default, bounds, help.
 *
 * Values come from the table's defaults, then from the YAML file that --config names, then from the
 * command line, and are written once into a struct of the program, which treats it as const from
 * then on.
 *
 *     --base-batch-size 32, --base_batch_size=32, --batch_processing.base_batch_size 32
 *
 * Nested YAML keys are joined by dots: batch_processing: {base_batch_size: 32}. On the command line
 * '-' and
 * '_' are the same, the last part of a dotted name suffices where it is unique in the table, a bool
 * needs no value (--wait, --no-wait), short options exist for keys that have a letter (-o FILE),
 * and "--" ends the options. -X key=value collects librdkafka settings; in YAML they are the
 * mapping `kafka`; programs that are without Kafka refuse both.
 * --help, --version and --config FILE are always there.
 *
 * Durations: 500us 500ms 30s 15min (15m) 24h 7d; percentages: 20% or 0.2; sizes: 512, 64K 16MB 2GiB
 * (powers of 1024). A duration is not negative, unless the key's min is. An unknown or repeated
 * key, a value that does not parse or is out of bounds is an error with file, line, limit and, for
 * an unknown key, the nearest known one.
 */
#ifndef COMMON_CONFIG_H
#define COMMON_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/err.h"

enum config_type {
    CONFIG_BOOL,     /* bool; true|false|yes|no|on|off */
    CONFIG_INT,      /* int64_t */
    CONFIG_SIZE,     /* int64_t, bytes */
    CONFIG_DURATION, /* int64_t, microseconds; bounds are in microseconds, too */
    CONFIG_PERCENT,  /* double, 0.2 for 20% */
    CONFIG_DOUBLE,   /* double */
    CONFIG_STRING,   /* const char *, owned by struct config, never NULL */
    CONFIG_CHOICE,   /* int, index into choices */
    CONFIG_LIST, /* struct config_list; may be given repeatedly, YAML sequence or comma-separated */
};

struct config_list {
    const char *const *items; /* owned by struct config */
    size_t count;
};

struct config_key {
    const char *name;  /* dotted, as in YAML */
    const char *alias; /* another full name of the same key, or NULL */
    char letter;       /* short option, or 0 */
    enum config_type type;
    size_t offset;             /* offsetof(program's struct, member) */
    const char *default_value; /* as text; NULL: false, 0, "", empty list */
    double min, max;           /* of numbers, both 0: no bounds */
    const char *choices;       /* "a|b|c" for CONFIG_CHOICE */
    const char *word; /* a word allowed instead of a number ("auto"), stored as word_value */
    int64_t word_value;
    /* CONFIG_STRING: what was expected instead of text, NULL where it is good. NULL: any text is.
     */
    const char *(*refuse)(const char *text);
    bool no_effect; /* accepted, but its feature is not there yet: one notice when it is set */
    const char *value_name; /* in --help; NULL: from the type */
    const char *help;       /* one sentence */
};

struct config_program {
    const char *name;     /* "pelton-scheduler" */
    const char *version;  /* PELTON_VERSION */
    const char *synopsis; /* "[--config FILE] [options]" */
    const char *summary;  /* what the program does, a few lines */
    const char *epilogue; /* after the options: examples, exit codes; NULL for none */
    const struct config_key *keys;
    size_t keys_count;
    size_t arguments_max; /* positional arguments allowed */
    bool without_kafka;   /* neither -X nor `kafka:` */
};

enum config_outcome {
    CONFIG_RUN,      /* go on */
    CONFIG_EXIT,     /* --help or --version was printed to standard output: exit with 0 */
    CONFIG_BAD_FILE, /* config_load() is false because of the file, not of the command line */
};

struct config; /* owns the strings that the values point to */

/* argv[0] is skipped. values is the program's struct; every key writes its member. False: REJECT
 * with one line for the user (exit with EX_USAGE or EX_CONFIG); *config is NULL then. */
bool config_load(struct config **config, const struct config_program *program, int argc,
                 char *const *argv, void *values, enum config_outcome *outcome, struct err *err);
/* The same from YAML text without file or command line, for tests; name appears in errors. */
bool config_load_text(struct config **config, const struct config_program *program,
                      const char *name, const char *yaml, void *values, struct err *err);
void config_free(struct config *config); /* NULL is allowed */

struct config_list config_arguments(const struct config *config); /* positional */
/* "key=value" librdkafka settings from -X and `kafka:`, in order: later ones win. */
struct config_list config_kafka_settings(const struct config *config);
/* Keys with no_effect that were set, for the caller to log, one event each. */
struct config_list config_no_effect(const struct config *config);
/* Was this key (its name in the table) given, by file or command line? */
bool config_given(const struct config *config, const char *name);

/* What every program needs to reach Kafka, to log and to be watched. CONFIG_COMMON_KEYS(struct
 * program_config, common) puts the keys of its member `common` into the table. */
struct config_common {
    const char *brokers;
    const char *topic_prefix;
    const char *client_id; /* "": the program's name */
    int log_level;         /* enum log_level */
    const char *metrics_address;
    int64_t metrics_port; /* 0: any free one; -1: no server */
};

#define CONFIG_COMMON_KEYS(owner, member) CONFIG_COMMON_KEYS_LOGGING(owner, member, "info")
#define CONFIG_COMMON_KEYS_LOGGING(owner, member, level)                                           \
    {.name = "brokers",                                                                            \
     .type = CONFIG_STRING,                                                                        \
     .offset = offsetof(owner, member.brokers),                                                    \
     .default_value = "127.0.0.1:9092",                                                            \
     .value_name = "HOST:PORT,...",                                                                \
     .refuse = config_refuse_brokers,                                                              \
     .help = "Kafka brokers to start from."},                                                      \
        {.name = "topic_prefix",                                                                   \
         .type = CONFIG_STRING,                                                                    \
         .offset = offsetof(owner, member.topic_prefix),                                           \
         .default_value = "pelton.",                                                               \
         .refuse = config_refuse_topic_prefix,                                                     \
         .help = "Put before the name of every topic."},                                           \
        {.name = "client_id",                                                                      \
         .type = CONFIG_STRING,                                                                    \
         .offset = offsetof(owner, member.client_id),                                              \
         .default_value = "",                                                                      \
         .help = "Kafka client id; the program's name where empty."},                              \
    {                                                                                              \
        .name = "log_level", .type = CONFIG_CHOICE, .offset = offsetof(owner, member.log_level),   \
        .default_value = level, .choices = "debug|info|warn|error",                                \
        .help = "Least severity that is logged."                                                   \
    }

/* For the programs that serve /metrics, beside CONFIG_COMMON_KEYS. */
#define CONFIG_METRICS_KEYS(owner, member)                                                         \
    {.name = "metrics_address",                                                                    \
     .type = CONFIG_STRING,                                                                        \
     .offset = offsetof(owner, member.metrics_address),                                            \
     .default_value = "127.0.0.1",                                                                 \
     .help = "Where /metrics, /healthz and /readyz are served."},                                  \
    {                                                                                              \
        .name = "metrics_port", .type = CONFIG_INT,                                                \
        .offset = offsetof(owner, member.metrics_port), .default_value = "0", .min = -1,           \
        .max = 65535, .help = "Port for it; 0 takes a free one, -1 serves nothing."                \
    }

/* For `refuse` of these keys. */
const char *config_refuse_brokers(const char *text);
const char *config_refuse_topic_prefix(const char *text);

void config_help(const struct config_program *program, FILE *out);

/* The readers of single values, for other texts that use the same notation. */
bool config_parse_duration_us(const char *text, int64_t *us);
bool config_parse_size(const char *text, int64_t *size);

#endif
