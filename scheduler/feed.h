/* SPDX-License-Identifier: Apache-2.0
 *
 * feed - Kafka messages become events of the core.
 *
 * Decodes, tells good from bad and steps the core, with the time of a clock that does not jump.
 * Bytes that are no request become dead letters, other unreadable messages of live topics are
 * logged and skipped: one bad message never stops its neighbours. One thread.
 */
#ifndef SCHEDULER_FEED_H
#define SCHEDULER_FEED_H

#include <librdkafka/rdkafka.h>

#include "common/err.h"
#include "scheduler/scheduler.h"
#include "scheduler/steady.h"
#include "schemas/codec.h"

struct feed {
    struct scheduler *scheduler;
    struct codec *codec;
    struct steady clock;
    struct actions actions;    /* appended by every step; the owner clears and frees */
    uint64_t messages_total;   /* live ones */
    uint64_t unreadable_total; /* skipped ones; dead letters are counted by the core */
};

int64_t feed_now_ms(struct feed *feed);

/* One step of the core. */
void feed_step(struct feed *feed, const struct event *event);

/* A message of requests, worker-events or control. context is the feed; fits struct reader_sink.
 * Never fails. */
bool feed_live(void *context, enum topic topic, const rd_kafka_message_t *message, struct err *err);

#endif
