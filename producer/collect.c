/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/idmap.h"
#include "producer/command.h"
#include "producer/line.h"
#include "producer/meter.h"
#include "producer/output.h"
#include "producer/render.h"

struct options {
    struct session_options session;
    const char *output;
    const char *errors;
    const char *input;
    bool wait;
};

static const struct config_key keys[] = {
    {.name = "output",
     .letter = 'o',
     .type = CONFIG_STRING,
     .offset = offsetof(struct options, output),
     .default_value = "-",
     .value_name = "FILE",
     .help = "Where answers go; - is standard output."},
    {.name = "errors",
     .letter = 'e',
     .type = CONFIG_STRING,
     .offset = offsetof(struct options, errors),
     .value_name = "FILE",
     .help = "Where errors go; among the answers where it is not given."},
    {.name = "input",
     .letter = 'i',
     .type = CONFIG_STRING,
     .offset = offsetof(struct options, input),
     .value_name = "FILE",
     .help = "The submitted file: its rejected lines join the errors."},
    {.name = "wait",
     .letter = 'w',
     .type = CONFIG_BOOL,
     .offset = offsetof(struct options, wait),
     .help = "Wait until every request has its outcome."},
    SESSION_TENANT_FILTER(struct options, session),
    SESSION_KEYS(struct options, session),
};

static const struct config_program program = {
    .name = "pelton collect",
    .version = PELTON_VERSION,
    .synopsis = "[options] BATCH",
    .summary =
        "Writes the outcomes of a job as OpenAI Batch output lines, each custom_id once, in\n"
        "the order of arrival. Files get their names only when they are complete. Kafka keeps\n"
        "results for 14 days by default; what is left of a job after that is still written.",
    .epilogue =
        "Exit code: 0 all answered, 64 BATCH begins several ids, 65 some ended in an error, 66 no\n"
        "such batch or file or results are no longer kept, 69 no answer from Kafka, 73 a file\n"
        "cannot be written, 75 not all outcomes are there (see --wait).",
    .keys = keys,
    .keys_count = sizeof keys / sizeof *keys,
    .arguments_max = 1,
};

struct collection {
    const struct options *options;
    struct output answers, errors;
    struct meter meter;
};

static struct output *errors_of(struct collection *collection)
{
    return collection->errors.file ? &collection->errors : &collection->answers;
}

static bool visit(void *context, const struct result *result, struct err *err)
{
    struct collection *collection = context;

    return output_write_line(result->status == RESULT_COMPLETED ? &collection->answers
                                                                : errors_of(collection),
                             render_result(result), err);
}

static bool tick(void *context, const struct results_tally *tally)
{
    struct collection *collection = context;
    char note[120];

    command_note(tally, note, sizeof note);
    meter_show(&collection->meter, tally->finished, tally->total, note);
    return true;
}

/* Finds the lines of the submitted file again that did not become requests. */
static bool add_rejected(struct collection *collection, const struct batch *batch, struct err *err)
{
    struct idmap *line_of = idmap_open(0);
    struct line_error error;
    struct raw_line raw;
    struct lines *lines;
    struct request_id id;
    struct line line;
    bool ok, end = false;

    if (!lines_open(&lines, collection->options->input, CODEC_REQUEST_SIZE_MAX, err)) {
        idmap_close(line_of);
        return false;
    }
    do {
        ok = lines_next(lines, &raw, &end, err);
        if (!ok || end || line_is_blank(&raw))
            continue;
        if (!line_check(&raw, &line, &error)) {
            ok = output_write_line(errors_of(collection), render_rejected(&error, raw.number), err);
            continue;
        }
        request_id_make(batch->tenant, batch->batch_id, line.custom_id, &id);
        if (!line_check_unique(line_of, &id, raw.number, &error))
            ok = output_write_line(errors_of(collection), render_rejected(&error, raw.number), err);
        line_free(&line);
    } while (ok && !end);
    lines_close(lines, NULL);
    idmap_close(line_of);
    return ok;
}

