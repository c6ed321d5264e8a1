/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <sysexits.h>

#include "common/clock.h"
#include "producer/command.h"
#include "producer/render.h"

struct options {
    struct session_options session;
};

static const struct config_key keys[] = {SESSION_KEYS(struct options, session)};

static const struct config_program program = {
    .name = "pelton cancel",
    .version = PELTON_VERSION,
    .synopsis = "[options] BATCH",
    .summary = "Asks for the end of a job: what is not answered yet gets the outcome `cancelled`.\n"
               "Answers that are there already stay.",
    .epilogue = "Exit code: 0, 66 no such batch, 69 no answer from Kafka.",
    .keys = keys,
    .keys_count = sizeof keys / sizeof *keys,
    .arguments_max = 1,
};

static int cancel(struct session *session, const struct options *options, const char *id)
{
    struct record record = {.type = RECORD_CANCEL_BATCH};
    char key[STATE_KEY_SIZE_MAX];
    struct buffer buffer = {0};
    struct batch_state state;
    struct err err;
    bool ok;

    if (!batch_need(session, id, &state, &err))
        return command_fail(err.kind == ERR_REJECT ? EX_NOINPUT : command_code(&err), &err);
    record.u.cancel_batch = (struct cancel_batch){.batch_id = state.record->u.batch.batch_id,
                                                  .tenant = str_from(options->session.tenant),
                                                  .sent_ms = clock_wall_ms()};
    ok = session_prepare(session, TOPIC_CONTROL, &err) &&
         session_produce(session, TOPIC_CONTROL, (struct str){key, state_key(&record, key)},
                         &record, &buffer, &err) &&
         session_flush(session, &err);
    if (ok && options->session.json)
        render_event(stdout, "cancelling",
                     json_pack("{s:s%}", "batch", record.u.cancel_batch.batch_id.data,
                               record.u.cancel_batch.batch_id.size));
    else if (ok)
        printf("batch %.*s: cancelling\n", (int)record.u.cancel_batch.batch_id.size,
               record.u.cancel_batch.batch_id.data);
    buffer_free(&buffer);
    batch_free(&state);
    return ok ? EX_OK : command_fail(command_code(&err), &err);
}

int command_cancel(int argc, char **argv)
{
    struct options options;
    struct session session;
    struct config *config;
    const char *id;
    struct err err;
    int code;

    if (!command_configure(&config, &program, argc, argv, &options, &code))
        return code;
    id = command_argument(config, "BATCH");
    if (!id) {
        config_free(config);
        return EX_USAGE;
    }
    if (session_open(&session, &options.session, config_kafka_settings(config), &err) &&
        session_open_producer(&session, &options.session, config_kafka_settings(config), &err))
        code = cancel(&session, &options, id);
    else
        code = command_fail(EX_UNAVAILABLE, &err);
    session_close(&session);
    config_free(config);
    return code;
}
