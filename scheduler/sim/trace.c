/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "scheduler/sim/csv.h"
#include "scheduler/sim/random.h"
#include "scheduler/sim/trace_lines.h"

enum { LENGTH_MAX = 10000000 };

struct reader {
    const struct trace_options *options;
    struct trace *trace;
    struct trace_lines lines;
    struct random random;
    uint8_t *seen; /* (TRACE_BLOCKS_MAX) bytes; NULL before the first block */
};

static bool reject(const struct reader *reader, struct err *err, const char *what)
{
    return trace_lines_reject(&reader->lines, what, err);
}

/* Lengths of 0 occur in the public traces; a request has at least one token on each side. */
static bool parse_length(const char *text, uint32_t *tokens)
{
    double number;

    if (!csv_number(text, &number) || number < 0 || number > LENGTH_MAX)
        return false;
    *tokens = number < 1 ? 1 : (uint32_t)number;
    return true;
}

double trace_request_context(const struct trace_request *request)
{
    return request->output_tokens * (request->prompt_tokens + request->output_tokens / 2.0);
}

static bool append(struct trace *trace, struct trace_request request, struct err *err)
{
    if (trace->count == TRACE_REQUESTS_MAX)
        return err_set(err, ERR_REJECT,
                       "trace: more than %d requests; --from and --length take a part of it",
                       TRACE_REQUESTS_MAX);
    if (trace->count == trace->capacity) {
        size_t capacity = trace->capacity ? 2 * trace->capacity : 4096;
        void *grown = realloc(trace->requests, capacity * sizeof *trace->requests);
        if (!grown)
            return err_set(err, ERR_FATAL, "trace: out of memory for %zu requests", capacity);
        trace->requests = grown;
        trace->capacity = capacity;
    }
    trace->requests[trace->count++] = request;
    trace->prompt_tokens += request.prompt_tokens;
    trace->output_tokens += request.output_tokens;
    trace->context_tokens += trace_request_context(&request);
    return true;
}

static bool is_selected(const struct trace_options *options, int64_t at_us)
{
    int64_t at = at_us - options->from_us;

    return at >= 0 && (options->length_us == 0 || at < options->length_us);
}

/* Select and scale. at_us counts from the trace's first request. */
static bool take(struct reader *reader, int64_t at_us, uint32_t prompt, uint32_t output,
                 struct err *err)
{
    const struct trace_options *options = reader->options;
    int64_t at = at_us - options->from_us;

    if (!is_selected(options, at_us))
        return true;
    return append(reader->trace,
                  (struct trace_request){.arrival_us = (int64_t)((double)at / options->scale),
                                         .prompt_tokens = prompt,
                                         .output_tokens = output},
                  err);
}

/* "2023-11-16 18:15:46.6805900" in microseconds of some zone; only differences matter. */
static bool parse_time(const char *text, int64_t *us)
{
    struct tm tm = {.tm_isdst = 0};
    double seconds;
    int used = 0;

    if (sscanf(text, "%4d-%2d-%2d %2d:%2d:%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
               &tm.tm_min, &used) != 5 ||
        used == 0 || !csv_number(text + used, &seconds) || seconds < 0 || seconds >= 61)
        return false;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    *us = (int64_t)timegm(&tm) * 1000000 + (int64_t)(seconds * 1e6);
    return true;
}

static bool read_azure(struct reader *reader, struct err *err)
{
    int64_t first_us = 0, last_us = 0;

    for (bool first = true; trace_lines_next(&reader->lines); first = false) {
        uint32_t prompt, output;
        int64_t at_us;

        trace_lines_split(&reader->lines);
        if (reader->lines.field_count != 3 || !parse_time(reader->lines.fields[0], &at_us) ||
            !parse_length(reader->lines.fields[1], &prompt) ||
            !parse_length(reader->lines.fields[2], &output))
            return reject(reader, err, "expected TIMESTAMP,ContextTokens,GeneratedTokens");
        if (first)
            first_us = last_us = at_us;
        if (at_us < last_us)
            return reject(reader, err, "time goes back");
        last_us = at_us;
        if (!take(reader, at_us - first_us, prompt, output, err))
            return false;
    }
    return true;
}

