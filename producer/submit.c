/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/escape.h"
#include "common/idmap.h"
#include "common/stop.h"
#include "producer/claim.h"
#include "producer/command.h"
#include "producer/line.h"
#include "producer/meter.h"
#include "producer/output.h"
#include "producer/render.h"
#include "producer/retry.h"

struct options {
    struct session_options session;
    const char *batch;
    const char *retry;
    int class;
    int64_t window_us;
    bool stream;
    bool wait;
    const char *errors;
};

static const struct config_key keys[] = {
    {.name = "batch",
     .letter = 'b',
     .type = CONFIG_STRING,
     .offset = offsetof(struct options, batch),
     .value_name = "ID",
     .help =
         "Name of the job; the file's SHA-256 where it is not given. Needed for standard input. "
         "Of a retry: BATCH.retry, BATCH.retry2 and so on where it is not given."},
    {.name = "retry",
     .type = CONFIG_STRING,
     .offset = offsetof(struct options, retry),
     .value_name = "BATCH",
     .help = "Send only what this finished job of the tenant (its whole id) has no answer for."},
    {.name = "class",
     .letter = 'c',
     .type = CONFIG_CHOICE,
     .offset = offsetof(struct options, class),
     .choices = "interactive|bulk",
     .default_value = "bulk",
     .help = "Service class; interactive requests go first."},
    {.name = "completion_window",
     .type = CONFIG_DURATION,
     .offset = offsetof(struct options, window_us),
     .min = 1e6,
     .max = 3650 * 86400e6,
     .word = "0",
     .help = "Requests that are not answered by then expire, such as 24h; 0, the default: never."},
    {.name = "stream",
     .type = CONFIG_BOOL,
     .offset = offsetof(struct options, stream),
     .help =
         "Publish tokens as they come, for `pelton tail`; interactive requests do without asking, "
         "--no-stream keeps them from it."},
    {.name = "wait",
     .letter = 'w',
     .type = CONFIG_BOOL,
     .offset = offsetof(struct options, wait),
     .help = "Wait until every request has its outcome."},
    {.name = "errors",
     .letter = 'e',
     .type = CONFIG_STRING,
     .offset = offsetof(struct options, errors),
     .value_name = "FILE",
     .help =
         "Write lines that cannot be requests to this file, in the form of a Batch error file."},
    SESSION_TENANT_KEY(struct options, session, TENANT_DEFAULT, "Who pays."),
    SESSION_KEYS(struct options, session),
};

static const struct config_program program = {
    .name = "pelton submit",
    .version = PELTON_VERSION,
    .synopsis = "[options] FILE.jsonl|-",
    .summary = "Sends the lines of an OpenAI Batch file (custom_id, method, url, body) to Kafka.\n"
               "A line that cannot be a request is reported with its number and left out; blank\n"
               "lines are passed over. Sending the same file again does no harm: requests are\n"
               "known by tenant, batch and custom_id.",
    .epilogue =
        "--retry BATCH: the file, corrected or not, is compared by custom_id with the outcomes\n"
        "of BATCH. Lines that failed, expired or were cancelled are sent, and so are lines that\n"
        "BATCH never had, such as those rejected then. Left out is what was answered by BATCH or\n"
        "by a job of which BATCH is a retry itself, whatever its body is now. It becomes a job\n"
        "of its own; sending the same retry again does no harm.\n"
        "    pelton submit file.jsonl --batch night --wait     # some requests fail\n"
        "    pelton submit file.jsonl --retry night --wait     # is named night.retry\n"
        "    pelton submit file.jsonl --retry night.retry      # and this one night.retry2\n"
        "\n"
        "Exit code: 0 all lines sent (with --wait: and answered) or nothing to retry, 65 some\n"
        "lines or requests are errors, 66 no file, BATCH or results, 69 no answer from Kafka,\n"
        "73 the file of --errors cannot be written, 75 unfinished: submit again, or with\n"
        "--retry once BATCH has all outcomes.",
    .keys = keys,
    .keys_count = sizeof keys / sizeof *keys,
    .arguments_max = 1,
};

