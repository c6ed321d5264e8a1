/* SPDX-License-Identifier: Apache-2.0
 *
 * Works on libyaml's events, so that every error has its line. Anchors, aliases and tags have no
 * use in a table of keys and are refused.
 */
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "common/check.h"
#include "common/config_internal.h"

enum { DEPTH_MAX = 8 };

struct reader {
    struct config *config;
    const char *name; /* of the file */
    yaml_parser_t parser;
};

static struct config_place place_of(const struct reader *reader, const yaml_event_t *event)
{
    return (struct config_place){
        .origin = CONFIG_FROM_FILE, .file = reader->name, .line = event->start_mark.line + 1};
}

static bool fail(const struct reader *reader, const yaml_event_t *event, const char *text,
                 struct err *err)
{
    char where[CONFIG_PLACE_SIZE_MAX];

    return err_set(err, ERR_REJECT, "%s: %s", config_place_format(place_of(reader, event), where),
                   text);
}

/* The next event, which the caller deletes. */
static bool next(struct reader *reader, yaml_event_t *event, struct err *err)
{
    const yaml_parser_t *parser = &reader->parser;
    bool ok;

    if (!yaml_parser_parse(&reader->parser, event))
        return err_set(err, ERR_REJECT, "%s:%zu: not YAML: %s", reader->name,
                       parser->problem_mark.line + 1,
                       parser->problem ? parser->problem : "unreadable");
    ok = event->type != YAML_ALIAS_EVENT &&
         !(event->type == YAML_SCALAR_EVENT && event->data.scalar.anchor) &&
         !(event->type == YAML_MAPPING_START_EVENT && event->data.mapping_start.anchor);
    if (!ok) {
        fail(reader, event, "anchors and aliases are not supported", err);
        yaml_event_delete(event);
    }
    return ok;
}

static const char *text_of(const yaml_event_t *event)
{
    return (const char *)event->data.scalar.value;
}

/* Is it the first part of dotted keys, as in `batch_processing: {...}`? */
static bool is_mapping(const struct config_program *program, const char *name)
{
    size_t size = strlen(name);

    if (strcmp(name, "kafka") == 0)
        return !program->without_kafka;
    for (size_t i = 0; i < program->keys_count; i++)
        if (strncmp(program->keys[i].name, name, size) == 0 && program->keys[i].name[size] == '.')
            return true;
    return false;
}

/* A value under a name that is no key. */
static bool refuse(const struct reader *reader, const char *name, const yaml_event_t *event,
                   struct err *err)
{
    char text[CONFIG_NAME_SIZE_MAX + 100];

    if (!is_mapping(reader->config->program, name))
        return config_unknown(reader->config->program, name, place_of(reader, event), err);
    snprintf(text, sizeof text, "%s takes a mapping of keys, one a line and indented", name);
    return fail(reader, event, text, err);
}

