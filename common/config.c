/* SPDX-License-Identifier: Apache-2.0 */
#include "common/config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "common/config_internal.h"

const char *config_place_format(struct config_place place, char text[CONFIG_PLACE_SIZE_MAX])
{
    if (place.origin == CONFIG_FROM_FILE)
        snprintf(text, CONFIG_PLACE_SIZE_MAX, "%.140s:%zu", place.file, place.line);
    else
        snprintf(text, CONFIG_PLACE_SIZE_MAX, "%s",
                 place.origin == CONFIG_FROM_DEFAULT ? "default" : "command line");
    return text;
}

void config_list_add(struct config *config, struct config_list *list, const char *item)
{
    const char **items = arena_alloc(&config->arena, (list->count + 1) * sizeof *items);

    if (list->count > 0)
        memcpy(items, list->items, list->count * sizeof *items);
    items[list->count] = item;
    *list = (struct config_list){.items = items, .count = list->count + 1};
}

static char same(char c)
{
    return c == '-' ? '_' : c;
}

static bool same_name(const char *a, const char *b)
{
    while (*a && same(*a) == same(*b)) {
        a++;
        b++;
    }
    return same(*a) == same(*b);
}

const struct config_key *config_find(const struct config_program *program, const char *name)
{
    for (size_t i = 0; i < program->keys_count; i++) {
        const struct config_key *key = &program->keys[i];
        if (same_name(key->name, name) || (key->alias && same_name(key->alias, name)))
            return key;
    }
    return NULL;
}

static const char *last_part(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot ? dot + 1 : name;
}

/* As config_find(), and by the last part of a dotted name where only one key has it. */
static const struct config_key *find_option(const struct config_program *program, const char *name)
{
    const struct config_key *found = config_find(program, name);
    size_t count = 0;

    if (found)
        return found;
    for (size_t i = 0; i < program->keys_count; i++) {
        const struct config_key *key = &program->keys[i];
        if (same_name(last_part(key->name), name) ||
            (key->alias && same_name(last_part(key->alias), name))) {
            found = key;
            count++;
        }
    }
    return count == 1 ? found : NULL;
}

/* Levenshtein distance of two names of at most CONFIG_NAME_SIZE_MAX bytes. */
static size_t distance(const char *a, const char *b)
{
    size_t row[CONFIG_NAME_SIZE_MAX + 1];
    size_t b_size = strlen(b);

    if (strlen(a) > CONFIG_NAME_SIZE_MAX || b_size > CONFIG_NAME_SIZE_MAX)
        return SIZE_MAX;
    for (size_t j = 0; j <= b_size; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < b_size; j++) {
            size_t replace = diagonal + (same(a[i]) != same(b[j]));
            size_t shift = (row[j] < row[j + 1] ? row[j] : row[j + 1]) + 1;
            diagonal = row[j + 1];
            row[j + 1] = replace < shift ? replace : shift;
        }
    }
    return row[b_size];
}

bool config_unknown(const struct config_program *program, const char *name,
                    struct config_place place, struct err *err)
{
    char where[CONFIG_PLACE_SIZE_MAX];
    const char *nearest = NULL;
    size_t least = strlen(name) / 3 + 1; /* farther away it would be a guess */

    for (size_t i = 0; i < program->keys_count; i++) {
        const char *names[] = {program->keys[i].name, program->keys[i].alias,
                               last_part(program->keys[i].name)};
        for (size_t n = 0; n < 3; n++) {
            if (names[n] && distance(name, names[n]) < least) {
                least = distance(name, names[n]);
                nearest = n == 1 ? names[n] : program->keys[i].name;
            }
        }
    }
    return err_set(err, ERR_REJECT, "%s: unknown key \"%.60s\"%s%s%s",
                   config_place_format(place, where), name, nearest ? "; did you mean " : "",
                   nearest ? nearest : "", nearest ? "?" : "");
}

bool config_assign(struct config *config, const struct config_key *key, const char *text,
                   struct config_place place, struct err *err)
{
    struct config_place *before = &config->places[key - config->program->keys];
    char where[CONFIG_PLACE_SIZE_MAX], where_before[CONFIG_PLACE_SIZE_MAX];

    if (before->origin == place.origin && place.origin != CONFIG_FROM_DEFAULT &&
        !(key->type == CONFIG_LIST && place.origin == CONFIG_FROM_COMMAND_LINE))
        return err_set(err, ERR_REJECT, "%s: %s was set already (%s)",
                       config_place_format(place, where), key->name,
                       config_place_format(*before, where_before));
    if (!config_store(config, key, text, place, err))
        return false;
    if (key->no_effect && place.origin != CONFIG_FROM_DEFAULT &&
        before->origin == CONFIG_FROM_DEFAULT)
        config_list_add(config, &config->no_effect, key->name);
    *before = place;
    return true;
}

