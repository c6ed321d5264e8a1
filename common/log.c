/* SPDX-License-Identifier: Apache-2.0
 *
 * Program name and level are process-wide, as standard error is; they are written once, by
 * log_open() in main(), and only read from then on.
 */
#include "common/log.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"

static const char *log_program = "pelton";
static enum log_level log_level_min = LOG_LEVEL_INFO;

static const char *const level_names[] = {"debug", "info", "warn", "error"};

void log_open(const char *program, enum log_level level)
{
    log_program = program;
    log_level_min = level;
}

bool log_level_parse(const char *text, enum log_level *level)
{
    for (size_t i = 0; i < sizeof level_names / sizeof *level_names; i++) {
        if (strcmp(text, level_names[i]) == 0) {
            *level = (enum log_level)i;
            return true;
        }
    }
    return false;
}

/* Output that is cut at its capacity; one byte is kept for the NUL or line end. */
struct line {
    char *data;
    size_t size;
    size_t capacity;
};

static void put(struct line *line, const char *data, size_t size)
{
    size_t room = line->capacity - 1 - line->size;

    if (size > room)
        size = room;
    memcpy(line->data + line->size, data, size);
    line->size += size;
}

static void put_text(struct line *line, const char *text)
{
    put(line, text, strlen(text));
}

static bool is_plain(const char *value, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)value[i];
        if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7f)
            return false;
    }
    return size > 0;
}

static void put_value(struct line *line, const char *value, size_t size)
{
    char escape[8];

    if (is_plain(value, size)) {
        put(line, value, size);
        return;
    }
    put(line, "\"", 1);
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)value[i];
        if (c == '"' || c == '\\')
            snprintf(escape, sizeof escape, "\\%c", c);
        else if (c == '\n')
            snprintf(escape, sizeof escape, "\\n");
        else if (c < ' ' || c == 0x7f)
            snprintf(escape, sizeof escape, "\\x%02x", c);
        else
            snprintf(escape, sizeof escape, "%c", c);
        put_text(line, escape);
    }
    put(line, "\"", 1);
}

/* va_list as a struct member, so that its address can be passed on everywhere. */
struct arguments {
    va_list list;
};

/* Renders the integer conversion spec, taking its argument with the length modifier's type. */
static int render_integer(char *out, size_t size, char *spec, struct arguments *arguments)
{
    size_t length = strlen(spec);
    char conversion = spec[length - 1];
    bool is_signed = conversion == 'd' || conversion == 'i';
    char widest[40];
    const char *modifier = spec + strcspn(spec, "hlzjt");
    intmax_t value;

    if (strncmp(modifier, "ll", 2) == 0 || *modifier == 'j')
        value = va_arg(arguments->list, long long);
    else if (*modifier == 'l' || *modifier == 'z' || *modifier == 't')
        value = va_arg(arguments->list, long);
    else if (is_signed)
        value = va_arg(arguments->list, int);
    else
        value = va_arg(arguments->list, unsigned);
    /* One call for all: everything before the modifier, then the widest type. */
    spec[strcspn(spec, "hlzjtdiuxXoc")] = '\0';
    snprintf(widest, sizeof widest, "%sj%c", spec, conversion);
    return snprintf(out, size, widest, value);
}

/* Renders one conversion, spec being "%...c" without '*'. */
static int render(char *out, size_t size, char *spec, struct arguments *arguments, int precision)
{
    switch (spec[strlen(spec) - 1]) {
    case 's':
        if (precision >= 0)
            return snprintf(out, size, "%.*s", precision, va_arg(arguments->list, const char *));
        return snprintf(out, size, spec, va_arg(arguments->list, const char *));
    case 'p':
        return snprintf(out, size, spec, va_arg(arguments->list, void *));
    case 'f':
    case 'e':
    case 'g':
        return snprintf(out, size, spec, va_arg(arguments->list, double));
    case 'c':
        return snprintf(out, size, spec, va_arg(arguments->list, int));
    default:
        return render_integer(out, size, spec, arguments);
    }
}

/* Appends the conversion at *format (behind its '%') to value and moves *format behind it. */
static void convert(struct line *value, const char **format, struct arguments *arguments)
{
    char spec[32] = "%";
    size_t size = 1;
    int precision = -1;
    size_t room = value->capacity - value->size;
    int rendered;

    do {
        if (**format == '*')
            precision = va_arg(arguments->list, int);
        else if (size + 1 < sizeof spec)
            spec[size++] = **format;
    } while (**format && !strchr("diuxXoscfegp%", *(*format)++));
    if (spec[size - 1] == '%') {
        put(value, "%", 1);
        return;
    }
    rendered = render(value->data + value->size, room, spec, arguments, precision);
    if (rendered > 0)
        value->size += (size_t)rendered < room ? (size_t)rendered : room - 1;
}

static void format_pairs(struct line *line, const char *format, struct arguments *arguments)
{
    char text[LOG_LINE_SIZE_MAX];

    while (*format) {
        struct line value = {.data = text, .capacity = sizeof text};
        size_t key_size = strcspn(format, "= ");

        put(line, " ", 1);
        put(line, format, key_size);
        format += key_size;
        if (*format == '=') {
            put(line, "=", 1);
            format++;
            while (*format && *format != ' ') {
                if (*format == '%') {
                    format++;
                    convert(&value, &format, arguments);
                } else {
                    put(&value, format++, 1);
                }
            }
            put_value(line, value.data, value.size);
        }
        format += *format == ' ';
    }
}

size_t log_format(char *line, size_t line_size, const char *event, const char *format, ...)
{
    struct line out = {.data = line, .capacity = line_size};
    struct arguments arguments;

    put_text(&out, "event=");
    put_value(&out, event, strlen(event));
    va_start(arguments.list, format);
    format_pairs(&out, format, &arguments);
    va_end(arguments.list);
    out.data[out.size] = '\0';
    return out.size;
}

void log_write(enum log_level level, const char *event, const char *format, ...)
{
    char data[LOG_LINE_SIZE_MAX];
    char now[CLOCK_TEXT_SIZE];
    struct line line = {.data = data, .capacity = sizeof data};
    struct arguments arguments;
    ssize_t written;

    if (level < log_level_min)
        return;
    clock_format_ms(clock_wall_ms(), now);
    put_text(&line, "ts=");
    put_text(&line, now);
    put_text(&line, " level=");
    put_text(&line, level_names[level]);
    put_text(&line, " program=");
    put_text(&line, log_program);
    put_text(&line, " event=");
    put_value(&line, event, strlen(event));
    va_start(arguments.list, format);
    format_pairs(&line, format, &arguments);
    va_end(arguments.list);
    line.data[line.size] = '\n';
    /* A log that cannot be written has nowhere to be reported. */
    written = write(STDERR_FILENO, line.data, line.size + 1);
    (void)written;
}

void log_err(enum log_level level, const char *event, const struct err *err)
{
    static const char *const kinds[] = {"retry", "abort", "reject", "fatal"};

    log_write(level, event, "kind=%s error=%s", kinds[err->kind], err->message);
}
