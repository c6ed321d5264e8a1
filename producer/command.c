/* SPDX-License-Identifier: Apache-2.0 */
#include "producer/command.h"

#include <stdio.h>
#include <string.h>

#include "common/escape.h"
#include "common/exits.h"
#include "common/log.h"
#include "common/stop.h"
#include "common/utf8.h"
#include "producer/render.h"

bool command_check_name(const char *option, const char *name, size_t size_max, struct err *err)
{
    size_t size = strlen(name);

    if (size == 0 || strspn(name, " ") == size)
        return err_set(err, ERR_REJECT, "%s is empty or blank", option);
    if (size > size_max || !utf8_valid(name, size))
        return err_set(err, ERR_REJECT, "%s must be UTF-8 of at most %zu bytes", option, size_max);
    return !escape_needed(name, size) ||
           err_set(err, ERR_REJECT, "%s holds a control character", option);
}

/* No file, batch or broker has an empty name. */
static bool check_arguments(const struct config *config, const struct session_options *options,
                            struct err *err)
{
    struct config_list arguments = config_arguments(config);

    for (size_t i = 0; i < arguments.count; i++)
        if (!*arguments.items[i])
            return err_set(err, ERR_REJECT, "an argument is empty");
    return options->common.brokers[strspn(options->common.brokers, ", ")] != '\0' ||
           err_set(err, ERR_REJECT, "--brokers names no broker");
}

static void print_row(const char *label, struct str value)
{
    printf("%-10s ", label);
    escape_print(stdout, value.data, value.size, "");
    putchar('\n');
}

bool command_configure(struct config **config, const struct config_program *program, int argc,
                       char **argv, void *values, int *code)
{
    const struct session_options *options = values;
    enum config_outcome outcome;
    struct err err;

    if (!config_load(config, program, argc, argv, values, &outcome, &err)) {
        *code = command_fail(exits_config_code(outcome), &err);
        return false;
    }
    *code = EX_OK;
    if (outcome == CONFIG_EXIT)
        return false;
    if ((options->tenant && config_given(*config, "tenant") &&
         !command_check_name("--tenant", options->tenant, TENANT_SIZE_MAX, &err)) ||
        !check_arguments(*config, options, &err)) {
        config_free(*config);
        *code = command_fail(EX_USAGE, &err);
        return false;
    }
    log_open("pelton", (enum log_level)options->common.log_level);
    return true;
}

bool command_open(struct session *session, const struct session_options *options,
                  const struct config *config, enum session_use use, int *code)
{
    struct err err;

    if (!session_open(session, options, config_kafka_settings(config), use, &err)) {
        *code = command_fail(exits_code(&err), &err);
        return false;
    }
    if (use == SESSION_PRODUCES || session_connect(session, &err))
        return true;
    *code = command_fail(stop_requested() ? EX_TEMPFAIL : EX_UNAVAILABLE, &err);
    return false;
}

int command_fail(int code, const struct err *err)
{
    return exits_with(code, "pelton", err);
}

bool command_find(struct session *session, const char *id, struct batch_state *state, int *code)
{
    bool ambiguous;
    struct err err;

    if (batch_need(session, id, state, &ambiguous, &err))
        return true;
    *code = command_fail(ambiguous                ? EX_USAGE
                         : err.kind == ERR_REJECT ? EX_NOINPUT
                                                  : command_code(&err),
                         &err);
    return false;
}

int command_code(const struct err *err)
{
    return err->kind == ERR_RETRY ? EX_UNAVAILABLE : EX_SOFTWARE;
}

const char *command_argument(const struct config *config, const char *what)
{
    struct config_list arguments = config_arguments(config);

    if (arguments.count > 0)
        return arguments.items[0];
    fprintf(stderr, "pelton: %s is missing; see --help\n", what);
    return NULL;
}

void command_note(const struct results_tally *tally, char *note, size_t note_size)
{
    static const char *const names[] = {NULL, "failed", "expired", "cancelled"};
    size_t used = 0;

    note[0] = '\0';
    for (int status = RESULT_FAILED; status <= RESULT_CANCELLED; status++) {
        if (tally->by_status[status] == 0 || used >= note_size)
            continue;
        used += (size_t)snprintf(note + used, note_size - used, "%s%llu %s", used ? ", " : "",
                                 (unsigned long long)tally->by_status[status], names[status]);
    }
}

static uint64_t waiting(const struct results_tally *tally)
{
    return results_state(tally) == RESULTS_OPEN && tally->total > tally->finished
               ? tally->total - tally->finished
               : 0;
}

static uint64_t gone(const struct results_tally *tally)
{
    return results_state(tally) == RESULTS_GONE && tally->total > tally->finished
               ? tally->total - tally->finished
               : 0;
}

const char *command_state(bool cancelled, const struct results_tally *tally)
{
    switch (results_state(tally)) {
    case RESULTS_DONE:
        return cancelled ? "cancelled" : "completed";
    case RESULTS_GONE:
        return tally->finished > 0 ? "partly_gone" : "gone";
    case RESULTS_EXCESS:
        return "inconsistent";
    case RESULTS_OPEN:
        break;
    }
    if (cancelled)
        return "cancelling";
    return tally->complete ? "in_progress" : "submitting";
}

