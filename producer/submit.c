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
#include "producer/job.h"
#include "producer/line.h"
#include "producer/meter.h"
#include "producer/output.h"
#include "producer/render.h"
#include "producer/retry.h"
#include "producer/submit_options.h"

enum { REJECTED_SHOWN_MAX = 20 }; /* on the terminal; the file has them all */

struct submission {
    const struct submit_options *options;
    bool is_named;       /* --batch was given */
    bool is_retry;       /* --retry was given */
    struct retry *retry; /* what it leaves out, else NULL */
    bool is_spent;       /* the job has lines of two files */
    bool has_first;      /* line: it was looked at */
    int code;            /* of the failure, where it is known better than by its kind */
    enum stream_mode stream;
    enum topic topic; /* of the requests */
    struct session session;
    const char *path;
    char batch_id[BATCH_ID_SIZE_MAX + 1];
    uint64_t file_size; /* 0: unknown */
    struct job job;
    struct idmap *line_of; /* request_id to line */
    uint64_t foreign;      /* answers to requests that are not in line_of */
    struct output errors;
    struct buffer buffer;
    struct meter meter;
};

static bool check_batch_id(struct submission *submission, struct err *err)
{
    const struct submit_options *options = submission->options;
    const bool is_stream = lines_is_stream(submission->path);
    uint8_t digest[SHA256_SIZE];

    if (submission->is_named &&
        !command_check_name("--batch", options->batch, BATCH_ID_SIZE_MAX, err))
        return false;
    snprintf(submission->batch_id, sizeof submission->batch_id, "%s", options->batch);
    if (submission->is_retry &&
        (!command_check_name("--retry", options->retry, BATCH_ID_SIZE_MAX, err) ||
         !retry_name(options->retry, submission->batch_id, err)))
        return false;
    submission->job.is_stream = is_stream;
    if (is_stream)
        return *submission->batch_id ||
               err_set(err, ERR_REJECT, "%.120s has no hash to name the job by; give --batch ID",
                       strcmp(submission->path, "-") == 0 ? "standard input" : submission->path);
    if (!lines_hash_file(submission->path, digest, &submission->file_size, err))
        return false;
    memcpy(submission->job.batch.file_hash, digest, sizeof digest);
    if (!*submission->batch_id)
        hex_format(digest, sizeof digest, submission->batch_id);
    return true;
}

static void describe_batch(struct submission *submission)
{
    struct batch *batch = &submission->job.batch;
    const struct submit_options *options = submission->options;
    const char *slash = strrchr(submission->path, '/');

    batch->batch_id = str_from(submission->batch_id);
    batch->tenant = str_from(options->session.tenant);
    batch->file_name = str_from(slash ? slash + 1 : submission->path);
    batch->retry_of = str_from(options->retry);
    batch->service_class = (enum service_class)options->class;
    batch->created_ms = clock_wall_ms();
    batch->deadline_ms = options->window_us > 0 ? batch->created_ms + options->window_us / 1000 : 0;
}

/* A retry begins with its first request, so that one without any leaves no job behind. */
static bool begin(struct submission *submission, struct err *err)
{
    if (job_begin(&submission->job, err))
        return true;
    if (!submission->job.has_begun)
        submission->code = err->kind == ERR_REJECT ? EX_USAGE : command_code(err);
    return false;
}

/* The message may quote the line. */
static void show_rejected(const struct submission *submission, const struct line_error *error,
                          uint64_t number)
{
    fputs(submission->meter.style == METER_BAR ? "\r\033[K" : "", stderr);
    escape_line(stderr, "%s:%" PRIu64 ": %s", submission->path, number, error->message);
}

static void reject(struct submission *submission, const struct line_error *error, uint64_t number)
{
    struct err ignored;

    submission->job.batch.rejected++;
    /* A line that cannot be written is noticed when the file is closed: the others are to be sent.
     */
    if (submission->errors.file)
        (void)output_write_line(&submission->errors, render_rejected(error, number), &ignored);
    if (submission->job.batch.rejected <= REJECTED_SHOWN_MAX)
        show_rejected(submission, error, number);
    else if (submission->job.batch.rejected == REJECTED_SHOWN_MAX + 1)
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
    submission->job.batch.total++;
    return true;
}