static bool json_length(const json_t *object, const char *key, uint32_t *tokens)
{
    json_int_t value = json_integer_value(json_object_get(object, key));

    if (!json_is_integer(json_object_get(object, key)) || value < 0 || value > LENGTH_MAX)
        return false;
    *tokens = value < 1 ? 1 : (uint32_t)value;
    return true;
}

static bool grow_blocks(struct trace *trace, size_t more, struct err *err)
{
    size_t capacity = trace->blocks_capacity ? trace->blocks_capacity : 65536;
    void *grown;

    while (capacity < trace->blocks_count + more)
        capacity *= 2;
    if (capacity == trace->blocks_capacity)
        return true;
    grown = realloc(trace->blocks, capacity * sizeof *trace->blocks);
    if (!grown)
        return err_set(err, ERR_FATAL, "trace: out of memory for %zu blocks", capacity);
    trace->blocks = grown;
    trace->blocks_capacity = capacity;
    return true;
}

/* Blocks that the last request of the trace begins with; those that all came before are what an
 * unbounded cache would have had. */
static bool take_blocks(struct reader *reader, const json_t *ids, struct err *err)
{
    struct trace *trace = reader->trace;
    struct trace_request *request = &trace->requests[trace->count - 1];
    size_t count = json_array_size(ids), repeated = 0;

    if (count != (request->prompt_tokens + TRACE_BLOCK_TOKENS - 1) / TRACE_BLOCK_TOKENS)
        return reject(reader, err, "hash_ids are not as many as the prompt's blocks of 512 tokens");
    if (!reader->seen && !(reader->seen = calloc(TRACE_BLOCKS_MAX, 1)))
        return err_set(err, ERR_FATAL, "trace: out of memory for the blocks");
    if (!grow_blocks(trace, count, err))
        return false;
    request->blocks = (uint32_t)count;
    request->blocks_at = trace->blocks_count;
    for (size_t i = 0; i < count; i++) {
        json_int_t id = json_integer_value(json_array_get(ids, i));
        if (!json_is_integer(json_array_get(ids, i)) || id < 0 || id >= TRACE_BLOCKS_MAX)
            return reject(reader, err, "hash_ids are numbers from 0 to 16777215");
        repeated += repeated == i && reader->seen[id];
        reader->seen[id] = 1;
        trace->blocks[trace->blocks_count++] = (uint32_t)id;
        trace->blocks_limit = id < trace->blocks_limit ? trace->blocks_limit : (uint32_t)id + 1;
    }
    repeated *= TRACE_BLOCK_TOKENS;
    trace->repeated_tokens +=
        repeated < request->prompt_tokens ? repeated : request->prompt_tokens - 1;
    return true;
}

static bool take_mooncake(struct reader *reader, const json_t *object, int64_t at_us,
                          struct err *err)
{
    const json_t *ids = json_object_get(object, "hash_ids");
    uint32_t prompt, output;

    if (!json_length(object, "input_length", &prompt) ||
        !json_length(object, "output_length", &output))
        return reject(reader, err, "expected {timestamp, input_length, output_length}");
    if (!is_selected(reader->options, at_us))
        return true;
    return take(reader, at_us, prompt, output, err) && (!ids || take_blocks(reader, ids, err));
}