enum { REJECTED_SHOWN_MAX = 20 }; /* on the terminal; the file has them all */

struct submission {
    const struct options *options;
    bool is_named;       /* --batch was given */
    bool is_retry;       /* --retry was given */
    struct retry *retry; /* what it leaves out, else NULL */
    bool has_begun;      /* the job: it is ours to finish */
    int begin_code;      /* why it could not begin, else 0 */
    enum stream_mode stream;
    enum topic topic; /* of the requests */
    struct session session;
    const char *path;
    char batch_id[BATCH_ID_SIZE_MAX + 1];
    uint64_t file_size; /* 0: unknown */
    struct batch batch;
    struct partition_offset *first_offsets; /* of a new job; for free() */
    char *names;
    struct batch_state before; /* what was known of the job */
    struct idmap *line_of;     /* request_id to line */
    struct output errors;
    struct buffer buffer;
    struct meter meter;
};

static bool check_batch_id(struct submission *submission, struct err *err)
{
    const struct options *options = submission->options;
    const bool is_stdin = strcmp(submission->path, "-") == 0;
    uint8_t digest[SHA256_SIZE];

    if (submission->is_named &&
        !command_check_name("--batch", options->batch, BATCH_ID_SIZE_MAX, err))
        return false;
    snprintf(submission->batch_id, sizeof submission->batch_id, "%s", options->batch);
    if (submission->is_retry &&
        (!command_check_name("--retry", options->retry, BATCH_ID_SIZE_MAX, err) ||
         !retry_name(options->retry, submission->batch_id, err)))
        return false;
    if (!*submission->batch_id && is_stdin)
        return err_set(err, ERR_REJECT,
                       "standard input has no hash to name the job by; give --batch ID");
    if (is_stdin)
        return true;
    if (!lines_hash_file(submission->path, digest, &submission->file_size, err))
        return false;
    memcpy(submission->batch.file_hash, digest, sizeof digest);
    if (!*submission->batch_id)
        hex_format(digest, sizeof digest, submission->batch_id);
    return true;
}

static void describe_batch(struct submission *submission)
{
    struct batch *batch = &submission->batch;
    const struct options *options = submission->options;
    const char *slash = strrchr(submission->path, '/');

    batch->batch_id = str_from(submission->batch_id);
    batch->tenant = str_from(options->session.tenant);
    batch->file_name = str_from(slash ? slash + 1 : submission->path);
    batch->retry_of = str_from(options->retry);
    batch->service_class = (enum service_class)options->class;
    batch->created_ms = clock_wall_ms();
    batch->deadline_ms = options->window_us > 0 ? batch->created_ms + options->window_us / 1000 : 0;
}

/* A job that exists keeps its beginning: results of an earlier submission count, and a request that
 * is done is not done again. */
static bool open_batch(struct submission *submission, struct err *err)
{
    struct batch *batch = &submission->batch;
    struct session *session = &submission->session;
    struct batch_state *before = &submission->before;
    struct request_id claim;
    bool is_new;

    if (!batch_find(session, batch->tenant, batch->batch_id, before, err))
        return false;
    /* The offsets are taken before the claim is read again: had the same file begun elsewhere by
     * then, its Batch is found below; if it begins later, its answers come behind them. */
    is_new = !before->record;
    if (is_new && (!batch_first_offsets(session, &submission->first_offsets,
                                        &batch->first_offsets_count, &submission->names, err) ||
                   !claim_send(session, batch, &claim, before, err)))
        return false;
    if (!claim_check(batch, is_new ? &claim : NULL, before, err))
        return false;
    batch->first_offsets = submission->first_offsets;
    if (before->record) {
        batch->created_ms = before->record->u.batch.created_ms;
        batch->first_offsets = before->record->u.batch.first_offsets;
        batch->first_offsets_count = before->record->u.batch.first_offsets_count;
    }
    return true;
}

