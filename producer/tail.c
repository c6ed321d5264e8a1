/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/check.h"
#include "common/escape.h"
#include "common/idmap.h"
#include "producer/command.h"
#include "producer/render.h"
#include "producer/stream.h"

struct options {
    struct session_options session;
    const char *id;
};

static const struct config_key keys[] = {
    {.name = "id",
     .type = CONFIG_STRING,
     .offset = offsetof(struct options, id),
     .value_name = "CUSTOM_ID",
     .help = "Only this request, its text as it comes."},
    SESSION_TENANT_FILTER(struct options, session),
    SESSION_KEYS(struct options, session),
};

static const struct config_program program = {
    .name = "pelton tail",
    .version = PELTON_VERSION,
    .synopsis = "[options] [BATCH]",
    .summary =
        "Shows the answers of a job, or of the newest one, while they are written: whole\n"
        "lines, each after its custom_id. Requests that do not stream show their answer when\n"
        "it is there (see `pelton submit --stream`).",
    .epilogue =
        "Exit code: 0 all answered, 64 BATCH begins several ids, 65 some ended in an error, 66 no\n"
        "such batch or custom_id or the results are no longer kept (14 days by default), 69 no\n"
        "answer from Kafka, 75 interrupted.",
    .keys = keys,
    .keys_count = sizeof keys / sizeof *keys,
    .arguments_max = 1,
};

/* A request under way. */
struct answer {
    struct stream stream;
    char *line; /* text since the last line end */
    size_t line_size;
};

struct tail {
    const struct options *options;
    struct idmap *answers; /* request_id to struct answer */
    bool found;            /* the request of --id has its outcome */
    int code;              /* what that one's is */
};

static struct answer *answer_of(struct tail *tail, const struct request_id *id)
{
    union idmap_value *value = idmap_put(tail->answers, id->bytes, NULL);

    if (!value->pointer) {
        value->pointer = calloc(1, sizeof(struct answer));
        CHECK(value->pointer);
    }
    return value->pointer;
}

static void answer_free(struct answer *answer)
{
    free(answer->line);
    free(answer);
}

static void print_line(struct str custom_id, const char *line, size_t size)
{
    escape_print(stdout, custom_id.data, custom_id.size, "");
    fputs(" | ", stdout);
    escape_print(stdout, line, size, "\t");
    putchar('\n');
}

/* Keeps what is no whole line yet, so that two answers never share one. */
static void print_lines(struct answer *answer, struct str custom_id, struct str text)
{
    for (;;) {
        const char *end = text.size > 0 ? memchr(text.data, '\n', text.size) : NULL;
        size_t size = end ? (size_t)(end - text.data) : text.size;

        if (size > 0) {
            answer->line = realloc(answer->line, answer->line_size + size);
            CHECK(answer->line);
            memcpy(answer->line + answer->line_size, text.data, size);
            answer->line_size += size;
        }
        if (!end)
            return;
        print_line(custom_id, answer->line, answer->line_size);
        answer->line_size = 0;
        text = (struct str){end + 1, text.size - size - 1};
    }
}

/* Into a file or a pipe it goes as it is. */
static void print_answer(struct str text)
{
    if (isatty(STDOUT_FILENO))
        escape_print(stdout, text.data, text.size, "\n\t");
    else
        fwrite(text.data, 1, text.size, stdout);
}

static void print_text(const struct tail *tail, struct answer *answer, struct str custom_id,
                       struct str text)
{
    if (text.size == 0)
        return;
    if (tail->options->session.json)
        render_event(stdout, "text",
                     json_pack("{s:s%, s:s%}", "custom_id", custom_id.data, custom_id.size, "text",
                               text.data, text.size));
    else if (*tail->options->id)
        print_answer(text);
    else
        print_lines(answer, custom_id, text);
    fflush(stdout);
}

static bool is_wanted(const struct tail *tail, struct str custom_id)
{
    return !*tail->options->id || str_equal(custom_id, str_from(tail->options->id));
}

