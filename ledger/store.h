/* SPDX-License-Identifier: Apache-2.0
 *
 * store - rows and offsets in PostgreSQL, in one transaction.
 *
 * A batch goes out as one pipeline: first the offsets move (and lock), then the rows
 * follow, each ON CONFLICT DO NOTHING, and everything commits at the pipeline's end.
 * When the database refuses a value, the batch is written again row by row, each
 * behind a savepoint, and the refused ones go to ledger_error.
 *
 * A connection is not repaired: after a RETRY the caller closes the store, drops the
 * batch, opens a new store, claims again, and reads on from the offsets that claiming
 * returns. Whether a commit that got no answer took place is then known.
 *
 * Errors: RETRY for whatever another connection or a later time may cure (also a wrong
 * password, which somebody is about to mend); ABORT from store_write() where the records
 * themselves may be the cause (the server gave an answer of no known kind, or none): who
 * meets it again and again writes them one by one; REJECT from store_open() only: the settings
 * are wrong or the migrations are not deployed; FATAL where another ledger has taken over
 * or the offsets belong to another Kafka cluster. One thread; calls block, for a minute at most,
 * and for two seconds once a stop is requested.
 */
#ifndef LEDGER_STORE_H
#define LEDGER_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "ledger/row.h"

struct store;

struct store_options {
    const char *database; /* libpq connection string; what it leaves out comes from PG* variables */
    const char *role;     /* SET ROLE; "" stays who it is */
    const char *topic;    /* name in kafka_offset and ledger_error; outlives the store */
};

bool store_open(struct store **store, const struct store_options *options, struct err *err);
void store_close(struct store *store); /* NULL is allowed */

/* Asks for the right to book the topic, without waiting: *mine says whether this connection has it
 * now. It lasts as long as the connection. A server that no longer hears of its holder gives it
 * free after about 30 s. */
bool store_lock(struct store *store, bool *mine, struct err *err);

/* A number larger than that of every ledger before. Taken under the
 * lock only: it fences whoever held the lock before and has not noticed that it is gone. */
bool store_epoch(struct store *store, int64_t *epoch, struct err *err);

struct store_claim {
    int32_t partition;
    const char *cluster_id; /* of Kafka */
    int64_t first_offset;   /* where to start when nobody has read the partition yet */
    int64_t epoch;
};
/* Makes the partition this ledger's. *next is where to read on. */
bool store_claim(struct store *store, const struct store_claim *claim, int64_t *next,
                 struct err *err);

/* Makes partitions of months; *default_rows and *months_ahead as in the view partition_health. */
bool store_premake(struct store *store, int64_t months, int64_t *default_rows,
                   int64_t *months_ahead, struct err *err);

/* A partition's offset moves from expected to next. */
struct store_advance {
    int32_t partition;
    int64_t expected;
    int64_t next;
};

struct store_batch {
    struct row *rows; /* may turn broken when the database refuses them */
    size_t rows_count;
    const struct store_advance *advances; /* one for each partition that moves */
    size_t advances_count;
    int64_t epoch;
};

struct store_result {
    uint64_t usage; /* new rows */
    uint64_t worker_time;
    uint64_t broken;
    uint64_t duplicates; /* were there already */
};

bool store_write(struct store *store, const struct store_batch *batch, struct store_result *result,
                 struct err *err);

#endif
