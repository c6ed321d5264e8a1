/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/check.h"
#include "common/config_internal.h"

struct unit {
    const char *name;
    double factor;
};

static const struct unit duration_units[] = {
    {"us", 1},     {"ms", 1e3}, {"s", 1e6},    {"sec", 1e6},
    {"min", 60e6}, {"m", 60e6}, {"h", 3600e6}, {"d", 86400e6},
};
static const struct unit size_units[] = {
    {"", 1},
    {"b", 1},
    {"k", 1024.0},
    {"kb", 1024.0},
    {"kib", 1024.0},
    {"m", 1048576.0},
    {"mb", 1048576.0},
    {"mib", 1048576.0},
    {"g", 1073741824.0},
    {"gb", 1073741824.0},
    {"gib", 1073741824.0},
    {"t", 1099511627776.0},
    {"tb", 1099511627776.0},
    {"tib", 1099511627776.0},
};

/* A decimal number; *rest is what follows it. strtod alone would take "nan", "0x10" and blanks. */
static bool parse_number(const char *text, double *number, const char **rest)
{
    char *end;
    size_t span = strspn(text, "+-0123456789.eE");

    if (span == 0 || !strpbrk(text, "0123456789") || text[0] == 'e' || text[0] == 'E' ||
        strncasecmp(text, "0x", 2) == 0)
        return false;
    *number = strtod(text, &end);
    *rest = end;
    return end != text && isfinite(*number);
}

static bool parse_with_unit(const char *text, const struct unit *units, size_t count,
                            double *number)
{
    const char *rest;

    if (!parse_number(text, number, &rest))
        return false;
    rest += strspn(rest, " ");
    for (size_t i = 0; i < count; i++) {
        if (strcasecmp(rest, units[i].name) == 0) {
            *number *= units[i].factor;
            return true;
        }
    }
    return false;
}

static bool to_int64(double number, int64_t *value)
{
    number = nearbyint(number);
    if (!(fabs(number) < 9.2e18))
        return false;
    *value = (int64_t)number;
    return true;
}

bool config_parse_duration_us(const char *text, int64_t *us)
{
    double number;

    if (strcmp(text, "0") == 0) { /* nothing is nothing in every unit */
        *us = 0;
        return true;
    }
    return parse_with_unit(text, duration_units, sizeof duration_units / sizeof *duration_units,
                           &number) &&
           to_int64(number, us);
}

bool config_parse_size(const char *text, int64_t *size)
{
    double number;

    return parse_with_unit(text, size_units, sizeof size_units / sizeof *size_units, &number) &&
           to_int64(number, size) && *size >= 0;
}

static bool parse_bool(const char *text, bool *value)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *value = i % 2 == 1;
            return true;
        }
    }
    return false;
}

static bool parse_int(const char *text, int64_t *value)
{
    char *end;

    if (text[strspn(text, "+-0123456789")] != '\0' || text[0] == '\0')
        return false;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return errno == 0 && end != text && *end == '\0';
}

static bool parse_double(const char *text, bool percent, double *value)
{
    const char *rest;

    if (!parse_number(text, value, &rest))
        return false;
    if (percent && strcmp(rest, "%") == 0) {
        *value /= 100;
        return true;
    }
    return *rest == '\0';
}

static bool parse_choice(const char *choices, const char *text, int *value)
{
    size_t size = strlen(text);

    for (int i = 0;; i++) {
        size_t choice_size = strcspn(choices, "|");
        if (choice_size == size && strncasecmp(choices, text, size) == 0) {
            *value = i;
            return true;
        }
        if (choices[choice_size] == '\0')
            return false;
        choices += choice_size + 1;
    }
}

/* A parsed value on its way into the program's struct. */
union parsed {
    bool flag;
    int64_t integer;
    double real;
    const char *text;
    int choice;
};

static const char *const type_words[] = {
    [CONFIG_BOOL] = "true or false",
    [CONFIG_INT] = "a whole number",
    [CONFIG_SIZE] = "a size such as 64K, 16MB or 2GiB",
    [CONFIG_DURATION] = "a duration with its unit, such as 500ms, 30s, 15min or 7d",
    [CONFIG_PERCENT] = "a share such as 20% or 0.2",
    [CONFIG_DOUBLE] = "a number",
    [CONFIG_STRING] = "a text",
    [CONFIG_CHOICE] = "one of ",
    [CONFIG_LIST] = "a list",
};

