/* SPDX-License-Identifier: Apache-2.0
 *
 * command - the subcommands of `pelton`, and what their main functions share.
 *
 * Exit codes are those of sysexits.h:
 *    0  done
 *   64  usage: an option or argument, such as a job's name that is another file's
 *   65  some lines or requests ended in an error, or the file changed while it was sent
 *   66  no such file or batch; its results are gone 69  Kafka does not answer, or lacks our topics
 *   70  a fault of ours                             73  an output file cannot be written
 *   78  the file of --config: not there, or a mistake in it; a Kafka setting (-X)
 *   75  not finished: interrupted, unacknowledged or not all answers are there; try again
 */
#ifndef PRODUCER_COMMAND_H
#define PRODUCER_COMMAND_H

#include "common/config.h"
#include "producer/results.h"
#include "producer/session.h"

/* Each takes the arguments behind its own name (argv[0] is that name) and returns the exit code. */
int command_submit(int argc, char **argv);
int command_status(int argc, char **argv);
int command_tail(int argc, char **argv);
int command_collect(int argc, char **argv);
int command_cancel(int argc, char **argv);
int command_topics(int argc, char **argv);

/* config_load() and the limits of a tenant's name, with errors printed. False: return *code. */
bool command_configure(struct config **config, const struct config_program *program, int argc,
                       char **argv, void *values, int *code);
/* session_open() and, for what reads, session_connect(), with their errors printed. False: return
 * *code; session_close() is due either way. */
bool command_open(struct session *session, const struct session_options *options,
                  const struct config *config, enum session_use use, int *code);
/* The name of a tenant or batch that is to be made or looked for: not blank, UTF-8, without control
 * characters, of at most size_max bytes. REJECT says what it is not. */
bool command_check_name(const char *option, const char *name, size_t size_max, struct err *err);
/* batch_need(), with its errors printed. False: return *code, 64 where the id means several. */
bool command_find(struct session *session, const char *id, struct batch_state *state, int *code);
/* Prints "pelton: message" and returns code. */
int command_fail(int code, const struct err *err);
/* The exit code where nothing more is known than the kind. */
int command_code(const struct err *err);
/* One argument is required: NULL and a message where it is missing. */
const char *command_argument(const struct config *config, const char *what);
/* "completed", "in_progress", "gone" and so on. */
const char *command_state(bool cancelled, const struct results_tally *tally);
/* The status table, or its JSON event, to standard output. */
void command_print_tally(const struct batch *batch, bool cancelled,
                         const struct results_tally *tally, bool json);
/* For progress: "10 failed, 2 cancelled", "" where all is well. */
void command_note(const struct results_tally *tally, char *note, size_t note_size);
/* Where a finished job has requests or lines without an answer: one line on standard error with the
 * command that runs them again. path: the submitted file, NULL where only its name is known.
 * window_ms: of completion, 0: none. stream: as it was asked for, STREAM_AUTO where that is not
 * known. */
void command_suggest_retry(const struct batch *batch, const struct results_tally *tally,
                           const char *path, int64_t window_ms, enum stream_mode stream);
/* 0 where outcomes can be counted on. Else says why not: EX_NOINPUT, retention has deleted some;
 * EX_DATAERR, there are more than requests. */
int command_check_tally(const struct session *session, const struct batch *batch,
                        const struct results_tally *tally);
/* 0 or EX_DATAERR, EX_TEMPFAIL, or what command_check_tally() says. */
int command_code_of_tally(const struct session *session, const struct batch *batch,
                          const struct results_tally *tally);

#endif
