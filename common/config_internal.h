/* SPDX-License-Identifier: Apache-2.0
 *
 * config_internal - what the four files of config share; for nobody else.
 *
 * config.c knows the table and the command line, config_value.c single values, config_yaml.c
 * files, config_help.c the texts for people.
 */
#ifndef COMMON_CONFIG_INTERNAL_H
#define COMMON_CONFIG_INTERNAL_H

#include "common/arena.h"
#include "common/config.h"

enum { CONFIG_NAME_SIZE_MAX = 128, CONFIG_PLACE_SIZE_MAX = 160 };

enum config_origin { CONFIG_FROM_DEFAULT, CONFIG_FROM_FILE, CONFIG_FROM_COMMAND_LINE };

/* Where a value stands: a file and its line, or the command line. */
struct config_place {
    enum config_origin origin;
    const char *file;
    size_t line; /* 1-based */
};

struct config {
    struct arena arena;
    const struct config_program *program;
    void *values;
    struct config_place *places; /* of each key's value, by index in the table */
    struct config_list arguments;
    struct config_list kafka;
    struct config_list no_effect;
};

/* "file:line" or "command line" */
const char *config_place_format(struct config_place place, char text[CONFIG_PLACE_SIZE_MAX]);
void config_list_add(struct config *config, struct config_list *list, const char *item);

/* The key of a full name or alias, '-' read as '_'; NULL if unknown. */
const struct config_key *config_find(const struct config_program *program, const char *name);
/* Gives key a value: refuses repetition, checks, parses, stores. */
bool config_assign(struct config *config, const struct config_key *key, const char *text,
                   struct config_place place, struct err *err);
bool config_unknown(const struct config_program *program, const char *name,
                    struct config_place place, struct err *err);
/* key=value for librdkafka */
bool config_kafka_add(struct config *config, const char *text, struct config_place place,
                      struct err *err);

/* Parses text as the key's type and writes the member. place is for the message. */
bool config_store(struct config *config, const struct config_key *key, const char *text,
                  struct config_place place, struct err *err);
/* Writes false, 0, "" or the empty list. */
void config_store_zero(struct config *config, const struct config_key *key);
/* A number of the key's type as a person would write it: "500ms", "16MB", "20%". */
void config_format(const struct config_key *key, double number, char text[32]);

bool config_read_yaml(struct config *config, const char *name, FILE *file, const char *yaml,
                      struct err *err);

/* How the key is called on the command line, without "--": the last part of its name, or all of it.
 */
void config_option_name(const struct config_program *program, const struct config_key *key,
                        char name[CONFIG_NAME_SIZE_MAX]);

#endif