static bool parse(const struct config_key *key, const char *text, union parsed *parsed)
{
    switch (key->type) {
    case CONFIG_BOOL:
        return parse_bool(text, &parsed->flag);
    case CONFIG_INT:
        return parse_int(text, &parsed->integer);
    case CONFIG_SIZE:
        return config_parse_size(text, &parsed->integer);
    case CONFIG_DURATION:
        return config_parse_duration_us(text, &parsed->integer);
    case CONFIG_PERCENT:
    case CONFIG_DOUBLE:
        return parse_double(text, key->type == CONFIG_PERCENT, &parsed->real);
    case CONFIG_CHOICE:
        return parse_choice(key->choices, text, &parsed->choice);
    case CONFIG_STRING:
    case CONFIG_LIST:
        parsed->text = text;
        return true;
    }
    return false;
}

static bool is_whole(enum config_type type)
{
    return type == CONFIG_INT || type == CONFIG_SIZE || type == CONFIG_DURATION;
}

static bool is_real(enum config_type type)
{
    return type == CONFIG_PERCENT || type == CONFIG_DOUBLE;
}

static bool check_bounds(const struct config_key *key, const union parsed *parsed, const char *text,
                         struct config_place place, struct err *err)
{
    char where[CONFIG_PLACE_SIZE_MAX], low[32], high[32];
    double number;

    if (key->type == CONFIG_DURATION && parsed->integer < 0 && key->min >= 0)
        return err_set(err, ERR_REJECT, "%s: %s is %.40s: a duration is not negative",
                       config_place_format(place, where), key->name, text);
    if ((key->min == 0 && key->max == 0) || !(is_whole(key->type) || is_real(key->type)))
        return true;
    number = is_whole(key->type) ? (double)parsed->integer : parsed->real;
    if (number >= key->min && number <= key->max)
        return true;
    config_format(key, key->min, low);
    config_format(key, key->max, high);
    return err_set(err, ERR_REJECT, "%s: %s is %.40s: it must be %s to %s",
                   config_place_format(place, where), key->name, text, low, high);
}

static void write_member(struct config *config, const struct config_key *key,
                         const union parsed *parsed, bool replace_list)
{
    char *member = (char *)config->values + key->offset;

    switch (key->type) {
    case CONFIG_BOOL:
        memcpy(member, &parsed->flag, sizeof parsed->flag);
        break;
    case CONFIG_INT:
    case CONFIG_SIZE:
    case CONFIG_DURATION:
        memcpy(member, &parsed->integer, sizeof parsed->integer);
        break;
    case CONFIG_PERCENT:
    case CONFIG_DOUBLE:
        memcpy(member, &parsed->real, sizeof parsed->real);
        break;
    case CONFIG_CHOICE:
        memcpy(member, &parsed->choice, sizeof parsed->choice);
        break;
    case CONFIG_STRING: {
        const char *copy = arena_strndup(&config->arena, parsed->text, strlen(parsed->text));
        memcpy(member, &copy, sizeof copy);
        break;
    }
    case CONFIG_LIST: {
        struct config_list list = {NULL, 0};
        if (!replace_list)
            memcpy(&list, member, sizeof list);
        for (const char *item = parsed->text; *item; item += *item == ',') {
            size_t size = strcspn(item, ",");
            if (size > 0)
                config_list_add(config, &list, arena_strndup(&config->arena, item, size));
            item += size;
        }
        memcpy(member, &list, sizeof list);
        break;
    }
    }
}

void config_store_zero(struct config *config, const struct config_key *key)
{
    const union parsed zero = {.integer = 0};
    const union parsed empty = {.text = ""};

    write_member(config, key,
                 key->type == CONFIG_STRING || key->type == CONFIG_LIST ? &empty : &zero, true);
}

bool config_store(struct config *config, const struct config_key *key, const char *text,
                  struct config_place place, struct err *err)
{
    char where[CONFIG_PLACE_SIZE_MAX];
    union parsed parsed = {.integer = 0};
    size_t index = (size_t)(key - config->program->keys);
    bool replace_list =
        config->places[index].origin != place.origin || place.origin == CONFIG_FROM_DEFAULT;

    if (key->word && strcmp(text, key->word) == 0) {
        if (is_real(key->type))
            parsed.real = (double)key->word_value;
        else
            parsed.integer = key->word_value;
    } else if (!parse(key, text, &parsed)) {
        return err_set(err, ERR_REJECT, "%s: %s is \"%.40s\": expected %s%s%s%s",
                       config_place_format(place, where), key->name, text, type_words[key->type],
                       key->type == CONFIG_CHOICE ? key->choices : "", key->word ? " or " : "",
                       key->word ? key->word : "");
    } else if (key->refuse && key->refuse(text)) {
        return err_set(err, ERR_REJECT, "%s: %s is \"%.60s\": expected %s",
                       config_place_format(place, where), key->name, text, key->refuse(text));
    } else if (!check_bounds(key, &parsed, text, place, err)) {
        return false;
    }
    write_member(config, key, &parsed, replace_list);
    return true;
}
