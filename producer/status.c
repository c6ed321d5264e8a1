/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#include "common/check.h"
#include "common/clock.h"
#include "common/escape.h"
#include "producer/command.h"
#include "producer/render.h"
#include "producer/tallies.h"

/* Results that a list is counted from without being asked to: 0.8 s and 59 MB where they are of 670
 * bytes and two cores have nothing else to do, 3 s beside a busy system. */
enum { WALK_MAX = 250000 };

struct options {
    struct session_options session;
    bool answers;
};

static const struct config_key keys[] = {
    {.name = "answers",
     .letter = 'a',
     .type = CONFIG_BOOL,
     .offset = offsetof(struct options, answers),
     .help = "In a list of jobs, count answers however many results are to be read; where it is "
             "not given, up to 250,000, and of older jobs none; --no-answers: do not."},
    SESSION_TENANT_FILTER(struct options, session),
    SESSION_KEYS(struct options, session),
};

static const struct config_program program = {
    .name = "pelton status",
    .version = PELTON_VERSION,
    .synopsis = "[options] [BATCH]",
    .summary = "How far a job has come. Without BATCH, all jobs, a line each below their titles:\n"
               "when it was submitted, its state, outcomes of requests, how many of them are\n"
               "errors, its id, tenant and file; ? is what is not known. BATCH may be the\n"
               "beginning of an id.",
    .epilogue =
        "State: submitting, in_progress, completed (every request has its outcome), cancelling,\n"
        "cancelled; gone or partly_gone: results are no longer kept (14 days by default);\n"
        "inconsistent: more outcomes than requests, as of two inputs under one name.\n"
        "\n"
        "Exit code: 0, 64 BATCH begins several ids, 65 inconsistent, 66 no such batch or its\n"
        "results are no longer kept, 69 no answer from Kafka.",
    .keys = keys,
    .keys_count = sizeof keys / sizeof *keys,
    .arguments_max = 1,
};

/* What is known without any result. */
static const char *state_submitted(const struct batch_state *state)
{
    if (state->cancelled)
        return "cancelled";
    return state->record->u.batch.complete ? "submitted" : "submitting";
}

/* tally: NULL where answers were not counted. */
static void print_event(const struct batch_state *state, const struct results_tally *tally)
{
    const struct batch *batch = &state->record->u.batch;
    char created[CLOCK_TEXT_SIZE];
    json_t *members;

    clock_format_ms(batch->created_ms, created);
    members =
        json_pack("{s:s%, s:s%, s:s%, s:s, s:s, s:I, s:I}", "batch", batch->batch_id.data,
                  batch->batch_id.size, "tenant", batch->tenant.data, batch->tenant.size, "file",
                  batch->file_name.data, batch->file_name.size, "created", created, "state",
                  tally ? command_state(state->cancelled, tally) : state_submitted(state), "total",
                  (json_int_t)batch->total, "rejected", (json_int_t)batch->rejected);
    if (tally) {
        json_object_set_new(members, "finished", json_integer((json_int_t)tally->finished));
        json_object_set_new(members, "completed",
                            json_integer((json_int_t)tally->by_status[RESULT_COMPLETED]));
    }
    if (batch->retry_of.size > 0)
        json_object_set_new(members, "retry_of",
                            json_stringn(batch->retry_of.data, batch->retry_of.size));
    render_event(stdout, "batch", members);
}

static void print_title(void)
{
    printf("%-24s  %-12s %8s/%-8s %6s  batch  tenant  file\n", "submitted", "state", "outcomes",
           "requests", "errors");
}

static void print_line(const struct batch_state *state, const struct results_tally *tally)
{
    const struct batch *batch = &state->record->u.batch;
    const struct str names[] = {batch->batch_id, batch->tenant, batch->file_name};
    char created[CLOCK_TEXT_SIZE], total[24] = "?", finished[24] = "?", errors[24] = "?";

    clock_format_ms(batch->created_ms, created);
    if (batch->complete)
        snprintf(total, sizeof total, "%" PRIu64, batch->total);
    if (tally) {
        snprintf(finished, sizeof finished, "%" PRIu64, tally->finished);
        snprintf(errors, sizeof errors, "%" PRIu64,
                 tally->finished - tally->by_status[RESULT_COMPLETED]);
    }
    printf("%s  %-12s %8s/%-8s %6s", created,
           tally ? command_state(state->cancelled, tally) : state_submitted(state), finished, total,
           errors);
    for (size_t i = 0; i < 3; i++) {
        fputs("  ", stdout);
        escape_print(stdout, names[i].data, names[i].size, "");
    }
    putchar('\n');
}

static int print_list(struct session *session, const struct options *options, bool is_asked)
{
    struct tallies tallies = {.walk_max = !is_asked ? WALK_MAX : options->answers ? UINT64_MAX : 0};
    struct batch_state *states;
    struct err err;
    size_t count;
    bool ok;

    if (!batch_list(session, &states, &count, &err))
        return command_fail(command_code(&err), &err);
    tallies.jobs = states;
    tallies.count = count;
    tallies.items = calloc(count + 1, sizeof *tallies.items);
    tallies.counted = calloc(count + 1, sizeof *tallies.counted);
    CHECK(tallies.items);
    CHECK(tallies.counted);
    ok = count == 0 || tallies_read(session, &tallies, &err);
    if (ok && count > 0 && !options->session.json)
        print_title();
    for (size_t i = 0; ok && i < count; i++) {
        const struct results_tally *tally = tallies.counted[i] ? &tallies.items[i] : NULL;
        if (options->session.json)
            print_event(&states[i], tally);
        else
            print_line(&states[i], tally);
    }
    if (ok && tallies.left_out > 0 && !is_asked)
        fprintf(stderr,
                "pelton: outcomes of %zu jobs are not counted, for %" PRIu64 " results would be "
                "read; --answers does\n",
                tallies.left_out, tallies.walk);
    free(tallies.counted);
    free(tallies.items);
    batch_list_free(states, count);
    return ok ? EX_OK : command_fail(command_code(&err), &err);
}

static int print_tally(const struct session *session, const struct options *options,
                       const struct batch_state *state, const struct results_tally *tally)
{
    const struct batch *batch = &state->record->u.batch;

    command_print_tally(batch, state->cancelled, tally, options->session.json);
    fflush(stdout);
    return command_check_tally(session, batch, tally);
}

static int print_batch(struct session *session, const struct options *options, const char *id)
{
    struct results_options walk = {0};
    struct batch_state state;
    struct results_tally tally;
    struct err err;
    int code = EX_OK;

    if (!command_find(session, id, &state, &code))
        return code;
    walk.batch = state.record;
    if (results_read(session, &walk, &tally, &err))
        code = print_tally(session, options, &state, &tally);
    else
        code = command_fail(command_code(&err), &err);
    batch_free(&state);
    return code;
}

int command_status(int argc, char **argv)
{
    struct options options;
    struct session session;
    struct config *config;
    struct config_list arguments;
    int code;

    if (!command_configure(&config, &program, argc, argv, &options, &code))
        return code;
    arguments = config_arguments(config);
    if (command_open(&session, &options.session, config, SESSION_READS, &code))
        code = arguments.count > 0
                   ? print_batch(&session, &options, arguments.items[0])
                   : print_list(&session, &options, config_given(config, "answers"));
    session_close(&session);
    config_free(config);
    return code;
}