bool config_kafka_add(struct config *config, const char *text, struct config_place place,
                      struct err *err)
{
    char where[CONFIG_PLACE_SIZE_MAX];

    if (!strchr(text, '=') || text[0] == '=')
        return err_set(err, ERR_REJECT, "%s: -X %.60s: expected key=value",
                       config_place_format(place, where), text);
    config_list_add(config, &config->kafka, arena_strndup(&config->arena, text, strlen(text)));
    return true;
}

/* ---- command line ---- */

static const struct config_place command_line = {.origin = CONFIG_FROM_COMMAND_LINE};

enum option_kind {
    OPTION_KEY,
    OPTION_ARGUMENT,
    OPTION_KAFKA,
    OPTION_CONFIG,
    OPTION_HELP,
    OPTION_VERSION
};

/* One option or argument, with its value. */
struct option {
    enum option_kind kind;
    const struct config_key *key;
    const char *value;
};

struct cursor {
    const struct config_program *program;
    int argc;
    char *const *argv;
    int at;     /* next */
    bool ended; /* "--" was seen */
};

static bool take_value(struct cursor *cursor, const char *name, const char *joined,
                       struct option *option, struct err *err)
{
    if (joined) {
        option->value = joined;
        return true;
    }
    if (cursor->at == cursor->argc)
        return err_set(err, ERR_REJECT, "command line: %s needs a value", name);
    option->value = cursor->argv[cursor->at++];
    return true;
}

static bool read_long(struct cursor *cursor, const char *text, struct option *option,
                      struct err *err)
{
    char name[CONFIG_NAME_SIZE_MAX];
    const char *equals = strchr(text, '=');
    size_t size = equals ? (size_t)(equals - text) : strlen(text);
    const char *joined = equals ? equals + 1 : NULL;

    if (size - 2 >= sizeof name)
        return err_set(err, ERR_REJECT, "command line: unknown key \"%.60s...\"", text);
    memcpy(name, text + 2, size - 2);
    name[size - 2] = '\0';
    if (strcmp(name, "help") == 0 || strcmp(name, "version") == 0) {
        option->kind = name[0] == 'h' ? OPTION_HELP : OPTION_VERSION;
        return true;
    }
    if (strcmp(name, "config") == 0) {
        option->kind = OPTION_CONFIG;
        return take_value(cursor, "--config", joined, option, err);
    }
    option->kind = OPTION_KEY;
    option->key = find_option(cursor->program, name);
    if (!option->key && strncmp(name, "no", 2) == 0 && same(name[2]) == '_' && !joined) {
        option->key = find_option(cursor->program, name + 3);
        option->value = "false";
        if (option->key && option->key->type == CONFIG_BOOL)
            return true;
        option->key = NULL;
    }
    if (!option->key)
        return config_unknown(cursor->program, name, command_line, err);
    if (option->key->type == CONFIG_BOOL && !joined)
        joined = "true";
    return take_value(cursor, text, joined, option, err);
}

static bool read_short(struct cursor *cursor, const char *text, struct option *option,
                       struct err *err)
{
    const char *joined = text[2] ? text + 2 : NULL;

    if (text[1] == 'h' && !joined) {
        option->kind = OPTION_HELP;
        return true;
    }
    if (text[1] == 'X' && !cursor->program->without_kafka) {
        option->kind = OPTION_KAFKA;
        return take_value(cursor, "-X", joined, option, err);
    }
    option->kind = OPTION_KEY;
    for (size_t i = 0; i < cursor->program->keys_count; i++)
        if (cursor->program->keys[i].letter == text[1])
            option->key = &cursor->program->keys[i];
    if (!option->key)
        return config_unknown(cursor->program, text, command_line, err);
    if (option->key->type == CONFIG_BOOL && !joined)
        joined = "true";
    return take_value(cursor, text, joined, option, err);
}

static bool read_option(struct cursor *cursor, struct option *option, struct err *err)
{
    const char *text = cursor->argv[cursor->at++];

    *option = (struct option){.kind = OPTION_ARGUMENT, .value = text};
    if (cursor->ended || text[0] != '-' || text[1] == '\0')
        return true;
    if (text[1] != '-')
        return read_short(cursor, text, option, err);
    return read_long(cursor, text, option, err);
}

/* Steps over "--"; false at the end. */
static bool more_options(struct cursor *cursor)
{
    if (!cursor->ended && cursor->at < cursor->argc &&
        strcmp(cursor->argv[cursor->at], "--") == 0) {
        cursor->ended = true;
        cursor->at++;
    }
    return cursor->at < cursor->argc;
}

