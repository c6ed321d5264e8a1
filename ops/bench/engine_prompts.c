/* SPDX-License-Identifier: Apache-2.0 */
#include "ops/bench/engine_prompts.h"

void prompts_draw(uint32_t *seed, uint32_t vocab_size, int32_t *ids, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        *seed = *seed * 1664525 + 1013904223;
        ids[i] = (int32_t)(*seed / 65536 % vocab_size);
    }
}

bool prompts_submit(struct engine *engine, uint32_t batch, uint32_t seed, struct err *err)
{
    int32_t prompt[PROMPT_TOKENS];
    struct engine_info info;

    engine_info(engine, &info);
    for (uint32_t i = 0; i < batch; i++) {
        const struct engine_request request = {.tag = i,
                                               .prompt = prompt,
                                               .prompt_count = PROMPT_TOKENS,
                                               .max_tokens = ANSWER_TOKENS,
                                               .ignore_eos = true};

        prompts_draw(&seed, info.vocab_size, prompt, PROMPT_TOKENS);
        if (!engine_submit(engine, &request, err))
            return false;
    }
    return true;
}