static bool send_line(struct submission *submission, const struct raw_line *raw, struct err *err)
{
    const struct batch *batch = &submission->job.batch;
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

    return share > 0 ? (uint64_t)((double)submission->job.batch.total / share) : 0;
}

/* Of a stream it is what tells the job from others. At the end of an empty file it is no line. */
static bool take_first(struct submission *submission, const struct raw_line *raw, struct err *err)
{
    if (submission->has_first)
        return true;
    submission->has_first = true;
    if (submission->job.is_stream)
        claim_stream_hash(raw, submission->job.batch.file_hash);
    return submission->is_retry || begin(submission, err);
}

/* Was it the file that the job is named by or claimed for? */
static bool check_unchanged(struct submission *submission, const uint8_t digest[SHA256_SIZE],
                            struct err *err)
{
    if (submission->job.is_stream ||
        memcmp(digest, submission->job.batch.file_hash, SHA256_SIZE) == 0)
        return true;
    submission->is_spent = submission->job.has_begun;
    submission->code = EX_DATAERR;
    return err_set(err, ERR_REJECT, "%.120s changed while it was read", submission->path);
}

static bool send_file(struct submission *submission, struct err *err)
{
    struct lines *lines;
    struct raw_line raw;
    uint8_t digest[SHA256_SIZE];
    bool end = false, ok;

    if (!lines_open(&lines, submission->path, CODEC_REQUEST_SIZE_MAX, err)) {
        submission->code = EX_NOINPUT;
        return false;
    }
    do {
        ok = lines_next(lines, &raw, &end, err);
        if (!ok) {
            submission->code = EX_NOINPUT;
            break;
        }
        if (end || !line_is_blank(&raw))
            ok = take_first(submission, &raw, err) && (end || send_line(submission, &raw, err));
        if (ok && stop_requested())
            ok = err_set(err, ERR_RETRY, "interrupted after line %" PRIu64, raw.number);
        meter_show(&submission->meter, submission->job.batch.total,
                   total_estimate(submission, lines_bytes_read(lines)), "");
    } while (ok && !end);
    lines_close(lines, digest);
    return ok && check_unchanged(submission, digest, err) &&
           session_flush(&submission->session, err);
}