static bool visit_chunk(void *context, const struct token_chunk *chunk, struct err *err)
{
    struct tail *tail = context;
    struct answer *answer;

    (void)err;
    if (!is_wanted(tail, chunk->custom_id))
        return true;
    answer = answer_of(tail, &chunk->request_id);
    print_text(tail, answer, chunk->custom_id, stream_accept(&answer->stream, chunk));
    return true;
}

static void print_end(const struct tail *tail, struct answer *answer, const struct result *result)
{
    static const char *const states[] = {"completed", "failed", "expired", "cancelled"};
    const struct str *message = &result->failure.message;

    if (tail->options->session.json) {
        render_event(stdout, "finished",
                     json_pack("{s:s%, s:s}", "custom_id", result->custom_id.data,
                               result->custom_id.size, "status", states[result->status]));
        return;
    }
    if (*tail->options->id) {
        printf("\n");
    } else if (answer->line_size > 0) {
        print_line(result->custom_id, answer->line, answer->line_size);
    }
    if (result->status != RESULT_COMPLETED) {
        escape_print(stdout, result->custom_id.data, result->custom_id.size, "");
        printf(" : %s: ", states[result->status]);
        escape_print(stdout, message->data, message->size, "");
        putchar('\n');
    }
    fflush(stdout);
}

static bool visit(void *context, const struct result *result, struct err *err)
{
    struct tail *tail = context;
    struct answer *answer;

    (void)err;
    if (!is_wanted(tail, result->custom_id))
        return true;
    answer = answer_of(tail, &result->request_id);
    print_text(tail, answer, result->custom_id, stream_finish(&answer->stream, result->text));
    print_end(tail, answer, result);
    /* The entry stays, so that a late chunk finds the stream finished; its text does not. */
    free(answer->line);
    answer->line = NULL;
    answer->line_size = 0;
    tail->found = true;
    tail->code = result->status == RESULT_COMPLETED ? EX_OK : EX_DATAERR;
    return true;
}

static bool tick(void *context, const struct results_tally *tally)
{
    const struct tail *tail = context;

    (void)tally;
    return !(*tail->options->id && tail->found) && !ferror(stdout); /* nobody would see the rest */
}

static int follow(struct session *session, const struct options *options, const char *id)
{
    struct tail tail = {.options = options};
    struct results_options walk = {
        .visit = visit, .visit_chunk = visit_chunk, .tick = tick, .context = &tail};
    struct batch_state state;
    struct results_tally tally;
    union idmap_value *value;
    size_t cursor = 0;
    struct err err;
    int code;

    if (!command_find(session, id, &state, &code))
        return code;
    walk.batch = state.record;
    tail.answers = idmap_open(0);
    if (!results_follow(session, &walk, &tally, &err)) {
        code = command_fail(command_code(&err), &err);
    } else if (*options->id && !tail.found && results_done(&tally)) {
        err_set(&err, ERR_REJECT, "batch %.*s has no request \"%.100s\"",
                (int)state.record->u.batch.batch_id.size, state.record->u.batch.batch_id.data,
                options->id);
        code = command_fail(EX_NOINPUT, &err);
    } else {
        code = *options->id && tail.found
                   ? tail.code
                   : command_code_of_tally(session, &state.record->u.batch, &tally);
    }
    while (idmap_next(tail.answers, &cursor, NULL, &value))
        answer_free(value->pointer);
    idmap_close(tail.answers);
    batch_free(&state);
    return code;
}

int command_tail(int argc, char **argv)
{
    struct options options;
    struct session session;
    struct config_list arguments;
    struct config *config;
    int code;

    if (!command_configure(&config, &program, argc, argv, &options, &code))
        return code;
    arguments = config_arguments(config);
    if (command_open(&session, &options.session, config, SESSION_READS, &code))
        code = follow(&session, &options, arguments.count > 0 ? arguments.items[0] : NULL);
    session_close(&session);
    config_free(config);
    return code;
}
