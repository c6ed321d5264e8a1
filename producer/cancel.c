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
    .name = "pelton cancel",
    .version = PELTON_VERSION,
    .synopsis = "[options] BATCH",
    .summary = "Asks for the end of a job: what is not answered yet gets the outcome `cancelled`.\n"
               "Answers that are there already stay. BATCH is the whole id.",
    .epilogue =
        "Exit code: 0, 64 BATCH begins several ids, 66 no such batch, 69 no answer from Kafka.",
    .keys = keys,
    .keys_count = sizeof keys / sizeof *keys,
    .arguments_max = 1,
};

static void report(const struct options *options, const struct batch *batch, const char *event,
                   const char *text)
{
    if (options->session.json)
        render_event(stdout, event,
                     json_pack("{s:s%}", "batch", batch->batch_id.data, batch->batch_id.size));
    else {
        fputs("batch ", stdout);
        escape_print(stdout, batch->batch_id.data, batch->batch_id.size, "");
        printf(": %s\n", text);
    }
}

static bool send_cancel(struct session *session, const struct batch *batch, struct err *err)
{
    const struct record record = {.type = RECORD_CANCEL_BATCH,
                                  .u.cancel_batch = {.batch_id = batch->batch_id,
                                                     .tenant = batch->tenant,
                                                     .sent_ms = clock_wall_ms()}};

    return session_prepare(session, TOPIC_CONTROL, err) && session_control(session, &record, err);
}

static int cancel(struct session *session, const struct options *options, const char *id)
{
    struct results_options walk = {0};
    struct results_tally tally;
    struct batch_state state;
    const struct batch *batch;
    struct err err;
    int code = EX_OK;

    if (!command_find(session, id, &state, &code))
        return code;
    batch = &state.record->u.batch;
    walk.batch = state.record;
    if (!str_equal(batch->batch_id, str_from(id))) {
        err_set(&err, ERR_REJECT, "no batch \"%.60s\"; to cancel %.*s, give its whole id", id,
                batch->batch_id.size > 100 ? 100 : (int)batch->batch_id.size, batch->batch_id.data);
        code = command_fail(EX_NOINPUT, &err);
    } else if (!results_read(session, &walk, &tally, &err)) {
        code = command_fail(command_code(&err), &err);
    } else if (results_done(&tally)) {
        report(options, batch, "finished", "every request has its outcome, nothing to cancel");
    } else if (send_cancel(session, batch, &err)) {
        report(options, batch, "cancelling", "cancelling");
    } else {
        code = command_fail(command_code(&err), &err);
    }
    batch_free(&state);
    return code;
}

int command_cancel(int argc, char **argv)
{
    struct options options;
    struct session session = {0};
    struct config *config;
    const char *id;
    int code;

    if (!command_configure(&config, &program, argc, argv, &options, &code))
        return code;
    id = command_argument(config, "BATCH");
    if (!id)
        code = EX_USAGE;
    else if (command_open(&session, &options.session, config, SESSION_BOTH, &code))
        code = cancel(&session, &options, id);
    session_close(&session);
    config_free(config);
    return code;
}