static int finish(struct collection *collection, const struct session *session,
                  const struct batch *batch, const struct results_tally *tally, bool ok,
                  struct err *err)
{
    /* What was collected while there was something stays. */
    const bool keep = results_state(tally) != RESULTS_GONE || tally->finished > 0;
    bool closed;

    if (!ok) {
        output_close(&collection->answers, false, &(struct err){0});
        output_close(&collection->errors, false, &(struct err){0});
        return command_fail(err->kind == ERR_REJECT ? EX_CANTCREAT : command_code(err), err);
    }
    closed = output_close(&collection->answers, keep, err);
    closed = output_close(&collection->errors, keep && closed, err) && closed;
    if (!closed)
        return command_fail(EX_CANTCREAT, err);
    if (tally->rejected > 0 && !*collection->options->input)
        fprintf(stderr,
                "pelton: %llu lines were rejected when they were submitted; --input FILE adds "
                "them to the errors\n",
                (unsigned long long)tally->rejected);
    if (results_state(tally) == RESULTS_OPEN)
        fprintf(stderr, "pelton: %llu of %llu outcomes are there%s; --wait waits for the rest\n",
                (unsigned long long)tally->finished,
                (unsigned long long)(tally->complete ? tally->total : tally->finished),
                tally->complete ? "" : " so far, and the job is not wholly submitted");
    if (!collection->options->session.json)
        command_suggest_retry(
            batch, tally, *collection->options->input ? collection->options->input : NULL,
            batch->deadline_ms > 0 ? batch->deadline_ms - batch->created_ms : 0, STREAM_AUTO);
    return command_code_of_tally(session, batch, tally);
}

/* It went while the batch was looked for, or was never there. */
static int finish_without_input(struct collection *collection, const struct err *err)
{
    output_close(&collection->answers, false, &(struct err){0});
    output_close(&collection->errors, false, &(struct err){0});
    return command_fail(EX_NOINPUT, err);
}

static int collect(struct session *session, const struct options *options, const char *id)
{
    struct collection collection = {.options = options};
    struct results_options walk = {.visit = visit, .tick = tick, .context = &collection};
    struct batch_state state;
    struct results_tally tally = {0};
    char note[120];
    struct err err;
    bool ok;
    int code;

    if (!command_find(session, id, &state, &code))
        return code;
    walk.batch = state.record;
    ok = output_open(&collection.answers, options->output, &err) &&
         (!*options->errors || output_open(&collection.errors, options->errors, &err)) &&
         (!*options->input || add_rejected(&collection, &state.record->u.batch, &err));
    if (ok && options->wait) {
        collection.meter = meter_start("answers", false);
        ok = results_follow(session, &walk, &tally, &err);
        command_note(&tally, note, sizeof note);
        meter_end(&collection.meter, tally.finished, tally.total, note);
    } else if (ok) {
        ok = results_read(session, &walk, &tally, &err);
    }
    code = ok || *options->input == '\0' || access(options->input, R_OK) == 0
               ? finish(&collection, session, &state.record->u.batch, &tally, ok, &err)
               : finish_without_input(&collection, &err);
    batch_free(&state);
    return code;
}

/* Checked before anything is opened: what is written must not be what is read. */
static bool check_files(const struct options *options, struct err *err)
{
    const char *twice = NULL;

    if (output_same(options->output, options->errors))
        twice = "--output and --errors";
    else if (output_same(options->input, options->output))
        twice = "--input and --output";
    else if (output_same(options->input, options->errors))
        twice = "--input and --errors";
    return !twice || err_set(err, ERR_REJECT, "%s are the same file", twice);
}

int command_collect(int argc, char **argv)
{
    struct options options;
    struct session session = {0};
    struct config *config;
    const char *id;
    struct err err;
    int code;

    if (!command_configure(&config, &program, argc, argv, &options, &code))
        return code;
    id = command_argument(config, "BATCH");
    if (!id)
        code = EX_USAGE;
    else if (!check_files(&options, &err))
        code = command_fail(EX_USAGE, &err);
    else if (command_open(&session, &options.session, config, SESSION_READS, &code))
        code = collect(&session, &options, id);
    session_close(&session);
    config_free(config);
    return code;
}