static bool publish_batch(struct submission *submission, bool complete, struct err *err)
{
    struct record record = {.type = RECORD_BATCH};

    submission->batch.complete = complete;
    record.u.batch = submission->batch;
    return session_control(&submission->session, &record, err);
}

/* A retry begins with its first line, so that one without any leaves no job behind. */
static bool begin(struct submission *submission, struct err *err)
{
    if (submission->has_begun)
        return true;
    if (!open_batch(submission, err)) {
        submission->begin_code = err->kind == ERR_REJECT ? EX_DATAERR : command_code(err);
        return false;
    }
    submission->has_begun = true;
    return publish_batch(submission, false, err);
}

/* The message may quote the line. */
static void show_rejected(const struct submission *submission, const struct line_error *error,
                          uint64_t number)
{
    fputs(submission->meter.style == METER_BAR ? "\r\033[K" : "", stderr);
    escape_print(stderr, submission->path, strlen(submission->path), "");
    fprintf(stderr, ":%" PRIu64 ": ", number);
    escape_print(stderr, error->message, strlen(error->message), "");
    fputc('\n', stderr);
}

static void reject(struct submission *submission, const struct line_error *error, uint64_t number)
{
    struct err ignored;

    submission->batch.rejected++;
    /* A line that cannot be written is noticed when the file is closed: the others are to be sent.
     */
    if (submission->errors.file)
        (void)output_write_line(&submission->errors, render_rejected(error, number), &ignored);
    if (submission->batch.rejected <= REJECTED_SHOWN_MAX)
        show_rejected(submission, error, number);
    else if (submission->batch.rejected == REJECTED_SHOWN_MAX + 1)
        fprintf(stderr, "%s: more lines were rejected; -e FILE has them all\n", submission->path);
}

/* These two are false only where nothing more can be sent; a bad line is counted. */
static bool send_request(struct submission *submission, const struct record *record,
                         struct line_error *error, uint64_t number, struct err *err)
{
    struct buffer *buffer = &submission->buffer;
    char key[REQUEST_ID_TEXT_SIZE + 1];

    if (!codec_encode(submission->session.codec, record, buffer, err) ||
        buffer->size > CODEC_REQUEST_SIZE_MAX) {
        line_error_set(error, "request_too_large", "",
                       "the request takes %zu bytes: the limit is %d", buffer->size,
                       CODEC_REQUEST_SIZE_MAX);
        reject(submission, error, number);
        return true;
    }
    request_id_format(&record->u.request.request_id, key);
    if (!begin(submission, err) ||
        !session_produce(&submission->session, submission->topic,
                         (struct str){key, REQUEST_ID_TEXT_SIZE}, record, buffer, err))
        return false;
    submission->batch.total++;
    return true;
}

static bool send_line(struct submission *submission, const struct raw_line *raw, struct err *err)
{
    const struct batch *batch = &submission->batch;
    struct record record = {.type = RECORD_REQUEST};
    struct request *request = &record.u.request;
    struct line_error error;
    struct line line;
    bool ok = true;

    if (!line_check(raw, &line, &error)) {
        reject(submission, &error, raw->number);
        return true;
    }
    *request = (struct request){.tenant = batch->tenant,
                                .batch_id = batch->batch_id,
                                .custom_id = line.custom_id,
                                .service_class = batch->service_class,
                                .endpoint = line.endpoint,
                                .model = line.model,
                                .body = line.body,
                                .line = raw->number > UINT32_MAX ? 0 : (uint32_t)raw->number,
                                .submitted_ms = clock_wall_ms(),
                                .deadline_ms = batch->deadline_ms,
                                .stream = submission->stream};
    sha256(line.body.data, line.body.size, request->body_hash);
    request_id_make(request->tenant, request->batch_id, request->custom_id, &request->request_id);
    if (!line_check_unique(submission->line_of, &request->request_id, raw->number, &error))
        reject(submission, &error, raw->number);
    else if (!submission->retry || !retry_answered(submission->retry, line.custom_id))
        ok = send_request(submission, &record, &error, raw->number, err);
    line_free(&line);
    return ok;
}

