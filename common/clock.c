/* SPDX-License-Identifier: Apache-2.0 */
#include "common/clock.h"

#include <stdio.h>
#include <time.h>

#include "common/check.h"

int64_t clock_wall_ms(void)
{
    struct timespec now;

    CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t clock_mono_us(void)
{
    struct timespec now;

    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void clock_sleep_ms(int64_t ms)
{
    struct timespec duration = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    if (ms > 0)
        nanosleep(&duration, NULL);
}

void clock_format_ms(int64_t wall_ms, char text[CLOCK_TEXT_SIZE])
{
    int64_t ms = wall_ms % 1000;
    time_t seconds = (time_t)(wall_ms / 1000 - (ms < 0));
    struct tm tm;

    ms += ms < 0 ? 1000 : 0;
    /* A year beyond 9999 has no place in the text; the epoch is as wrong and keeps its width. */
    if (!gmtime_r(&seconds, &tm) || tm.tm_year > 9999 - 1900 || tm.tm_year < -1900) {
        seconds = 0;
        gmtime_r(&seconds, &tm);
    }
    strftime(text, CLOCK_TEXT_SIZE, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text + 19, CLOCK_TEXT_SIZE - 19, ".%03uZ", (unsigned)ms % 1000);
}
