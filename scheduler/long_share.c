/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/long_share.h"

#include <math.h>

void long_share_note(struct long_share *share, double needed, int64_t now_ms)
{
    const double halves = (double)(now_ms - share->noted_ms) / LONG_SHARE_HALF_MS;

    share->needed = fmax(needed, share->needed * exp2(-halves));
    share->noted_ms = now_ms;
}

uint32_t long_share_room(const struct long_share *share, uint32_t batch, uint32_t percent)
{
    const uint32_t own = (uint32_t)((uint64_t)batch * percent / 100);
    const double needed = floor(share->needed + 0.5);
    const uint32_t left = needed < batch ? batch - (uint32_t)needed : 0;
    const uint32_t room = left > own ? left : own;

    return room > 0 ? room : 1;
}

static double read_lately(const struct long_pace *pace, int64_t now_ms)
{
    return pace->work * exp(-(double)(now_ms - pace->noted_ms) / 1e3);
}

void long_pace_note(struct long_pace *pace, uint64_t work, int64_t now_ms)
{
    pace->work = read_lately(pace, now_ms) + (double)work;
    pace->noted_ms = now_ms;
}

bool long_pace_allows(const struct long_pace *pace, const struct long_prompts *waiting,
                      uint64_t work, int64_t step_us, int64_t now_ms)
{
    const double seconds = fmax(1, 3 * (double)step_us / 1e6);

    return waiting->count < LONG_PROMPTS_MIN ||
           (double)(waiting->work + work) <= seconds * read_lately(pace, now_ms);
}
