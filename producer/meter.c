/* SPDX-License-Identifier: Apache-2.0 */
#include "producer/meter.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "producer/render.h"

enum { BAR_WIDTH = 24, TEXT_SIZE_MAX = 200 };

struct meter meter_start(const char *label, bool json)
{
    return (struct meter){.style = json                    ? METER_JSON
                                   : isatty(STDERR_FILENO) ? METER_BAR
                                                           : METER_LINES,
                          .label = label,
                          .started_us = clock_mono_us()};
}

void meter_format(char *text, size_t text_size, const char *label, uint64_t done, uint64_t total,
                  double per_second, const char *note)
{
    char share[40] = "", rest[40] = "";

    if (total > 0)
        snprintf(share, sizeof share, "/%llu  %3.0f%%", (unsigned long long)total,
                 100.0 * (double)done / (double)total);
    if (total > done && per_second > 0) {
        double seconds = (double)(total - done) / per_second;
        if (seconds < 360000)
            snprintf(rest, sizeof rest, "  ETA %d:%02d", (int)seconds / 60, (int)seconds % 60);
    }
    snprintf(text, text_size, "%s  %llu%s  %.1f/s%s%s%s", label, (unsigned long long)done, share,
             per_second, rest, *note ? "  " : "", note);
}

static void draw_bar(uint64_t done, uint64_t total, const char *text)
{
    char bar[BAR_WIDTH + 1];
    size_t filled = total > 0 && done <= total ? (size_t)(BAR_WIDTH * done / total) : 0;

    memset(bar, '.', BAR_WIDTH);
    memset(bar, '#', total > 0 && done >= total ? BAR_WIDTH : filled);
    bar[BAR_WIDTH] = '\0';
    fprintf(stderr, "\r[%s] %s\033[K", bar, text);
}

static void show(struct meter *meter, uint64_t done, uint64_t total, const char *note)
{
    int64_t now_us = clock_mono_us();
    double seconds = (double)(now_us - meter->started_us) / 1e6;
    double rate = seconds > 0 ? (double)(done - meter->first) / seconds : 0;
    char text[TEXT_SIZE_MAX];

    meter->shown_us = now_us;
    meter->drawn = true;
    if (meter->style == METER_JSON) {
        render_event(stdout, "progress",
                     json_pack("{s:s, s:I, s:I, s:f}", "stage", meter->label, "done",
                               (json_int_t)done, "total", (json_int_t)total, "per_second", rate));
        return;
    }
    meter_format(text, sizeof text, meter->label, done, total, rate, note);
    if (meter->style == METER_BAR)
        draw_bar(done, total, text);
    else
        fprintf(stderr, "%s\n", text);
}

void meter_show(struct meter *meter, uint64_t done, uint64_t total, const char *note)
{
    int64_t wait_us = meter->style == METER_BAR ? 100000 : 1000000;
    int64_t since_us = meter->shown_us ? meter->shown_us : meter->started_us;

    if (clock_mono_us() - since_us >= wait_us)
        show(meter, done, total, note);
}

void meter_end(struct meter *meter, uint64_t done, uint64_t total, const char *note)
{
    show(meter, done, total, note);
    if (meter->style == METER_BAR)
        fprintf(stderr, "\n");
}