static void report(const struct submission *submission)
{
    const struct batch *batch = &submission->job.batch;

    if (submission->options->session.json)
        render_event(stdout, "submitted",
                     json_pack("{s:s, s:I, s:I}", "batch", submission->batch_id, "total",
                               (json_int_t)batch->total, "rejected", (json_int_t)batch->rejected));
    else
        printf("batch %s: %" PRIu64 " requests sent, %" PRIu64 " lines rejected%s\n",
               submission->batch_id, batch->total, batch->rejected,
               submission->job.before.record ? " (submitted before)" : "");
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

static bool count_foreign(void *context, const struct result *result, struct err *err)
{
    struct submission *submission = context;

    (void)err;
    submission->foreign += !idmap_get(submission->line_of, result->request_id.bytes);
    return true;
}

static int wait_for_results(struct submission *submission)
{
    const bool json = submission->options->session.json;
    const struct record batch = {.type = RECORD_BATCH, .u.batch = submission->job.batch};
    const struct results_options options = {
        .batch = &batch, .visit = count_foreign, .tick = tick, .context = submission};
    struct results_tally tally;
    char note[120];
    struct err err;

    submission->meter = meter_start("answers", json);
    if (!results_follow(&submission->session, &options, &tally, &err))
        return command_fail(command_code(&err), &err);
    command_note(&tally, note, sizeof note);
    meter_end(&submission->meter, tally.finished, tally.total, note);
    if (json)
        command_print_tally(&submission->job.batch, false, &tally, true);
    if (submission->foreign > 0 && results_state(&tally) != RESULTS_EXCESS) {
        fprintf(stderr,
                "pelton: batch %s has answers to requests that are not in this file (%" PRIu64
                "): another was sent under its name; choose another --batch\n",
                submission->batch_id, submission->foreign);
        return EX_DATAERR;
    }
    if (!json)
        command_suggest_retry(&submission->job.batch, &tally, submission->path,
                              submission->options->window_us / 1000, submission->stream);
    return command_code_of_tally(&submission->session, &submission->job.batch, &tally);
}

/* Opens clients, what is to be left out, and the file of errors. False: return *code. */
static bool prepare(struct submission *submission, struct config *config, int *code)
{
    const struct submit_options *options = submission->options;
    const struct batch *batch = &submission->job.batch;
    struct session *session = &submission->session;
    bool unfinished = false;
    struct err err;

    if (!command_open(session, &options->session, config, SESSION_BOTH, code))
        return false;
    *code = EX_OK;
    if (submission->is_retry &&
        !retry_open(&submission->retry, session, batch->tenant, batch->retry_of, &unfinished, &err))
        *code = unfinished ? EX_TEMPFAIL : err.kind == ERR_REJECT ? EX_NOINPUT : command_code(&err);
    else if (*options->errors && !output_open(&submission->errors, options->errors, &err))
        *code = EX_CANTCREAT;
    else if (!session_prepare(session, TOPIC_CONTROL, &err) ||
             !session_prepare(session, submission->topic, &err))
        *code = EX_UNAVAILABLE;
    return *code == EX_OK || command_fail(*code, &err) == EX_OK;
}

/* What to do about a job that has begun and could not be ended. */
static void advise(const struct submission *submission)
{
    const char *id = submission->batch_id;

    if (!submission->is_spent)
        fprintf(stderr, "pelton: the job is incomplete; submitting it again does no harm\n");
    else if (submission->is_named || submission->is_retry)
        fprintf(stderr,
                "pelton: its name is spent: submit the file under another --batch; `pelton cancel "
                "%s` stops what was sent\n",
                id);
    else
        fprintf(stderr,
                "pelton: submit the file again, which makes another job of it; `pelton cancel %s` "
                "stops what was sent\n",
                id);
}

/* Sends the file, from the claim to the job's total. Returns the exit code. */
static int send_all(struct submission *submission)
{
    struct job *job = &submission->job;
    struct err err;

    submission->meter = meter_start("sending", submission->options->session.json);
    if (send_file(submission, &err) && (!job->has_begun || job_end(job, &err))) {
        meter_end(&submission->meter, job->batch.total, job->batch.total, "");
        return EX_OK;
    }
    if (submission->code == EX_OK)
        submission->code = err.kind == ERR_RETRY    ? EX_TEMPFAIL
                           : err.kind == ERR_REJECT ? EX_DATAERR
                                                    : command_code(&err);
    command_fail(submission->code, &err);
    if (job->has_begun && (submission->is_spent || submission->code != EX_DATAERR))
        advise(submission);
    return submission->code;
}

static int run(struct submission *submission, struct config *config)
{
    const struct submit_options *options = submission->options;
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
    submission->job.session = &submission->session;
    if (!prepare(submission, config, &code))
        return code;
    code = send_all(submission);
    if (code != EX_OK)
        return code;
    if (submission->is_retry)
        retry_report(submission->retry, &submission->job.batch,
                     submission->job.before.record != NULL, options->session.json);
    else
        report(submission);
    if (!output_close(&submission->errors, true, &err))
        return command_fail(EX_CANTCREAT, &err);
    code = submission->job.batch.rejected > 0 ? EX_DATAERR : EX_OK;
    if (options->wait && submission->job.has_begun) {
        int waited = wait_for_results(submission);
        code = waited != EX_OK ? waited : code;
    }
    return code;
}

int command_submit(int argc, char **argv)
{
    struct submit_options options;
    struct submission submission = {.options = &options};
    struct config *config;
    int code;

    if (!command_configure(&config, &submit_program, argc, argv, &options, &code))
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
    job_free(&submission.job);
    retry_close(submission.retry);
    idmap_close(submission.line_of);
    buffer_free(&submission.buffer);
    config_free(config);
    return code;
}
