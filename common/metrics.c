/* SPDX-License-Identifier: Apache-2.0
 *
 * Values are the bits of doubles in 64-bit atomics. Relaxed order everywhere: no other memory
 * hangs on a metric's value.
 */
#include "common/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "common/check.h"

enum kind { COUNTER, GAUGE, HISTOGRAM };
enum { BOUNDS_MAX = 32 };

struct metric {
    struct metric *next; /* in order of registration */
    enum kind kind;
    char *name;
    char *labels;
    char *help;
    _Atomic uint64_t value; /* histogram: the sum */
    size_t bounds_count;
    double bounds[BOUNDS_MAX];
    _Atomic uint64_t buckets[BOUNDS_MAX + 1]; /* counts, not cumulated */
};

struct metrics {
    pthread_mutex_t mutex; /* guards the list; metrics themselves are never removed */
    struct metric *first;
    struct metric **end;
};

static uint64_t to_bits(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double to_double(uint64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static char *copy_text(const char *text)
{
    char *copy = strdup(text);

    CHECK(copy);
    return copy;
}

struct metrics *metrics_open(void)
{
    struct metrics *metrics = calloc(1, sizeof *metrics);

    CHECK(metrics);
    CHECK(pthread_mutex_init(&metrics->mutex, NULL) == 0);
    metrics->end = &metrics->first;
    return metrics;
}

void metrics_close(struct metrics *metrics)
{
    if (!metrics)
        return;
    for (struct metric *metric = metrics->first, *next; metric; metric = next) {
        next = metric->next;
        free(metric->name);
        free(metric->labels);
        free(metric->help);
        free(metric);
    }
    pthread_mutex_destroy(&metrics->mutex);
    free(metrics);
}

static struct metric *find(const struct metrics *metrics, const char *name, const char *labels)
{
    for (struct metric *metric = metrics->first; metric; metric = metric->next)
        if (strcmp(metric->name, name) == 0 && strcmp(metric->labels, labels) == 0)
            return metric;
    return NULL;
}

static struct metric *enter(struct metrics *metrics, const struct metric *wanted)
{
    struct metric *metric;

    pthread_mutex_lock(&metrics->mutex);
    metric = find(metrics, wanted->name, wanted->labels);
    if (!metric) {
        metric = calloc(1, sizeof *metric);
        CHECK(metric);
        metric->kind = wanted->kind;
        metric->name = copy_text(wanted->name);
        metric->labels = copy_text(wanted->labels);
        metric->help = copy_text(wanted->help);
        metric->bounds_count = wanted->bounds_count;
        memcpy(metric->bounds, wanted->bounds, sizeof metric->bounds);
        *metrics->end = metric;
        metrics->end = &metric->next;
    }
    pthread_mutex_unlock(&metrics->mutex);
    CHECK(metric->kind == wanted->kind);
    return metric;
}

static struct metric *enter_plain(struct metrics *metrics, enum kind kind, const char *name,
                                  const char *labels, const char *help)
{
    /* enter() copies the texts, so that the cast away of const is never written through. */
    const struct metric wanted = {
        .kind = kind, .name = (char *)name, .labels = (char *)labels, .help = (char *)help};

    return enter(metrics, &wanted);
}

struct metric *metrics_counter(struct metrics *metrics, const char *name, const char *labels,
                               const char *help)
{
    return enter_plain(metrics, COUNTER, name, labels, help);
}

struct metric *metrics_gauge(struct metrics *metrics, const char *name, const char *labels,
                             const char *help)
{
    return enter_plain(metrics, GAUGE, name, labels, help);
}

struct metric *metrics_histogram(struct metrics *metrics, const char *name, const char *labels,
                                 const char *help, const double *bounds, size_t bounds_count)
{
    struct metric wanted = {.kind = HISTOGRAM,
                            .name = (char *)name,
                            .labels = (char *)labels,
                            .help = (char *)help,
                            .bounds_count = bounds_count};

    CHECK(bounds_count <= BOUNDS_MAX);
    for (size_t i = 0; i < bounds_count; i++) {
        CHECK(i == 0 || bounds[i - 1] < bounds[i]);
        wanted.bounds[i] = bounds[i];
    }
    return enter(metrics, &wanted);
}

static void add(_Atomic uint64_t *bits, double amount)
{
    uint64_t old = atomic_load_explicit(bits, memory_order_relaxed);

    while (!atomic_compare_exchange_weak_explicit(bits, &old, to_bits(to_double(old) + amount),
                                                  memory_order_relaxed, memory_order_relaxed))
        continue;
}

void metric_add(struct metric *metric, double amount)
{
    CHECK(metric->kind != HISTOGRAM);
    CHECK(metric->kind == GAUGE || amount >= 0);
    add(&metric->value, amount);
}

void metric_set(struct metric *metric, double value)
{
    CHECK(metric->kind != HISTOGRAM);
    atomic_store_explicit(&metric->value, to_bits(value), memory_order_relaxed);
}

void metric_observe(struct metric *metric, double value)
{
    size_t bucket = 0;

    CHECK(metric->kind == HISTOGRAM);
    while (bucket < metric->bounds_count && !(value <= metric->bounds[bucket]))
        bucket++;
    atomic_fetch_add_explicit(&metric->buckets[bucket], 1, memory_order_relaxed);
    add(&metric->value, value);
}

static uint64_t histogram_count(const struct metric *metric)
{
    uint64_t count = 0;

    for (size_t i = 0; i <= metric->bounds_count; i++)
        count += atomic_load_explicit(&metric->buckets[i], memory_order_relaxed);
    return count;
}

double metric_value(const struct metric *metric)
{
    if (metric->kind == HISTOGRAM)
        return (double)histogram_count(metric);
    return to_double(atomic_load_explicit(&metric->value, memory_order_relaxed));
}

/* ---- text ---- */

struct text {
    char *data;
    size_t size;
    size_t capacity;
};

static void put(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(struct text *text, const char *format, ...)
{
    va_list args;
    int size;

    for (;;) {
        size_t room = text->capacity - text->size;
        va_start(args, format);
        size = vsnprintf(text->data + text->size, room, format, args);
        va_end(args);
        CHECK(size >= 0);
        if ((size_t)size < room)
            break;
        text->capacity = 2 * text->capacity + (size_t)size;
        text->data = realloc(text->data, text->capacity);
        CHECK(text->data);
    }
    text->size += (size_t)size;
}

static void put_number(struct text *text, double value)
{
    if (isfinite(value))
        put(text, "%.17g\n", value);
    else
        put(text, "%s\n", isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf");
}

static void put_metric(struct text *text, const struct metric *metric)
{
    const char *comma = *metric->labels ? "," : "";
    uint64_t count = 0;

    if (metric->kind != HISTOGRAM) {
        put(text, *metric->labels ? "%s{%s} " : "%s%s ", metric->name, metric->labels);
        put_number(text, metric_value(metric));
        return;
    }
    for (size_t i = 0; i < metric->bounds_count; i++) {
        count += atomic_load_explicit(&metric->buckets[i], memory_order_relaxed);
        put(text, "%s_bucket{%s%sle=\"%g\"} %" PRIu64 "\n", metric->name, metric->labels, comma,
            metric->bounds[i], count);
    }
    count += atomic_load_explicit(&metric->buckets[metric->bounds_count], memory_order_relaxed);
    put(text, "%s_bucket{%s%sle=\"+Inf\"} %" PRIu64 "\n", metric->name, metric->labels, comma,
        count);
    put(text, *metric->labels ? "%s_sum{%s} " : "%s_sum%s ", metric->name, metric->labels);
    put_number(text, to_double(atomic_load_explicit(&metric->value, memory_order_relaxed)));
    put(text, *metric->labels ? "%s_count{%s} " : "%s_count%s ", metric->name, metric->labels);
    put(text, "%" PRIu64 "\n", count);
}

/* Is an earlier metric of the list called the same? */
static bool is_named_before(const struct metrics *metrics, const struct metric *metric)
{
    for (const struct metric *m = metrics->first; m != metric; m = m->next)
        if (strcmp(m->name, metric->name) == 0)
            return true;
    return false;
}

char *metrics_render(struct metrics *metrics, size_t *size)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    struct text text = {.data = malloc(4096), .capacity = 4096};

    CHECK(text.data);
    text.data[0] = '\0';
    pthread_mutex_lock(&metrics->mutex);
    /* All of one name stand together, as the format demands, at the place of the first. */
    for (const struct metric *metric = metrics->first; metric; metric = metric->next) {
        if (is_named_before(metrics, metric))
            continue;
        put(&text, "# HELP %s %s\n# TYPE %s %s\n", metric->name, metric->help, metric->name,
            kinds[metric->kind]);
        for (const struct metric *m = metric; m; m = m->next)
            if (strcmp(m->name, metric->name) == 0)
                put_metric(&text, m);
    }
    pthread_mutex_unlock(&metrics->mutex);
    *size = text.size;
    return text.data;
}
