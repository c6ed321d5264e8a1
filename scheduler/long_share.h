/* SPDX-License-Identifier: Apache-2.0
 *
 * long_share - how many places of a worker's batch long requests may have, and how many of their
 * prompts may wait there.
 *
 * A long request holds its place for minutes. So that a short one need not wait for the end of one,
 * places are kept for short ones: as many as these needed lately, and no more. Where they come
 * steadily, the next one finds a place; where none come, long ones have the whole batch. What was
 * needed is the most at once, forgotten by half in 30 s: about as long as a short request runs, so
 * that a lull between two of a steady stream costs them nothing, and that a burst keeps places
 * empty for less time than a long request takes.
 *
 * Beside what short ones need, long ones have their share of the batch, whatever comes: neither
 * kind can stop the other.
 *
 * A worker reads prompts one after another, so that a short request with a place of its own still
 * waits for the long prompts that were sent before it. A second of reading may wait there, or three
 * steps where these are slow: enough to keep a worker reading from tick to tick. The rest waits in
 * the scheduler, where a short one passes it. Plain values; pure.
 */
#ifndef SCHEDULER_LONG_SHARE_H
#define SCHEDULER_LONG_SHARE_H

#include <stdbool.h>
#include <stdint.h>

enum { LONG_SHARE_HALF_MS = 30000, LONG_PROMPTS_MIN = 2 };

/* Zeroed: none were needed. */
struct long_share {
    double needed; /* places, at noted_ms */
    int64_t noted_ms;
};

/* Short requests take or wait for so many places of this worker now. */
void long_share_note(struct long_share *share, double needed, int64_t now_ms);

/* Of the batch, for long requests; percent of it at least, and at least one. */
uint32_t long_share_room(const struct long_share *share, uint32_t batch, uint32_t percent);

/* Prompts of long requests that have not begun to answer; work as balance_prefill_work() has it. */
struct long_prompts {
    uint32_t count;
    uint64_t work;
};

/* What a worker reads. Zeroed: nothing yet. */
struct long_pace {
    double work; /* of all prompts in the last second, older ones faded, at noted_ms */
    int64_t noted_ms;
};

void long_pace_note(struct long_pace *pace, uint64_t work, int64_t now_ms);

/* May a prompt of so much work wait behind these? step_us: the worker's steps. LONG_PROMPTS_MIN may
 * always: one is read and the next is there. */
bool long_pace_allows(const struct long_pace *pace, const struct long_prompts *waiting,
                      uint64_t work, int64_t step_us, int64_t now_ms);

#endif
