/* SPDX-License-Identifier: Apache-2.0
 *
 * pelton - the producer's command line: jobs in, answers out.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/exits.h"
#include "common/stop.h"
#include "producer/command.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"submit", command_submit, "send the lines of an OpenAI Batch file"},
    {"status", command_status, "how far a job has come; without one, which jobs there are"},
    {"tail", command_tail, "show answers while they are written"},
    {"collect", command_collect, "write the answers as an OpenAI Batch output file"},
    {"cancel", command_cancel, "end a job"},
    {"topics", command_topics, "create or compare the Kafka topics"},
};

enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

static int usage(FILE *out, int code)
{
    fputs("Usage: pelton COMMAND [options] [arguments]\n\n", out);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].help);
    fputs("\n`pelton COMMAND --help` lists the options. Kafka is looked for at 127.0.0.1:9092; "
          "--brokers or\n"
          "a file given by --config say otherwise. Exit code 73: standard output cannot be "
          "written.\n",
          out);
    return code;
}

static int run(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;

    if (!name)
        return usage(stderr, EX_USAGE);
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        return usage(stdout, EX_OK);
    if (strcmp(name, "--version") == 0) {
        puts("pelton " PELTON_VERSION);
        return EX_OK;
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i].name, name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    fprintf(stderr, "pelton: unknown command \"%s\"\n\n", name);
    return usage(stderr, EX_USAGE);
}

static bool is_closed_pipe(int fd)
{
    struct pollfd poller = {.fd = fd, .events = POLLOUT};

    return poll(&poller, 1, 0) == 1 && (poller.revents & POLLERR) != 0;
}

/* What was printed has to be somewhere, or the code says so. A closed pipe ends us as it would have
 * without stop_install(), which a broker's closed connection needs. */
static int finish(int code)
{
    const bool has_failed = ferror(stdout) != 0;
    const char *why = "could not be written";
    struct err err;

    if (fflush(stdout) != 0)
        why = strerror(errno);
    else if (!has_failed)
        return code;
    if (is_closed_pipe(STDOUT_FILENO)) {
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE);
    }
    err_set(&err, ERR_REJECT, "standard output: %s", why);
    return code == EX_CANTCREAT ? code : exits_with(EX_CANTCREAT, "pelton", &err);
}

int main(int argc, char **argv)
{
    stop_install();
    return finish(run(argc, argv));
}
