/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/meters.h"

#include <inttypes.h>
#include <stdio.h>

void meters_open(struct meters *meters)
{
    static const double bounds[] = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1,
                                    0.2,   0.5,   1,     2,    5,    10};
    struct metrics *metrics = metrics_open();
    const char *rows = "pelton_ledger_rows_total";
    const char *rows_help = "Rows booked.";

    meters->metrics = metrics;
    meters->usage = metrics_counter(metrics, rows, "table=\"usage\"", rows_help);
    meters->worker_time = metrics_counter(metrics, rows, "table=\"worker_time\"", rows_help);
    meters->broken = metrics_counter(metrics, rows, "table=\"ledger_error\"", rows_help);
    meters->duplicates = metrics_counter(metrics, "pelton_ledger_duplicates_total", "",
                                         "Rows that were in the table already.");
    meters->batches =
        metrics_counter(metrics, "pelton_ledger_batches_total", "", "SQL transactions committed.");
    meters->commit_seconds =
        metrics_histogram(metrics, "pelton_ledger_commit_seconds", "",
                          "Time of one SQL transaction, from its first statement to its commit.",
                          bounds, sizeof bounds / sizeof *bounds);
    meters->retries = metrics_counter(metrics, "pelton_ledger_retries_total", "",
                                      "Times that Kafka or PostgreSQL had to be waited for.");
    meters->default_rows =
        metrics_gauge(metrics, "pelton_ledger_default_partition_rows", "",
                      "Usage rows that fit no monthly partition; anything above 0 wants a look.");
    meters->months_ahead = metrics_gauge(metrics, "pelton_ledger_months_ahead", "",
                                         "Monthly partitions made in advance; 0 is late.");
    meters->epoch = metrics_gauge(metrics, "pelton_ledger_epoch", "",
                                  "Epoch of this ledger: the largest one may write.");
    pthread_mutex_init(&meters->lock, NULL);
    meters->ready = false;
    snprintf(meters->reason, sizeof meters->reason, "starting");
}

void meters_close(struct meters *meters)
{
    metrics_close(meters->metrics);
    pthread_mutex_destroy(&meters->lock);
}

void meters_batch(struct meters *meters, const struct store_result *result, int64_t commit_us)
{
    metric_add(meters->usage, (double)result->usage);
    metric_add(meters->worker_time, (double)result->worker_time);
    metric_add(meters->broken, (double)result->broken);
    metric_add(meters->duplicates, (double)result->duplicates);
    metric_add(meters->batches, 1);
    metric_observe(meters->commit_seconds, (double)commit_us / 1e6);
}

void meters_partition(struct meters *meters, int32_t partition, int64_t next, int64_t lag)
{
    char labels[40];

    /* Registering again finds the same metric, so partitions may come at any time. */
    snprintf(labels, sizeof labels, "partition=\"%" PRId32 "\"", partition);
    metric_set(metrics_gauge(meters->metrics, "pelton_ledger_next_offset", labels,
                             "Offset of the usage topic up to which everything is booked."),
               (double)next);
    metric_set(metrics_gauge(meters->metrics, "pelton_ledger_lag", labels,
                             "Offsets of the usage topic that are committed but not booked."),
               (double)lag);
}

static void set_ready(struct meters *meters, bool ready, const char *reason)
{
    pthread_mutex_lock(&meters->lock);
    meters->ready = ready;
    snprintf(meters->reason, sizeof meters->reason, "%s", reason);
    pthread_mutex_unlock(&meters->lock);
}

void meters_connected(struct meters *meters)
{
    set_ready(meters, true, "ready");
}

void meters_waiting(struct meters *meters, const struct err *err)
{
    set_ready(meters, false, err->message);
}

bool meters_ready(void *context, char *reason, size_t reason_size)
{
    struct meters *meters = context;

    pthread_mutex_lock(&meters->lock);
    bool ready = meters->ready;
    snprintf(reason, reason_size, "%s", meters->reason);
    pthread_mutex_unlock(&meters->lock);
    return ready;
}