/* Lines of the whole file, by the share of its bytes that has been read; 0: unknown. */
static uint64_t total_estimate(const struct submission *submission, uint64_t bytes_read)
{
    double share =
        submission->file_size > 0 ? (double)bytes_read / (double)submission->file_size : 0;

    return share > 0 ? (uint64_t)((double)submission->batch.total / share) : 0;
}

static bool send_file(struct submission *submission, struct err *err)
{
    struct lines *lines;
    struct raw_line raw;
    uint8_t digest[SHA256_SIZE];
    bool end = false, ok;

    if (!lines_open(&lines, submission->path, CODEC_REQUEST_SIZE_MAX, err))
        return false;
    do {
        ok = lines_next(lines, &raw, &end, err);
        if (ok && !end && !line_is_blank(&raw))
            ok = send_line(submission, &raw, err);
        if (stop_requested())
            ok = err_set(err, ERR_RETRY, "interrupted after line %" PRIu64, raw.number);
        meter_show(&submission->meter, submission->batch.total,
                   total_estimate(submission, lines_bytes_read(lines)), "");
    } while (ok && !end);
    lines_close(lines, digest);
    if (!ok)
        return false;
    if (submission->file_size > 0 &&
        memcmp(digest, submission->batch.file_hash, sizeof digest) != 0)
        return err_set(err, ERR_RETRY, "%.120s changed while it was read", submission->path);
    memcpy(submission->batch.file_hash, digest, sizeof digest);
    return session_flush(&submission->session, err);
}

static void report(const struct submission *submission)
{
    const struct batch *batch = &submission->batch;

    if (submission->options->session.json)
        render_event(stdout, "submitted",
                     json_pack("{s:s, s:I, s:I}", "batch", submission->batch_id, "total",
                               (json_int_t)batch->total, "rejected", (json_int_t)batch->rejected));
    else
        printf("batch %s: %" PRIu64 " requests sent, %" PRIu64 " lines rejected%s\n",
               submission->batch_id, batch->total, batch->rejected,
               submission->before.record ? " (submitted before)" : "");
    fflush(stdout);
}

static bool tick(void *context, const struct results_tally *tally)
{
    struct submission *submission = context;
    char note[120];

    command_note(tally, note, sizeof note);
    meter_show(&submission->meter, tally->finished, tally->total, note);
    return true;
}

static int wait_for_results(struct submission *submission)
{
    const bool json = submission->options->session.json;
    const struct record batch = {.type = RECORD_BATCH, .u.batch = submission->batch};
    const struct results_options options = {.batch = &batch, .tick = tick, .context = submission};
    struct results_tally tally;
    char note[120];
    struct err err;

    submission->meter = meter_start("answers", json);
    if (!results_follow(&submission->session, &options, &tally, &err))
        return command_fail(command_code(&err), &err);
    command_note(&tally, note, sizeof note);
    meter_end(&submission->meter, tally.finished, tally.total, note);
    if (json)
        command_print_tally(&submission->batch, false, &tally, true);
    else
        command_suggest_retry(&submission->batch, &tally, submission->path);
    return command_code_of_tally(&submission->session, &submission->batch, &tally);
}