static bool read_mooncake(struct reader *reader, struct err *err)
{
    int64_t first_ms = 0, last_ms = 0;
    bool first = true, ok;

    do {
        json_t *object = json_loads(reader->lines.line, 0, NULL);
        json_t *timestamp = json_object_get(object, "timestamp");
        int64_t at_ms = json_integer_value(timestamp);

        if (first)
            first_ms = last_ms = at_ms;
        first = false;
        if (!json_is_integer(timestamp))
            ok = reject(reader, err, "expected {timestamp, input_length, output_length}");
        else if (at_ms < last_ms)
            ok = reject(reader, err, "time goes back");
        else
            ok = take_mooncake(reader, object, (at_ms - first_ms) * 1000, err);
        last_ms = at_ms;
        json_decref(object);
    } while (ok && trace_lines_next(&reader->lines));
    return ok;
}

static uint32_t draw_length(struct random *random, double mean, double sigma)
{
    double tokens = mean * exp(sigma * random_normal(random) - sigma * sigma / 2);

    return tokens < 1 ? 1 : tokens > LENGTH_MAX ? LENGTH_MAX : (uint32_t)tokens;
}

/* From which second to which one of the unscaled trace is selected. */
static double selected_from(const struct trace_options *options)
{
    return (double)options->from_us / 1e6;
}

static double selected_to(const struct trace_options *options)
{
    return options->length_us > 0 ? selected_from(options) + (double)options->length_us / 1e6
                                  : INFINITY;
}

/* Said before any is drawn: a rate of a billion would draw for minutes until it met the limit. */
static bool check_expected(const struct reader *reader, const struct trace_windows *windows,
                           struct err *err)
{
    double expected = trace_windows_requests(windows, selected_from(reader->options),
                                             selected_to(reader->options));

    return expected <= TRACE_REQUESTS_MAX ||
           err_set(err, ERR_REJECT,
                   "trace %s: its rates make about %.3g requests, more than %d; --scale below 1, "
                   "--from and --length make fewer, --fluid needs none",
                   reader->options->path, expected, TRACE_REQUESTS_MAX);
}

/* Poisson arrivals within the part of the window that is selected. */
static bool draw_window(struct reader *reader, const struct trace_window *window, double start_s,
                        double end_s, struct err *err)
{
    double from = selected_from(reader->options);
    double end = fmin(end_s, selected_to(reader->options));

    if (window->rate <= 0)
        return true;
    for (double at = fmax(start_s, from);;) {
        at += random_exponential(&reader->random, 1 / window->rate);
        if (at >= end)
            return true;
        uint32_t prompt = draw_length(&reader->random, window->prompt, window->prompt_sigma);
        uint32_t output = draw_length(&reader->random, window->output, window->output_sigma);
        int64_t at_us = (int64_t)((at - from) * 1e6);
        if (!append(reader->trace,
                    (struct trace_request){
                        .arrival_us = at_us, .prompt_tokens = prompt, .output_tokens = output},
                    err))
            return false;
    }
}

static bool draw_windows(struct reader *reader, struct err *err)
{
    const struct trace_options *options = reader->options;
    struct trace_windows windows = {0};
    bool ok = trace_windows_parse(&windows, &reader->lines, options->scale, err) &&
              check_expected(reader, &windows, err);

    for (size_t w = 0; ok && w < windows.count; w++)
        ok = draw_window(reader, &windows.windows[w], (double)w * windows.window_s,
                         (double)(w + 1) * windows.window_s, err);
    reader->trace->duration_us =
        (int64_t)((double)windows.count * windows.window_s * 1e6) - options->from_us;
    if (options->length_us > 0 && options->length_us < reader->trace->duration_us)
        reader->trace->duration_us = options->length_us;
    trace_windows_free(&windows);
    return ok;
}

static bool find_column(const struct reader *reader, const char *name, size_t *column,
                        struct err *err)
{
    char names[200], what[400];

    if (csv_find(reader->lines.fields, reader->lines.field_count, name, column))
        return true;
    csv_names(reader->lines.fields, reader->lines.field_count, names, sizeof names);
    snprintf(what, sizeof what, "--columns: no column \"%.100s\"; the header has %s", name, names);
    return reject(reader, err, what);
}