/* What comes before everything else: --help, --version, and the file that --config names. */
static bool scan(struct cursor cursor, const char **file, enum config_outcome *outcome,
                 struct err *err)
{
    struct option option;

    while (more_options(&cursor)) {
        if (!read_option(&cursor, &option, err))
            return false;
        if (option.kind == OPTION_HELP || option.kind == OPTION_VERSION) {
            if (option.kind == OPTION_HELP)
                config_help(cursor.program, stdout);
            else
                printf("%s %s\n", cursor.program->name, cursor.program->version);
            *outcome = CONFIG_EXIT;
            return true;
        }
        if (option.kind == OPTION_CONFIG && *file)
            return err_set(err, ERR_REJECT, "command line: --config was given already");
        if (option.kind == OPTION_CONFIG)
            *file = option.value;
    }
    return true;
}

static bool apply(struct config *config, struct cursor cursor, struct err *err)
{
    struct option option;
    bool ok = true;

    while (ok && more_options(&cursor)) {
        CHECK(read_option(&cursor, &option, err)); /* scan() has read them all */
        if (option.kind == OPTION_KEY)
            ok = config_assign(config, option.key, option.value, command_line, err);
        else if (option.kind == OPTION_KAFKA)
            ok = config_kafka_add(config, option.value, command_line, err);
        else if (option.kind == OPTION_ARGUMENT)
            config_list_add(config, &config->arguments, option.value);
    }
    if (ok && config->arguments.count > config->program->arguments_max)
        ok = err_set(err, ERR_REJECT, "command line: unexpected argument \"%.80s\"",
                     config->arguments.items[config->program->arguments_max]);
    return ok;
}

/* ---- all together ---- */

static struct config *open_with_defaults(const struct config_program *program, void *values)
{
    struct config *config = calloc(1, sizeof *config);
    const struct config_place place = {.origin = CONFIG_FROM_DEFAULT};
    struct err err;

    CHECK(config);
    config->arena.block_size = 4096;
    config->program = program;
    config->values = values;
    config->places = arena_zalloc(&config->arena, program->keys_count, sizeof *config->places);
    for (size_t i = 0; i < program->keys_count; i++) {
        const struct config_key *key = &program->keys[i];
        if (!key->default_value)
            config_store_zero(config, key);
        else
            CHECK(config_store(config, key, key->default_value, place, &err));
    }
    return config;
}

static bool read_file(struct config *config, const char *path, struct err *err)
{
    FILE *file = fopen(path, "rb");
    bool ok;

    if (!file)
        return err_set(err, ERR_REJECT, "configuration file %.150s: %s", path, strerror(errno));
    ok = config_read_yaml(config, path, file, NULL, err);
    fclose(file);
    return ok;
}

bool config_load(struct config **config, const struct config_program *program, int argc,
                 char *const *argv, void *values, enum config_outcome *outcome, struct err *err)
{
    struct cursor cursor = {.program = program, .argc = argc, .argv = argv, .at = argc > 0};
    const char *file = NULL;
    struct config *loaded;

    *config = NULL;
    *outcome = CONFIG_RUN;
    if (!scan(cursor, &file, outcome, err))
        return false;
    if (*outcome == CONFIG_EXIT)
        return true;
    loaded = open_with_defaults(program, values);
    if (file && !read_file(loaded, file, err)) {
        *outcome = CONFIG_BAD_FILE;
        config_free(loaded);
        return false;
    }
    if (!apply(loaded, cursor, err)) {
        config_free(loaded);
        return false;
    }
    *config = loaded;
    return true;
}

bool config_load_text(struct config **config, const struct config_program *program,
                      const char *name, const char *yaml, void *values, struct err *err)
{
    struct config *loaded = open_with_defaults(program, values);

    *config = NULL;
    if (!config_read_yaml(loaded, name, NULL, yaml, err)) {
        config_free(loaded);
        return false;
    }
    *config = loaded;
    return true;
}

void config_free(struct config *config)
{
    if (!config)
        return;
    arena_free(&config->arena);
    free(config);
}

struct config_list config_arguments(const struct config *config)
{
    return config->arguments;
}

struct config_list config_kafka_settings(const struct config *config)
{
    return config->kafka;
}

struct config_list config_no_effect(const struct config *config)
{
    return config->no_effect;
}

bool config_given(const struct config *config, const char *name)
{
    const struct config_key *key = config_find(config->program, name);

    CHECK(key);
    return config->places[key - config->program->keys].origin != CONFIG_FROM_DEFAULT;
}
