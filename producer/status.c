/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <sysexits.h>

#include "common/clock.h"
#include "common/escape.h"
#include "producer/command.h"
#include "producer/render.h"

struct options {
    struct session_options session;
};

static const struct config_key keys[] = {SESSION_TENANT_FILTER(struct options, session),
                                         SESSION_KEYS(struct options, session)};

static const struct config_program program = {
    .name = "pelton status",
    .version = PELTON_VERSION,
    .synopsis = "[options] [BATCH]",
    .summary =
        "How far a job has come. Without BATCH, all jobs, and whether they are wholly submitted "
        "or\n"
        "cancelled; answers are counted for one job only. BATCH may be the beginning of an id.",
    .epilogue = "Exit code: 0, 66 no such batch, 69 no answer from Kafka.",
    .keys = keys,
    .keys_count = sizeof keys / sizeof *keys,
    .arguments_max = 1,
};

static bool print_job(void *context, const struct batch_state *state, struct err *err)
{
    const struct options *options = context;
    const struct batch *batch = &state->record->u.batch;
    const char *state_name = state->cancelled  ? "cancelled"
                             : batch->complete ? "submitted"
                                               : "submitting";
    char created[CLOCK_TEXT_SIZE];

    (void)err;
    clock_format_ms(batch->created_ms, created);
    if (options->session.json)
        render_event(stdout, "batch",
                     json_pack("{s:s%, s:s%, s:s%, s:s, s:s, s:I, s:I}", "batch",
                               batch->batch_id.data, batch->batch_id.size, "tenant",
                               batch->tenant.data, batch->tenant.size, "file",
                               batch->file_name.data, batch->file_name.size, "created", created,
                               "state", state_name, "total", (json_int_t)batch->total, "rejected",
                               (json_int_t)batch->rejected));
    else {
        printf("%s  %-10s %8llu", created, state_name, (unsigned long long)batch->total);
        const struct str names[] = {batch->batch_id, batch->tenant, batch->file_name};
        for (size_t i = 0; i < 3; i++) {
            fputs("  ", stdout);
            escape_print(stdout, names[i].data, names[i].size, "");
        }
        putchar('\n');
    }
    return true;
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
        command_print_tally(&state.record->u.batch, state.cancelled, &tally, options->session.json);
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
    struct err err;
    int code;

    if (!command_configure(&config, &program, argc, argv, &options, &code))
        return code;
    arguments = config_arguments(config);
    if (command_open(&session, &options.session, config, SESSION_READS, &code)) {
        if (arguments.count > 0)
            code = print_batch(&session, &options, arguments.items[0]);
        else if (!batch_each(&session, print_job, &options, &err))
            code = command_fail(command_code(&err), &err);
    }
    session_close(&session);
    config_free(config);
    return code;
}
