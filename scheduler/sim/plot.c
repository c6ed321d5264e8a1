/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/sim/plot.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 760, HEIGHT = 420, LEFT = 80, RIGHT = 20, TOP = 48, BOTTOM = 56, TICKS = 5 };

/* Told apart by hue and, for those who see hues alike, by dashes. */
static const char *const colours[PLOT_SERIES_MAX] = {"#1f5fa8", "#c8501e", "#2d8a4e", "#7a4fa3"};
static const char *const dashes[PLOT_SERIES_MAX] = {"none", "8 4", "3 3", "10 3 3 3"};

struct range {
    double min, max;
};

struct frame {
    FILE *file;
    const struct plot *plot;
    struct range x, y;
};

static double map_x(const struct frame *frame, double x)
{
    double from = frame->x.min, to = frame->x.max;

    if (frame->plot->log_x) {
        x = log10(x);
        from = log10(from);
        to = log10(to);
    }
    return LEFT + (x - from) / (to - from) * (WIDTH - LEFT - RIGHT);
}

static double map_y(const struct frame *frame, double y)
{
    return HEIGHT - BOTTOM -
           (y - frame->y.min) / (frame->y.max - frame->y.min) * (HEIGHT - TOP - BOTTOM);
}

/* 1, 2 or 5 times a power of ten, so that about TICKS of them span the range. */
static double tick_step(double span)
{
    double raw = span / TICKS, power = pow(10, floor(log10(raw)));
    double share = raw / power;

    return power * (share <= 1 ? 1 : share <= 2 ? 2 : share <= 5 ? 5 : 10);
}

static struct range range_of(const struct plot *plot, bool x)
{
    struct range range = {INFINITY, -INFINITY};

    for (size_t s = 0; s < plot->series_count; s++)
        for (size_t i = 0; i < plot->series[s].count; i++) {
            double value = x ? plot->series[s].x[i] : plot->series[s].y[i];
            if (!isfinite(value) || (x && plot->log_x && value <= 0))
                continue;
            range.min = fmin(range.min, value);
            range.max = fmax(range.max, value);
        }
    if (!(range.min <= range.max))
        range = (struct range){plot->log_x && x ? 0.1 : 0, 1};
    if (!x)
        range.min = fmin(range.min, 0);
    if (range.max <= range.min)
        range.max = range.min + 1;
    return range;
}

static void text(const struct frame *frame, double x, double y, const char *anchor,
                 const char *extra, const char *content)
{
    fprintf(frame->file, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" %s>%s</text>\n", x, y,
            anchor, extra, content);
}

static void grid_x(const struct frame *frame, double value)
{
    char label[32];
    double x = map_x(frame, value);

    snprintf(label, sizeof label, "%g", value);
    fprintf(frame->file, "<line class=\"grid\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>\n", x,
            TOP, x, HEIGHT - BOTTOM);
    text(frame, x, HEIGHT - BOTTOM + 18, "middle", "", label);
}

static void grid_y(const struct frame *frame, double value)
{
    char label[32];
    double y = map_y(frame, value);

    snprintf(label, sizeof label, "%g", value);
    fprintf(frame->file, "<line class=\"grid\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>\n",
            LEFT, y, WIDTH - RIGHT, y);
    text(frame, LEFT - 8, y + 4, "end", "", label);
}

static void axes(const struct frame *frame)
{
    const struct plot *plot = frame->plot;
    double step = tick_step(frame->y.max - frame->y.min);

    for (double y = ceil(frame->y.min / step) * step; y <= frame->y.max; y += step)
        grid_y(frame, y);
    if (plot->log_x) {
        for (double x = pow(10, ceil(log10(frame->x.min))); x <= frame->x.max; x *= 10)
            grid_x(frame, x);
    } else {
        step = tick_step(frame->x.max - frame->x.min);
        for (double x = ceil(frame->x.min / step) * step; x <= frame->x.max; x += step)
            grid_x(frame, x);
    }
    text(frame, LEFT, 24, "start", "class=\"title\"", plot->title);
    text(frame, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 14, "middle", "", plot->x_label);
    fprintf(frame->file,
            "<text transform=\"translate(20 %d) rotate(-90)\" text-anchor=\"middle\">%s</text>\n",
            (TOP + HEIGHT - BOTTOM) / 2, plot->y_label);
}

static void line(const struct frame *frame, size_t s)
{
    const struct plot_series *series = &frame->plot->series[s];
    double last_y = 0;
    bool first = true;

    fprintf(frame->file,
            "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" stroke-dasharray=\"%s\" "
            "points=\"",
            colours[s], dashes[s]);
    for (size_t i = 0; i < series->count; i++) {
        if (!isfinite(series->x[i]) || !isfinite(series->y[i]) ||
            (frame->plot->log_x && series->x[i] <= 0))
            continue;
        double x = map_x(frame, series->x[i]), y = map_y(frame, series->y[i]);
        if (frame->plot->stepped && !first)
            fprintf(frame->file, "%.1f,%.1f ", x, last_y);
        fprintf(frame->file, "%.1f,%.1f ", x, y);
        last_y = y;
        first = false;
    }
    fprintf(frame->file, "\"/>\n");
}

static void legend(const struct frame *frame)
{
    for (size_t s = 0; s < frame->plot->series_count; s++) {
        double x = LEFT + 150.0 * (double)s;
        fprintf(
            frame->file,
            "<line x1=\"%.1f\" y1=\"38\" x2=\"%.1f\" y2=\"38\" stroke=\"%s\" stroke-width=\"2\" "
            "stroke-dasharray=\"%s\"/>\n",
            x, x + 28, colours[s], dashes[s]);
        text(frame, x + 34, 42, "start", "", frame->plot->series[s].name);
    }
}

bool plot_write(const struct plot *plot, const char *folder, const char *file, struct err *err)
{
    char path[512];
    struct frame frame = {.plot = plot, .x = range_of(plot, true), .y = range_of(plot, false)};

    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, file) >= sizeof path)
        return err_set(err, ERR_REJECT, "plot folder %.100s...: the name is too long", folder);
    frame.file = fopen(path, "w");
    if (!frame.file)
        return err_set(err, ERR_REJECT, "plot %s: %s", path, strerror(errno));
    fprintf(frame.file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\">\n"
            "<style>text{font:12px sans-serif;fill:#222}.title{font-size:15px;font-weight:bold}"
            ".grid{stroke:#ddd}</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            WIDTH, HEIGHT);
    axes(&frame);
    for (size_t s = 0; s < plot->series_count; s++)
        line(&frame, s);
    legend(&frame);
    fprintf(frame.file, "</svg>\n");
    if (fclose(frame.file) != 0)
        return err_set(err, ERR_REJECT, "plot %s: %s", path, strerror(errno));
    return true;
}
