/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "common/config_internal.h"

static const char *last_part(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot ? dot + 1 : name;
}

void config_option_name(const struct config_program *program, const struct config_key *key,
                        char name[CONFIG_NAME_SIZE_MAX])
{
    const char *shown = last_part(key->name);

    for (size_t i = 0; i < program->keys_count; i++)
        if (&program->keys[i] != key && strcmp(last_part(program->keys[i].name), shown) == 0)
            shown = key->name;
    snprintf(name, CONFIG_NAME_SIZE_MAX, "%s", shown);
    for (char *c = name; *c; c++)
        if (*c == '_')
            *c = '-';
}

void config_format(const struct config_key *key, double number, char text[32])
{
    static const struct {
        double factor;
        const char *unit;
    } durations[] = {{86400e6, "d"}, {3600e6, "h"}, {60e6, "min"}, {1e6, "s"}, {1e3, "ms"}},
      sizes[] = {{1073741824.0, "GiB"}, {1048576.0, "MiB"}, {1024.0, "KiB"}};

    if (key->type == CONFIG_PERCENT) {
        snprintf(text, 32, "%g%%", number * 100);
        return;
    }
    for (size_t i = 0; key->type == CONFIG_DURATION && i < 5; i++) {
        if (number != 0 && fmod(number, durations[i].factor) == 0) {
            snprintf(text, 32, "%.15g%s", number / durations[i].factor, durations[i].unit);
            return;
        }
    }
    for (size_t i = 0; key->type == CONFIG_SIZE && i < 3; i++) {
        if (number != 0 && fmod(number, sizes[i].factor) == 0) {
            snprintf(text, 32, "%.15g%s", number / sizes[i].factor, sizes[i].unit);
            return;
        }
    }
    snprintf(text, 32, "%.15g%s", number, key->type == CONFIG_DURATION && number != 0 ? "us" : "");
}

static const char *value_name(const struct config_key *key)
{
    static const char *const names[] = {
        [CONFIG_BOOL] = "",         [CONFIG_INT] = "N",      [CONFIG_SIZE] = "SIZE",
        [CONFIG_DURATION] = "TIME", [CONFIG_PERCENT] = "N%", [CONFIG_DOUBLE] = "X",
        [CONFIG_STRING] = "TEXT",   [CONFIG_CHOICE] = "",    [CONFIG_LIST] = "A,B,...",
    };

    if (key->value_name)
        return key->value_name;
    return key->type == CONFIG_CHOICE ? key->choices : names[key->type];
}

static void print_key(const struct config_program *program, const struct config_key *key, FILE *out)
{
    char name[CONFIG_NAME_SIZE_MAX], low[32], high[32];
    const char *shown = value_name(key);

    config_option_name(program, key, name);
    if (key->letter)
        fprintf(out, "  -%c, --%s%s%s\n", key->letter, name, *shown ? " " : "", shown);
    else
        fprintf(out, "      --%s%s%s\n", name, *shown ? " " : "", shown);
    fprintf(out, "          %s", key->help);
    if (key->default_value && *key->default_value)
        fprintf(out, " Default: %s", key->default_value);
    if (key->default_value && *key->default_value)
        fprintf(out, "%s", key->default_value[strlen(key->default_value) - 1] == '.' ? "" : ".");
    if (key->min != 0 || key->max != 0) {
        config_format(key, key->min, low);
        config_format(key, key->max, high);
        fprintf(out, " From %s to %s%s%s.", low, high, key->word ? ", or " : "",
                key->word ? key->word : "");
    }
    if (key->no_effect)
        fprintf(out, " (no effect yet)");
    if (strcmp(last_part(key->name), key->name) != 0)
        fprintf(out, " YAML: %s.", key->name);
    fprintf(out, "\n");
}

void config_help(const struct config_program *program, FILE *out)
{
    fprintf(out, "Usage: %s %s\n\n%s\n\nOptions:\n", program->name, program->synopsis,
            program->summary);
    for (size_t i = 0; i < program->keys_count; i++)
        print_key(program, &program->keys[i], out);
    if (!program->without_kafka)
        fprintf(out, "  -X KEY=VALUE\n          A setting for librdkafka; may be repeated. "
                     "YAML: kafka.\n");
    fprintf(out,
            "      --config FILE\n          Read options from this YAML file first; the command "
            "line wins.\n"
            "      --version\n  -h, --help\n");
    if (program->epilogue)
        fprintf(out, "\n%s\n", program->epilogue);
}
