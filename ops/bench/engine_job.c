/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/bench/engine_job.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ops/bench/engine_prompts.h"
#include "ops/bench/kernels_peak.h"

/* Any ids will do, the same ones everywhere. */
static void make_prompt(uint32_t number, uint32_t vocab_size, int32_t prompt[JOB_PROMPT_TOKENS])
{
    uint32_t seed = number + 1;

    prompts_draw(&seed, vocab_size, prompt, JOB_PROMPT_TOKENS);
}

bool job_write(const char *path, uint32_t requests, uint32_t vocab_size, const char *model,
               struct err *err)
{
    FILE *file = fopen(path, "w");
    int32_t prompt[JOB_PROMPT_TOKENS];

    if (!file)
        return err_set(err, ERR_FATAL, "%s: %s", path, strerror(errno));
    for (uint32_t r = 0; r < requests; r++) {
        make_prompt(r, vocab_size, prompt);
        fprintf(file,
                "{\"custom_id\":\"r%u\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":"
                "{\"model\":\"%s\",\"temperature\":0,\"max_tokens\":%d,\"ignore_eos\":true,"
                "\"prompt\":[",
                r, model, JOB_ANSWER_TOKENS);
        for (uint32_t i = 0; i < JOB_PROMPT_TOKENS; i++)
            fprintf(file, "%s%d", i ? "," : "", (int)prompt[i]);
        fputs("]}}\n", file);
    }
    if (fclose(file) != 0)
        return err_set(err, ERR_FATAL, "%s: %s", path, strerror(errno));
    return true;
}

static bool submit(struct engine *engine, uint32_t number, struct err *err)
{
    int32_t prompt[JOB_PROMPT_TOKENS];
    struct engine_request request = {.tag = number,
                                     .prompt = prompt,
                                     .prompt_count = JOB_PROMPT_TOKENS,
                                     .max_tokens = JOB_ANSWER_TOKENS,
                                     .ignore_eos = true};
    struct engine_info info;

    engine_info(engine, &info);
    make_prompt(number, info.vocab_size, prompt);
    return engine_submit(engine, &request, err);
}

bool job_run(struct engine *engine, uint32_t requests, uint32_t batch, clockid_t clock,
             double *seconds, struct err *err)
{
    struct engine_token tokens[64];
    struct engine_usage usage;
    const double start = peak_now(clock);
    uint32_t submitted = 0;
    size_t count;

    while (submitted < requests && submitted < batch)
        if (!submit(engine, submitted++, err))
            return false;
    while (engine_has_work(engine)) {
        if (!engine_step(engine, tokens, &count, err))
            return false;
        for (size_t i = 0; i < count; i++) {
            if (tokens[i].finish == ENGINE_RUNNING)
                continue;
            engine_remove(engine, tokens[i].tag, &usage);
            if (submitted < requests && !submit(engine, submitted++, err))
                return false;
        }
    }
    *seconds = peak_now(clock) - start;
    return true;
}
