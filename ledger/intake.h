/* SPDX-License-Identifier: Apache-2.0
 *
 * intake - the usage topic, read by assignment, as batches of rows.
 *
 * Where to start is said by intake_assign(), from what PostgreSQL holds; Kafka's group
 * offsets are not used. Positions count transaction markers: after the last message of
 * a partition stands the marker of its transaction, which has an offset but is never
 * delivered. position is therefore not "last message + 1" but what the end-of-partition
 * event says, or lag would never reach 0, and a restart after retention has removed
 * everything would look for an offset that is gone.
 *
 * One thread.
 */
#ifndef LEDGER_INTAKE_H
#define LEDGER_INTAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/kafka.h"
#include "ledger/row.h"

struct intake;

struct intake_options {
    struct kafka_options kafka;
    const char *topic; /* full name; outlives the intake */
    size_t rows_max;   /* of one batch */
};

bool intake_open(struct intake **intake, const struct intake_options *options, struct err *err);
void intake_close(struct intake *intake); /* NULL is allowed */

/* Id of the Kafka cluster; RETRY while no broker answers. Valid until intake_close(). */
bool intake_cluster_id(struct intake *intake, const char **id, struct err *err);
/* Partitions that the topic has now. REJECT where there is no such topic. */
bool intake_partitions(struct intake *intake, int32_t *count, struct err *err);
/* First offset of a partition and its end as read_committed sees it. */
bool intake_offsets(struct intake *intake, int32_t partition, int64_t *first, int64_t *end,
                    struct err *err);

/* Reads partitions 0 to count - 1 from next[] on. Once in an intake's life: whoever has to go back,
 * or to take in new partitions, opens a new one, so that no message of an earlier assignment can
 * be taken for one of this. */
bool intake_assign(struct intake *intake, const int64_t *next, int32_t count, struct err *err);

/* Collects rows for wait_us, or until the batch is full. The rows have their place and bytes, no
 * record yet (row_read()), and stay valid until the next intake_fill() or intake_close(). FATAL: a
 * partition's offset is out of range. */
bool intake_fill(struct intake *intake, int64_t wait_us, struct row **rows, size_t *count,
                 struct err *err);

/* Next offset that will be looked at, markers included. */
int64_t intake_position(const struct intake *intake, int32_t partition);

#endif
