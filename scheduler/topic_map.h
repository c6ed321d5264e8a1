/* SPDX-License-Identifier: Apache-2.0
 *
 * topic_map - full names and partition counts of our topics, as the cluster has them.
 *
 * Loaded at the start of each term, so that new partitions (slots) are seen then.
 */
#ifndef SCHEDULER_TOPIC_MAP_H
#define SCHEDULER_TOPIC_MAP_H

#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "common/topics.h"

struct topic_map {
    char names[TOPIC_COUNT][TOPIC_NAME_SIZE_MAX];
    int32_t partitions[TOPIC_COUNT];
};

/* The names alone; no broker is asked. */
void topic_map_name(struct topic_map *map, const char *prefix);

/* Fills partitions. RETRY when no broker answers; REJECT with one line that names the missing
 * topic and `pelton topics create`, or the two topics whose partitions differ (assignments and
 * worker-events have one each per slot; state, control and leader have exactly one). */
bool topic_map_load(struct topic_map *map, rd_kafka_t *client, int timeout_ms, struct err *err);

/* False: not one of ours. */
bool topic_map_find(const struct topic_map *map, const char *name, enum topic *topic);

#endif
