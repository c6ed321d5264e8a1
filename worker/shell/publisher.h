/* SPDX-License-Identifier: Apache-2.0
 *
 * publisher - reports become messages, in an order that no crash can make a lie.
 *
 * A streamed answer: Progress; once it is delivered, the TokenChunk that it
 * covers; once all chunks are delivered, Done. So nobody reads a token that a
 * successor would not be forced to say again, and no result is final while its
 * stream lacks the end. Other answers need Done alone; their Progress only
 * saves work after a crash.
 *
 * Nothing is published without a lease: the caller calls publisher_pump(), and
 * hands over reports of the model thread, only while it has one. What waits
 * stays here until then. Belongs to the Kafka thread.
 */
#ifndef WORKER_SHELL_PUBLISHER_H
#define WORKER_SHELL_PUBLISHER_H

#include "worker/shell/link.h"
#include "worker/shell/tasks.h"

struct publisher {
    struct link *link;
    struct tasks *tasks;
    uint32_t slot;
    struct request_id incarnation;
    struct task *dirty, *dirty_last; /* about which there is something to do; referenced */
    bool broken; /* a message about a held task is lost: this incarnation must end */

    /* Totals, for /metrics. */
    uint64_t done, failed, yielded, chunks;
};

/* Takes the report, and with an outcome one reference to its task. */
bool publisher_report(struct publisher *publisher, struct report *report, struct err *err);

/* Publish all that may be published now; a task whose last message is out leaves the table. */
bool publisher_pump(struct publisher *publisher, struct err *err);

/* Forget what waits: the tasks are not held any more. */
void publisher_reset(struct publisher *publisher);

/* For link_options.delivered. */
void publisher_delivered(struct publisher *publisher, struct task *task, bool chunk,
                         const char *error);

#endif
