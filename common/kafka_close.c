/* SPDX-License-Identifier: Apache-2.0
 *
 * librdkafka 2.0.2 joins a broker's thread for ever when a topic that a consumer read has been
 * deleted, so a consumer is destroyed on a thread of its own that can be left behind.
 */
#include "common/kafka.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"

/* Destroying takes two seconds at most without a broker, five with a silent one. */
enum { CLOSE_WAIT_MS = 3000, CLOSE_POLL_MS = 10, DESTROY_SECONDS_MAX = 10 };

struct destruction {
    rd_kafka_t *client;
    int flags;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool done;
    bool left; /* nobody waits any more: the thread frees this */
};

static void destruction_free(struct destruction *destruction)
{
    pthread_cond_destroy(&destruction->changed);
    pthread_mutex_destroy(&destruction->mutex);
    free(destruction);
}

static void *destroy_thread(void *context)
{
    struct destruction *destruction = context;

    rd_kafka_destroy_flags(destruction->client, destruction->flags);
    pthread_mutex_lock(&destruction->mutex);
    destruction->done = true;
    bool left = destruction->left;
    pthread_cond_signal(&destruction->changed);
    pthread_mutex_unlock(&destruction->mutex);
    if (left)
        destruction_free(destruction);
    return NULL;
}

static void consumer_destroy(rd_kafka_t *client, int flags)
{
    struct destruction *destruction = calloc(1, sizeof *destruction);
    pthread_condattr_t attributes;
    struct timespec until;
    pthread_t thread;
    int waited = 0;

    CHECK(destruction);
    destruction->client = client;
    destruction->flags = flags;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    CHECK(pthread_mutex_init(&destruction->mutex, NULL) == 0);
    CHECK(pthread_cond_init(&destruction->changed, &attributes) == 0);
    pthread_condattr_destroy(&attributes);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += DESTROY_SECONDS_MAX;
    CHECK(pthread_create(&thread, NULL, destroy_thread, destruction) == 0);
    pthread_mutex_lock(&destruction->mutex);
    while (!destruction->done && waited == 0)
        waited = pthread_cond_timedwait(&destruction->changed, &destruction->mutex, &until);
    destruction->left = !destruction->done;
    bool left = destruction->left;
    pthread_mutex_unlock(&destruction->mutex);
    if (left) {
        pthread_detach(thread);
        LOG_WARN("client_left", "seconds=%d reason=%s", DESTROY_SECONDS_MAX,
                 "a Kafka client does not end; its threads are left behind");
        return;
    }
    pthread_join(thread, NULL);
    destruction_free(destruction);
}

/* rd_kafka_consumer_close() with a limit: it waits for the answer to a commit, and asks again for
 * ever while the broker is silent. A group that is not left so learns it from the session's end. */
static void consumer_close(rd_kafka_t *client)
{
    int64_t until_us = clock_mono_us() + CLOSE_WAIT_MS * (int64_t)1000;
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_event_t *event;
    struct err err;

    bool closing = kafka_error(rd_kafka_consumer_close_queue(client, queue), "closing", &err);
    if (!closing)
        log_err(LOG_LEVEL_WARN, "close_failed", &err);
    while (closing && !rd_kafka_consumer_closed(client) && clock_mono_us() < until_us) {
        event = rd_kafka_queue_poll(queue, CLOSE_POLL_MS);
        if (event && rd_kafka_event_type(event) == RD_KAFKA_EVENT_REBALANCE)
            kafka_error(
                rd_kafka_incremental_unassign(client, rd_kafka_event_topic_partition_list(event)),
                "leaving", &err);
        rd_kafka_event_destroy(event);
    }
    rd_kafka_queue_destroy(queue);
    /* Without the flag this would close, and wait, again. */
    consumer_destroy(client,
                     rd_kafka_consumer_closed(client) ? 0 : RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
}

void kafka_close(rd_kafka_t *client, int flush_ms)
{
    if (!client)
        return;
    if (rd_kafka_type(client) == RD_KAFKA_PRODUCER) {
        rd_kafka_flush(client, flush_ms);
        rd_kafka_purge(client, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
        rd_kafka_poll(client, 0); /* the purged messages' delivery reports */
        rd_kafka_destroy(client);
    } else {
        consumer_close(client);
    }
}
