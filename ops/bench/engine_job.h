/* SPDX-License-Identifier: Apache-2.0
 *
 * engine_job - the same job for the engine alone and for the whole path: a
 * number of random prompts, each with an answer of fixed length.
 */
#ifndef OPS_BENCH_ENGINE_JOB_H
#define OPS_BENCH_ENGINE_JOB_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "common/err.h"
#include "worker/engine.h"

enum { JOB_PROMPT_TOKENS = 32, JOB_ANSWER_TOKENS = 64 };

/* Writes the job as lines of an OpenAI Batch file; prompts are arrays of ids. */
bool job_write(const char *path, uint32_t requests, uint32_t vocab_size, const char *model,
               struct err *err);

/* Runs it, batch requests at a time; seconds from the first submission to the last token. */
bool job_run(struct engine *engine, uint32_t requests, uint32_t batch, clockid_t clock,
             double *seconds, struct err *err);

#endif