/* Opens clients, what is to be left out, and the file of errors. False: return *code. */
static bool prepare(struct submission *submission, struct config *config, int *code)
{
    const struct options *options = submission->options;
    struct session *session = &submission->session;
    bool unfinished = false;
    struct err err;

    if (!command_open(session, &options->session, config, SESSION_BOTH, code))
        return false;
    *code = EX_OK;
    if (submission->is_retry && !retry_open(&submission->retry, session, submission->batch.tenant,
                                            submission->batch.retry_of, &unfinished, &err))
        *code = unfinished ? EX_TEMPFAIL : err.kind == ERR_REJECT ? EX_NOINPUT : command_code(&err);
    else if (*options->errors && !output_open(&submission->errors, options->errors, &err))
        *code = EX_CANTCREAT;
    else if (!session_prepare(session, TOPIC_CONTROL, &err) ||
             !session_prepare(session, submission->topic, &err))
        *code = EX_UNAVAILABLE;
    return *code == EX_OK || command_fail(*code, &err) == EX_OK;
}

/* Sends the file, from the claim to the job's total. Returns the exit code. */
static int send_all(struct submission *submission)
{
    struct err err;

    submission->meter = meter_start("sending", submission->options->session.json);
    if ((submission->is_retry || begin(submission, &err)) && send_file(submission, &err) &&
        (!submission->has_begun || publish_batch(submission, true, &err))) {
        meter_end(&submission->meter, submission->batch.total, submission->batch.total, "");
        return EX_OK;
    }
    if (submission->begin_code != EX_OK)
        return command_fail(submission->begin_code, &err);
    command_fail(EX_TEMPFAIL, &err);
    if (submission->has_begun)
        fprintf(stderr, "pelton: the job is incomplete; submitting it again does no harm\n");
    return err.kind == ERR_RETRY ? EX_TEMPFAIL : command_code(&err);
}

static int run(struct submission *submission, struct config *config)
{
    const struct options *options = submission->options;
    struct err err;
    int code;

    if (output_same(submission->path, options->errors)) {
        fprintf(stderr, "pelton: the file of --errors is the one to be sent\n");
        return EX_USAGE;
    }
    if (!check_batch_id(submission, &err)) {
        bool is_there = strcmp(submission->path, "-") == 0 || access(submission->path, R_OK) == 0;
        return command_fail(is_there ? EX_USAGE : EX_NOINPUT, &err);
    }
    describe_batch(submission);
    if (!prepare(submission, config, &code))
        return code;
    code = send_all(submission);
    if (code != EX_OK)
        return code;
    if (submission->is_retry)
        retry_report(submission->retry, &submission->batch, submission->before.record != NULL,
                     options->session.json);
    else
        report(submission);
    if (!output_close(&submission->errors, true, &err))
        return command_fail(EX_CANTCREAT, &err);
    code = submission->batch.rejected > 0 ? EX_DATAERR : EX_OK;
    if (options->wait && submission->has_begun) {
        int waited = wait_for_results(submission);
        code = waited != EX_OK ? waited : code;
    }
    return code;
}

int command_submit(int argc, char **argv)
{
    struct options options;
    struct submission submission = {.options = &options};
    struct config *config;
    int code;

    if (!command_configure(&config, &program, argc, argv, &options, &code))
        return code;
    submission.path = command_argument(config, "FILE.jsonl");
    submission.is_named = config_given(config, "batch");
    submission.is_retry = config_given(config, "retry");
    submission.stream = !config_given(config, "stream") ? STREAM_AUTO
                        : options.stream                ? STREAM_ON
                                                        : STREAM_OFF;
    submission.topic =
        options.class == CLASS_BULK ? TOPIC_REQUESTS_BULK : TOPIC_REQUESTS_INTERACTIVE;
    submission.line_of = idmap_open(0);
    code = submission.path ? run(&submission, config) : EX_USAGE;
    session_close(&submission.session);
    output_close(&submission.errors, false, &(struct err){0}); /* of a submission that failed */
    batch_free(&submission.before);
    retry_close(submission.retry);
    idmap_close(submission.line_of);
    buffer_free(&submission.buffer);
    free(submission.first_offsets);
    free(submission.names);
    config_free(config);
    return code;
}