static bool assign(struct reader *reader, const char *name, const yaml_event_t *key_event,
                   const yaml_event_t *value, struct err *err)
{
    const struct config_program *program = reader->config->program;
    const struct config_key *key = config_find(program, name);
    char pair[512];

    if (strncmp(name, "kafka.", 6) == 0 && !program->without_kafka) {
        int size = snprintf(pair, sizeof pair, "%s=%s", name + 6, text_of(value));
        if (size < 0 || (size_t)size >= sizeof pair)
            return fail(reader, value, "a Kafka setting of more than 500 bytes", err);
        return config_kafka_add(reader->config, pair, place_of(reader, value), err);
    }
    if (!key)
        return refuse(reader, name, key_event, err);
    if (strlen(text_of(value)) != value->data.scalar.length)
        return fail(reader, value, "a value with a NUL byte", err);
    if (value->data.scalar.length == 0 && value->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
        return fail(reader, value, "a key without a value", err);
    return config_assign(reader->config, key, text_of(value), place_of(reader, value), err);
}

/* The items of a sequence, joined by commas as on the command line. */
static bool read_sequence(struct reader *reader, const char *name, const yaml_event_t *start,
                          struct err *err)
{
    const struct config_key *key = config_find(reader->config->program, name);
    char items[4096] = "";
    size_t size = 0;

    if (!key)
        return refuse(reader, name, start, err);
    if (key->type != CONFIG_LIST)
        return fail(reader, start, "a list where one value is expected", err);
    for (;;) {
        yaml_event_t event;
        bool is_scalar, is_end, fits;

        if (!next(reader, &event, err))
            return false;
        is_scalar = event.type == YAML_SCALAR_EVENT;
        is_end = event.type == YAML_SEQUENCE_END_EVENT;
        fits = is_scalar && size + event.data.scalar.length + 2 <= sizeof items;
        if (fits) {
            memcpy(items + size, text_of(&event), event.data.scalar.length);
            size += event.data.scalar.length;
            items[size++] = ',';
            items[size] = '\0';
        } else if (!is_end) {
            fail(reader, &event, is_scalar ? "a list of more than 4096 bytes" : "a list in a list",
                 err);
        }
        yaml_event_delete(&event);
        if (is_end)
            return config_assign(reader->config, key, items, place_of(reader, start), err);
        if (!fits)
            return false;
    }
}

static bool read_mapping(struct reader *reader, const char *prefix, int depth, struct err *err);

static bool read_value(struct reader *reader, const char *name, const yaml_event_t *key, int depth,
                       struct err *err)
{
    yaml_event_t value;
    bool ok;

    if (!next(reader, &value, err))
        return false;
    if (value.type == YAML_SCALAR_EVENT)
        ok = assign(reader, name, key, &value, err);
    else if (value.type == YAML_SEQUENCE_START_EVENT)
        ok = read_sequence(reader, name, &value, err);
    else
        ok = depth < DEPTH_MAX ? read_mapping(reader, name, depth + 1, err)
                               : fail(reader, &value, "nested too deeply", err);
    yaml_event_delete(&value);
    return ok;
}

/* Everything up to the mapping's end; its start has been read. */
static bool read_mapping(struct reader *reader, const char *prefix, int depth, struct err *err)
{
    for (;;) {
        char name[CONFIG_NAME_SIZE_MAX];
        yaml_event_t key;
        bool ok;

        if (!next(reader, &key, err))
            return false;
        if (key.type == YAML_MAPPING_END_EVENT) {
            yaml_event_delete(&key);
            return true;
        }
        if (key.type != YAML_SCALAR_EVENT ||
            strlen(prefix) + key.data.scalar.length + 2 > sizeof name) {
            ok = fail(reader, &key, "expected a key of at most 120 bytes", err);
        } else {
            snprintf(name, sizeof name, "%s%s%s", prefix, *prefix ? "." : "", text_of(&key));
            ok = read_value(reader, name, &key, depth, err);
        }
        yaml_event_delete(&key);
        if (!ok)
            return false;
    }
}

static bool read_document(struct reader *reader, struct err *err)
{
    bool seen = false;

    for (;;) {
        yaml_event_t event;
        yaml_event_type_t type;
        bool ok = true;

        if (!next(reader, &event, err))
            return false;
        type = event.type;
        if (type == YAML_MAPPING_START_EVENT)
            ok = read_mapping(reader, "", 0, err);
        else if (type == YAML_DOCUMENT_START_EVENT && seen)
            ok = fail(reader, &event, "a second document", err);
        else if (type == YAML_SEQUENCE_START_EVENT ||
                 (type == YAML_SCALAR_EVENT && event.data.scalar.length > 0))
            ok = fail(reader, &event, "expected `key: value` lines", err);
        seen = seen || type == YAML_DOCUMENT_START_EVENT;
        yaml_event_delete(&event);
        if (!ok || type == YAML_STREAM_END_EVENT)
            return ok;
    }
}

bool config_read_yaml(struct config *config, const char *name, FILE *file, const char *yaml,
                      struct err *err)
{
    struct reader reader = {.config = config, .name = name};
    bool ok;

    CHECK(yaml_parser_initialize(&reader.parser));
    if (file)
        yaml_parser_set_input_file(&reader.parser, file);
    else
        yaml_parser_set_input_string(&reader.parser, (const unsigned char *)yaml, strlen(yaml));
    ok = read_document(&reader, err);
    yaml_parser_delete(&reader.parser);
    return ok;
}
