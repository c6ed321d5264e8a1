/* SPDX-License-Identifier: Apache-2.0
 *
 * log - one event per line, logfmt, to standard error.
 *
 *     LOG_INFO("admitted", "request=%s topic=%s offset=%lld", id, topic, offset);
 *     ts=2026-11-30T12:00:00.123Z level=info program=pelton-worker event=admitted request=...
 *
 * The format is a list of key=value pairs separated by single blanks. Each value
 * is rendered by itself and quoted where it holds blanks, quotes, '=' or control
 * characters, so that text from outside cannot forge a pair or a line. Known
 * conversions: d i u x s c f e g p with h l ll z j t, flags, width, precision (also as ".*").
 *
 * A line is written with one write() of at most LOG_LINE_SIZE_MAX bytes; what is longer
 * is cut. Any thread may log. Level and program name are set once, before other threads run.
 */
#ifndef COMMON_LOG_H
#define COMMON_LOG_H

#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };
enum { LOG_LINE_SIZE_MAX = 4096 };

/* program is a string that outlives the process's logging. */
void log_open(const char *program, enum log_level level);
/* "debug", "info", "warn", "error" */
bool log_level_parse(const char *text, enum log_level *level);

#ifdef __GNUC__
__attribute__((format(printf, 3, 4)))
#endif
void log_write(enum log_level level, const char *event, const char *format, ...);

/* The line without time stamp and program name, for tests: returns its size, NUL excluded. */
#ifdef __GNUC__
__attribute__((format(printf, 4, 5)))
#endif
size_t
log_format(char *line, size_t line_size, const char *event, const char *format, ...);

/* The reports of a failure: event error="..." kind=retry|abort|reject|fatal */
void log_err(enum log_level level, const char *event, const struct err *err);

#define LOG_DEBUG(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)
#define LOG_INFO(...)  log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define LOG_WARN(...)  log_write(LOG_LEVEL_WARN, __VA_ARGS__)
#define LOG_ERROR(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)

#endif
