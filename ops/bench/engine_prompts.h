/* SPDX-License-Identifier: Apache-2.0
 *
 * engine_prompts - prompts of random ids for the benchmarks of the engine: the
 * same ones everywhere, since any will do.
 */
#ifndef OPS_BENCH_ENGINE_PROMPTS_H
#define OPS_BENCH_ENGINE_PROMPTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "worker/engine.h"

/* Of the tables of prefill and decode. */
enum { PROMPT_TOKENS = 128, ANSWER_TOKENS = 128 };

/* Draws count ids below vocab_size and moves *seed on. */
void prompts_draw(uint32_t *seed, uint32_t vocab_size, int32_t *ids, uint32_t count);

/* A batch of requests with the tags 0, 1, ..., PROMPT_TOKENS and ANSWER_TOKENS each. */
bool prompts_submit(struct engine *engine, uint32_t batch, uint32_t seed, struct err *err);

#endif
