/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/topic_map.h"

#include <string.h>

#include "common/kafka.h"

void topic_map_name(struct topic_map *map, const char *prefix)
{
    for (int topic = 0; topic < TOPIC_COUNT; topic++) {
        topic_name(map->names[topic], prefix, (enum topic)topic);
        map->partitions[topic] = 0;
    }
}

bool topic_map_find(const struct topic_map *map, const char *name, enum topic *topic)
{
    for (int i = 0; i < TOPIC_COUNT; i++) {
        if (strcmp(map->names[i], name) == 0) {
            *topic = (enum topic)i;
            return true;
        }
    }
    return false;
}

static bool topic_map_check(const struct topic_map *map, struct err *err)
{
    static const enum topic single[] = {TOPIC_STATE, TOPIC_CONTROL, TOPIC_LEADER};

    for (int i = 0; i < TOPIC_COUNT; i++) {
        if (map->partitions[i] == 0)
            return err_set(err, ERR_REJECT,
                           "topic %s does not exist: create it with `pelton topics create`",
                           map->names[i]);
    }
    for (size_t i = 0; i < sizeof single / sizeof single[0]; i++) {
        if (map->partitions[single[i]] != 1)
            return err_set(err, ERR_REJECT, "topic %s has %d partitions, it must have 1",
                           map->names[single[i]], (int)map->partitions[single[i]]);
    }
    if (map->partitions[TOPIC_ASSIGNMENTS] != map->partitions[TOPIC_WORKER_EVENTS])
        return err_set(err, ERR_REJECT,
                       "%s has %d partitions and %s has %d: both need one for each worker slot",
                       map->names[TOPIC_ASSIGNMENTS], (int)map->partitions[TOPIC_ASSIGNMENTS],
                       map->names[TOPIC_WORKER_EVENTS], (int)map->partitions[TOPIC_WORKER_EVENTS]);
    return true;
}

bool topic_map_load(struct topic_map *map, rd_kafka_t *client, int timeout_ms, struct err *err)
{
    const struct rd_kafka_metadata *metadata;
    enum topic topic;

    /* All topics at once: asking for a missing one by name would create it on a cluster that has
     * auto.create.topics.enable. */
    if (!kafka_await_broker(client, timeout_ms, err) ||
        !kafka_code(rd_kafka_metadata(client, 1, NULL, &metadata, timeout_ms),
                    "reading the list of topics", err))
        return false;
    for (int i = 0; i < TOPIC_COUNT; i++)
        map->partitions[i] = 0;
    for (int i = 0; i < metadata->topic_cnt; i++) {
        if (topic_map_find(map, metadata->topics[i].topic, &topic))
            map->partitions[topic] = metadata->topics[i].partition_cnt;
    }
    rd_kafka_metadata_destroy(metadata);
    return topic_map_check(map, err);
}
