/* SPDX-License-Identifier: Apache-2.0 */
#include "producer/submit_options.h"

#include <stddef.h>

static const struct config_key keys[] = {
    {.name = "batch",
     .letter = 'b',
     .type = CONFIG_STRING,
     .offset = offsetof(struct submit_options, batch),
     .value_name = "ID",
     .help = "Name of the job; the file's SHA-256 where it is not given. Needed for standard input "
             "and pipes. Of a retry: BATCH.retry, BATCH.retry2 and so on where it is not given."},
    {.name = "retry",
     .type = CONFIG_STRING,
     .offset = offsetof(struct submit_options, retry),
     .value_name = "BATCH",
     .help = "Send only what this finished job of the tenant (its whole id) has no answer for."},
    {.name = "class",
     .letter = 'c',
     .type = CONFIG_CHOICE,
     .offset = offsetof(struct submit_options, class),
     .choices = "interactive|bulk",
     .default_value = "bulk",
     .help = "Service class; interactive requests go first."},
    {.name = "completion_window",
     .type = CONFIG_DURATION,
     .offset = offsetof(struct submit_options, window_us),
     .min = 1e6,
     .max = 3650 * 86400e6,
     .word = "0",
     .help = "Requests that are not answered by then expire, such as 24h; 0, the default: never."},
    {.name = "stream",
     .type = CONFIG_BOOL,
     .offset = offsetof(struct submit_options, stream),
     .help =
         "Publish tokens as they come, for `pelton tail`; interactive requests do without asking, "
         "--no-stream keeps them from it."},
    {.name = "wait",
     .letter = 'w',
     .type = CONFIG_BOOL,
     .offset = offsetof(struct submit_options, wait),
     .help = "Wait until every request has its outcome."},
    {.name = "errors",
     .letter = 'e',
     .type = CONFIG_STRING,
     .offset = offsetof(struct submit_options, errors),
     .value_name = "FILE",
     .help =
         "Write lines that cannot be requests to this file, in the form of a Batch error file."},
    SESSION_TENANT_KEY(struct submit_options, session, TENANT_DEFAULT, "Who pays."),
    SESSION_KEYS(struct submit_options, session),
};

const struct config_program submit_program = {
    .name = "pelton submit",
    .version = PELTON_VERSION,
    .synopsis = "[options] FILE.jsonl|-",
    .summary = "Sends the lines of an OpenAI Batch file (custom_id, method, url, body) to Kafka.\n"
               "A line that cannot be a request is reported with its number and left out; blank\n"
               "lines are passed over. Sending the same file again does no harm: requests are\n"
               "known by tenant, batch and custom_id, for as long as the scheduler remembers\n"
               "finished ones (its dedupe_window, 7 days); after that they run and cost anew.",
    .epilogue =
        "A job is one file's, known by its SHA-256: another file under its name is refused. Of\n"
        "what can be read only once (standard input, a pipe) the first line is compared: the\n"
        "same stream again goes on with what was interrupted, one that begins differently is\n"
        "refused, and one that begins alike is noticed where the number of requests differs.\n"
        "\n"
        "--retry BATCH: the file, corrected or not, is compared by custom_id with the outcomes\n"
        "of BATCH. Lines that failed, expired or were cancelled are sent, and so are lines that\n"
        "BATCH never had, such as those rejected then. Left out is what was answered by BATCH or\n"
        "by a job of which BATCH is a retry itself, whatever its body is now. It becomes a job\n"
        "of its own; sending the same retry again does no harm.\n"
        "    pelton submit file.jsonl --batch night --wait     # some requests fail\n"
        "    pelton submit file.jsonl --retry night --wait     # is named night.retry\n"
        "    pelton submit file.jsonl --retry night.retry      # and this one night.retry2\n"
        "\n"
        "Exit code: 0 all lines sent (with --wait: and answered) or nothing to retry, 64 nothing\n"
        "sent: a mistake in the arguments, or the name is another file's, 65 some lines or\n"
        "requests ended in an error, or the file changed while it was sent, 66 no such file or\n"
        "BATCH, or its results are gone, 69 no answer from Kafka, 73 the file of --errors\n"
        "cannot be written, 75 unfinished: submit again, or with --retry once BATCH has all "
        "outcomes.",
    .keys = keys,
    .keys_count = sizeof keys / sizeof *keys,
    .arguments_max = 1,
};