void command_print_tally(const struct batch *batch, bool cancelled,
                         const struct results_tally *tally, bool json)
{
    if (json) {
        json_t *members = json_pack(
            "{s:s%, s:s%, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "batch",
            batch->batch_id.data, batch->batch_id.size, "tenant", batch->tenant.data,
            batch->tenant.size, "state", command_state(cancelled, tally), "total",
            (json_int_t)tally->total, "completed", (json_int_t)tally->by_status[RESULT_COMPLETED],
            "failed", (json_int_t)tally->by_status[RESULT_FAILED], "expired",
            (json_int_t)tally->by_status[RESULT_EXPIRED], "cancelled",
            (json_int_t)tally->by_status[RESULT_CANCELLED], "waiting", (json_int_t)waiting(tally),
            "rejected", (json_int_t)tally->rejected, "gone", (json_int_t)gone(tally));
        if (batch->retry_of.size > 0)
            json_object_set_new(members, "retry_of",
                                json_stringn(batch->retry_of.data, batch->retry_of.size));
        render_event(stdout, "status", members);
        return;
    }
    print_row("batch", batch->batch_id);
    print_row("tenant", batch->tenant);
    if (batch->retry_of.size > 0)
        print_row("retry of", batch->retry_of);
    printf("state      %s\ntotal      %llu\ncompleted  %llu\n", command_state(cancelled, tally),
           (unsigned long long)tally->total,
           (unsigned long long)tally->by_status[RESULT_COMPLETED]);
    printf("failed     %llu\nexpired    %llu\ncancelled  %llu\nwaiting    %llu\n",
           (unsigned long long)tally->by_status[RESULT_FAILED],
           (unsigned long long)tally->by_status[RESULT_EXPIRED],
           (unsigned long long)tally->by_status[RESULT_CANCELLED],
           (unsigned long long)waiting(tally));
    printf("rejected   %llu\n", (unsigned long long)tally->rejected);
    if (gone(tally) > 0)
        printf("gone       %llu\n", (unsigned long long)gone(tally));
}

/* As a word of the shell: in quotes where it needs them. */
static void print_word(FILE *out, struct str word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789_-./:@+=,%";
    bool is_plain = word.size > 0;

    for (size_t i = 0; i < word.size; i++)
        is_plain = is_plain && word.data[i] && strchr(plain, word.data[i]);
    fputs(is_plain ? "" : "'", out);
    for (size_t i = 0, size; i < word.size; i += size + 1) {
        const char *quote = memchr(word.data + i, '\'', word.size - i);
        size = quote ? (size_t)(quote - word.data) - i : word.size - i;
        escape_print(out, word.data + i, size, "");
        fputs(quote ? "'\\''" : "", out);
    }
    fputs(is_plain ? "" : "'", out);
}

static void print_window(FILE *out, int64_t window_ms)
{
    const bool is_hours = window_ms % 3600000 == 0, is_seconds = window_ms % 1000 == 0;

    if (window_ms > 0)
        fprintf(out, " --completion-window %lld%s",
                (long long)(window_ms / (is_hours     ? 3600000
                                         : is_seconds ? 1000
                                                      : 1)),
                is_hours     ? "h"
                : is_seconds ? "s"
                             : "ms");
}

void command_suggest_retry(const struct batch *batch, const struct results_tally *tally,
                           const char *path, int64_t window_ms, enum stream_mode stream)
{
    static const char *const streams[] = {"", " --stream", " --no-stream"};

    if (!results_done(tally) ||
        (tally->by_status[RESULT_COMPLETED] == tally->finished && tally->rejected == 0))
        return;
    fputs("pelton: what has no answer can run again: pelton submit ", stderr);
    print_word(stderr, path ? str_from(path) : batch->file_name);
    fputs(" --retry ", stderr);
    print_word(stderr, batch->batch_id);
    if (!str_equal(batch->tenant, str_from(TENANT_DEFAULT))) {
        fputs(" --tenant ", stderr);
        print_word(stderr, batch->tenant);
    }
    fputs(batch->service_class == CLASS_INTERACTIVE ? " --class interactive" : "", stderr);
    print_window(stderr, window_ms);
    fprintf(stderr, "%s\n", streams[stream]);
}

int command_check_tally(const struct session *session, const struct batch *batch,
                        const struct results_tally *tally)
{
    const enum results_state state = results_state(tally);
    struct err err;

    if (state == RESULTS_OPEN || state == RESULTS_DONE)
        return EX_OK;
    results_explain(session, batch, tally, &err);
    return command_fail(state == RESULTS_GONE ? EX_NOINPUT : EX_DATAERR, &err);
}

int command_code_of_tally(const struct session *session, const struct batch *batch,
                          const struct results_tally *tally)
{
    const int code = command_check_tally(session, batch, tally);

    if (code != EX_OK)
        return code;
    if (!results_done(tally))
        return EX_TEMPFAIL;
    return tally->by_status[RESULT_COMPLETED] == tally->finished ? EX_OK : EX_DATAERR;
}