/* The header has been split. */
static bool read_offline(struct reader *reader, struct err *err)
{
    const struct trace_options *options = reader->options;
    size_t prompt_at, output_at;

    reader->trace->offline = true;
    if (!find_column(reader, options->column_prompt, &prompt_at, err) ||
        !find_column(reader, options->column_output, &output_at, err))
        return false;
    if (options->from_us > 0 || options->length_us > 0)
        return reject(reader, err, "an offline job has no times for --from and --length");
    while (trace_lines_next(&reader->lines)) {
        uint32_t prompt, output;

        trace_lines_split(&reader->lines);
        if (prompt_at >= reader->lines.field_count || output_at >= reader->lines.field_count ||
            !parse_length(reader->lines.fields[prompt_at], &prompt) ||
            !parse_length(reader->lines.fields[output_at], &output))
            return reject(reader, err, "expected token counts from 0 to 10000000");
        if (!append(reader->trace,
                    (struct trace_request){.prompt_tokens = prompt, .output_tokens = output}, err))
            return false;
    }
    return true;
}

static bool is_azure(const struct reader *reader)
{
    const struct trace_lines *lines = &reader->lines;

    return lines->field_count == 3 && trace_lines_field_is(lines, 0, "TIMESTAMP") &&
           trace_lines_field_is(lines, 1, "ContextTokens") &&
           trace_lines_field_is(lines, 2, "GeneratedTokens");
}

static bool read_any(struct reader *reader, struct err *err)
{
    bool columns = reader->options->column_prompt;

    if (!trace_lines_first(&reader->lines, err))
        return false;
    if (reader->lines.line[0] == '{' && columns)
        return reject(reader, err, "--columns names columns of a CSV, and these are JSON lines");
    if (reader->lines.line[0] == '{')
        return read_mooncake(reader, err);
    trace_lines_split(&reader->lines);
    if (columns)
        return read_offline(reader, err);
    if (is_azure(reader))
        return read_azure(reader, err);
    if (trace_windows_header(&reader->lines))
        return draw_windows(reader, err);
    return reject(reader, err,
                  "no known trace header; name the columns of an offline job with "
                  "--columns prompt=NAME,output=NAME");
}

bool trace_read_windows(struct trace_windows *windows, const struct trace_options *options,
                        struct err *err)
{
    struct reader reader = {.options = options};
    bool ok;

    *windows = (struct trace_windows){0};
    ok = trace_lines_open(&reader.lines, options->path, err) &&
         trace_lines_first(&reader.lines, err);
    if (ok) {
        trace_lines_split(&reader.lines);
        if (options->column_prompt || !trace_windows_header(&reader.lines))
            ok =
                reject(&reader, err, "this needs a trace by windows (window_start_s,rate_rps,...)");
        else
            ok = trace_windows_parse(windows, &reader.lines, options->scale, err);
    }
    ok = trace_lines_close(&reader.lines, ok, err);
    if (!ok)
        trace_windows_free(windows);
    return ok;
}

bool trace_read(struct trace *trace, const struct trace_options *options, struct err *err)
{
    struct reader reader = {.options = options, .trace = trace, .random = {options->seed}};
    bool ok;

    *trace = (struct trace){0};
    ok = trace_lines_open(&reader.lines, options->path, err) && read_any(&reader, err);
    ok = trace_lines_close(&reader.lines, ok, err);
    free(reader.seen);
    if (ok && trace->count == 0)
        ok = err_set(err, ERR_REJECT, "trace %s: no request in the selected time", options->path);
    if (ok && trace->duration_us == 0)
        trace->duration_us = trace->requests[trace->count - 1].arrival_us;
    if (!ok)
        trace_free(trace);
    return ok;
}

void trace_free(struct trace *trace)
{
    free(trace->requests);
    free(trace->blocks);
    *trace = (struct trace){0};
}
