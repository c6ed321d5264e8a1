/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics - gauges, counters and histograms, as Prometheus text.
 *
 * Metrics are registered at start-up and live until metrics_close(). Any thread may register,
 * update and render; an update is one or a few atomic operations without a lock, and a scrape may
 * see a histogram's sum a moment before its count.
 *
 * Names follow Prometheus: pelton_ prefix, unit last, _total for counters. labels is the text
 * between the braces, e.g. "class=\"bulk\",role=\"both\"", "" for none; two metrics of one name
 * share help and kind and differ in labels. Registering the same name and labels again returns the
 * same metric.
 */
#ifndef COMMON_METRICS_H
#define COMMON_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct metrics;
struct metric;

struct metrics *metrics_open(void);
void metrics_close(struct metrics *metrics); /* NULL is allowed */

struct metric *metrics_counter(struct metrics *metrics, const char *name, const char *labels,
                               const char *help);
struct metric *metrics_gauge(struct metrics *metrics, const char *name, const char *labels,
                             const char *help);
/* bounds: ascending upper bounds, copied; the bucket +Inf is added. At most 32. */
struct metric *metrics_histogram(struct metrics *metrics, const char *name, const char *labels,
                                 const char *help, const double *bounds, size_t bounds_count);

void metric_add(struct metric *metric,
                double amount); /* counter, gauge; amount >= 0 on a counter */
void metric_set(struct metric *metric,
                double value); /* gauge; counter, from a total kept elsewhere */
void metric_observe(struct metric *metric, double value); /* histogram */
double metric_value(const struct metric *metric);         /* counter, gauge; histogram: its count */

/* The exposition text, NUL-terminated, for free(). *size excludes the NUL. */
char *metrics_render(struct metrics *metrics, size_t *size);

#endif
