/* SPDX-License-Identifier: Apache-2.0
 *
 * reader - the data topics as one stream of messages, with known positions and known ends.
 *
 * One assign-only, read_committed client. It knows for every partition up to where it has been
 * read, control markers and compacted gaps included, so that "read to the end as it was when asked"
 * has an answer: that is what takeover and the end of a lease stand on (R2, R6). It decodes
 * nothing.
 *
 * One thread. Offsets below a partition's first one are an error that stops the program by name,
 * unless the caller says that what is gone is not missed.
 */
#ifndef SCHEDULER_READER_H
#define SCHEDULER_READER_H

#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/config.h"
#include "common/err.h"
#include "scheduler/topic_map.h"

struct reader;

struct reader_options {
    const char *brokers;
    const char *client_id;
    struct config_list settings;
    const char *group_id; /* for reader_copy_offsets(); outlives the reader */
};

bool reader_open(struct reader **reader, const struct reader_options *options, struct err *err);
void reader_close(struct reader *reader); /* NULL is allowed */

/* The names and counts that messages are matched with; loads them (topic_map_load). The answer is
 * the reader's. */
bool reader_topics(struct reader *reader, const char *prefix, int timeout_ms,
                   const struct topic_map **topics, struct err *err);

/* The same into a map of the caller's that is named already, to see whether anything has changed.
 */
bool reader_topics_now(struct reader *reader, struct topic_map *now, int timeout_ms,
                       struct err *err);

/* What to read from where. */
struct reader_from {
    enum topic topic;
    int32_t partition;
    int64_t offset; /* -1: from the beginning */
    /* Begin at the first offset when retention has deleted this one: outputs and worker events
     * that old concern nobody alive. */
    bool gone_allowed;
};
/* Replaces the whole assignment; marks and pauses are forgotten. */
bool reader_assign(struct reader *reader, const struct reader_from *from, size_t count,
                   struct err *err);

/* Notes the partition's end as the broker has it now (last stable offset). RETRY. */
bool reader_mark_end(struct reader *reader, enum topic topic, int32_t partition, int timeout_ms,
                     struct err *err);
/* Has everything before the mark been delivered? */
bool reader_end_reached(const struct reader *reader, enum topic topic, int32_t partition);

/* Who gets the messages. */
struct reader_sink {
    bool (*visit)(void *context, enum topic topic, const rd_kafka_message_t *message,
                  struct err *err);
    void *context;
};
/* Delivers what comes within timeout_ms, at most READER_BATCH messages, each valid during visit
 * only. A visit that fails ends the call. FATAL names topic, partition and offset. */
enum { READER_BATCH = 1000 };
bool reader_poll(struct reader *reader, int timeout_ms, const struct reader_sink *sink,
                 struct err *err);

bool reader_pause(struct reader *reader, enum topic topic, int32_t partition, struct err *err);
bool reader_resume(struct reader *reader, enum topic topic, int32_t partition, struct err *err);

/* Next offset to read; -1: not assigned. */
int64_t reader_position(const struct reader *reader, enum topic topic, int32_t partition);
/* End of the partition as last heard from the broker, asked when the partition is paused. */
int64_t reader_end(struct reader *reader, enum topic topic, int32_t partition);

struct reader_copy {
    enum topic topic;
    int32_t partition;
    int64_t offset;
};
/* Commits a copy of these offsets in the group, for lag tools; does not wait, and a failure is only
 * logged. Nobody reads it back. */
void reader_copy_offsets(struct reader *reader, const struct reader_copy *copies, size_t count);

/* Asks for the deletion of everything below the offset; does not wait, failures are logged. */
void reader_trim(struct reader *reader, enum topic topic, int32_t partition, int64_t offset);

#endif
