/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/ledger.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sysexits.h>

#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/stop.h"
#include "common/topics.h"
#include "ledger/intake.h"
#include "ledger/store.h"
#include "ledger/suspect.h"
#include "schemas/codec.h"

enum {
    BACKOFF_MS_MIN = 100,
    BACKOFF_MS_MAX = 10000,
    ONCE_US_MAX = 30000000,   /* without Kafka or PostgreSQL, with --once */
    MISSING_US_MAX = 3000000, /* without the topic */
    LOCK_MS_MIN = 100,
    LOCK_MS_MAX = 1000,
    /* The session of a ledger that has just ended lives on for a moment: no reason to speak. */
    LOCK_SILENT_US = 2000000,
};

struct partition {
    int64_t next; /* committed in PostgreSQL */
    int64_t end;  /* of the topic, as last asked; for the lag */
    int64_t goal; /* with --once: booked up to here is done */
};

struct ledger {
    const struct settings *settings;
    struct config_list kafka_settings;
    struct meters *meters;
    char topic[TOPIC_NAME_SIZE_MAX];
    struct codec *codec;
    struct intake *intake; /* NULL: not connected */
    struct store *store;   /* NULL: not connected */
    int64_t epoch;         /* of this connection */
    bool booking;          /* connected, partitions claimed */
    bool blocked;          /* the last batch could not be booked */
    struct suspect suspect;
    int status; /* for sysexits, when the loop ends with an error */
    bool goals_set;
    struct partition *partitions;
    struct store_advance *advances; /* scratch, one for each partition */
    int32_t partitions_count;
    int64_t missing_us; /* monotonic, as all that follow: when the topic was not there */
    int64_t lag_due_us;
    int64_t partitions_due_us;
    int64_t premake_due_us;
};

static void disconnect(struct ledger *ledger)
{
    intake_close(ledger->intake);
    store_close(ledger->store);
    ledger->intake = NULL;
    ledger->store = NULL;
    ledger->booking = false;
}

static void wait_ms(int64_t ms)
{
    for (; ms > 0 && !stop_requested(); ms -= 50)
        clock_sleep_ms(ms < 50 ? ms : 50);
}

/* ---- connecting ---- */

static void show_partitions(struct ledger *ledger)
{
    for (int32_t i = 0; i < ledger->partitions_count; i++) {
        struct partition *partition = &ledger->partitions[i];
        /* The end was asked for a moment ago, the position may be beyond it by now. */
        int64_t lag = partition->end > partition->next ? partition->end - partition->next : 0;
        meters_partition(ledger->meters, i, partition->next, lag);
    }
}

static bool open_intake(struct ledger *ledger, struct err *err)
{
    const struct config_common *common = &ledger->settings->common;
    struct intake_options options = {
        .kafka =
            {
                .brokers = common->brokers,
                .client_id = *common->client_id ? common->client_id : settings_program.name,
                .settings = ledger->kafka_settings,
            },
        .topic = ledger->topic,
        .rows_max = (size_t)ledger->settings->batch_rows,
    };

    if (intake_open(&ledger->intake, &options, err))
        return true;
    /* No broker was asked yet: it is the settings, and they will not mend. */
    err->kind = ERR_FATAL;
    ledger->status = EX_CONFIG;
    return false;
}

static bool open_store(struct ledger *ledger, struct err *err)
{
    struct store_options options = {
        .database = ledger->settings->database,
        .role = ledger->settings->database_role,
        .topic = ledger->topic,
    };

    if (store_open(&ledger->store, &options, err))
        return true;
    if (err->kind != ERR_REJECT)
        return false;
    /* Settings that have worked before are not wrong: somebody is at work on the database. */
    err->kind = ERR_RETRY;
    if (!ledger->goals_set) {
        err->kind = ERR_FATAL;
        ledger->status = EX_CONFIG;
    }
    return false;
}

/* Waits until no other ledger books the topic; the epoch is then taken under the lock. */
static bool take_over(struct ledger *ledger, struct err *err)
{
    int64_t start_us = clock_mono_us();
    int64_t pause_ms = LOCK_MS_MIN;
    bool mine, told = false;
    struct err why;

    while (store_lock(ledger->store, &mine, err)) {
        if (mine) {
            if (!store_epoch(ledger->store, &ledger->epoch, err))
                return false;
            metric_set(ledger->meters->epoch, (double)ledger->epoch);
            return true;
        }
        if (stop_requested())
            return err_set(err, ERR_RETRY, "stopped while another ledger booked %s", ledger->topic);
        if (!told && clock_mono_us() - start_us >= LOCK_SILENT_US) {
            told = true;
            err_set(&why, ERR_RETRY, "another ledger books %s", ledger->topic);
            if (ledger->settings->once) {
                ledger->status = EX_TEMPFAIL;
                return err_set(err, ERR_FATAL, "%s", why.message);
            }
            meters_waiting(ledger->meters, &why);
            LOG_INFO("standby", "topic=%s reason=\"another ledger books it\"", ledger->topic);
        }
        wait_ms(pause_ms);
        pause_ms = pause_ms * 2 < LOCK_MS_MAX ? pause_ms * 2 : LOCK_MS_MAX;
    }
    return false;
}

static void resize_partitions(struct ledger *ledger, int32_t count)
{
    CHECK(count > 0);
    ledger->partitions = realloc(ledger->partitions, (size_t)count * sizeof(struct partition));
    ledger->advances = realloc(ledger->advances, (size_t)count * sizeof(struct store_advance));
    CHECK(ledger->partitions && ledger->advances);
    for (int32_t i = ledger->partitions_count; i < count; i++)
        ledger->partitions[i] = (struct partition){0};
    ledger->partitions_count = count;
}

static bool claim(struct ledger *ledger, int32_t number, const char *cluster_id, struct err *err)
{
    struct partition *partition = &ledger->partitions[number];
    int64_t first;

    if (!intake_offsets(ledger->intake, number, &first, &partition->end, err) ||
        !store_claim(ledger->store, &(struct store_claim){number, cluster_id, first, ledger->epoch},
                     &partition->next, err))
        return false;
    if (partition->next < first || partition->next > partition->end)
        return err_set(err, ERR_FATAL,
                       "stored offset %" PRId64 " of %s[%" PRId32 "] is out of range %" PRId64
                       " to %" PRId64 ": records are lost, or the topic was made anew",
                       partition->next, ledger->topic, number, first, partition->end);
    if (!ledger->goals_set)
        partition->goal = partition->end;
    return true;
}

static bool assign(struct ledger *ledger, struct err *err)
{
    CHECK(ledger->partitions_count > 0);
    int64_t *next = calloc((size_t)ledger->partitions_count, sizeof *next);

    CHECK(next);
    for (int32_t i = 0; i < ledger->partitions_count; i++)
        next[i] = ledger->partitions[i].next;
    bool ok = intake_assign(ledger->intake, next, ledger->partitions_count, err);
    free(next);
    return ok;
}

/* A topic that was there is waited for; one that never was ends the program, after a moment for
 * brokers that have not heard of it yet. */
static bool count_partitions(struct ledger *ledger, int32_t *count, struct err *err)
{
    int64_t now_us = clock_mono_us();

    if (intake_partitions(ledger->intake, count, err))
        return true;
    if (err->kind != ERR_REJECT)
        return false;
    if (ledger->missing_us == 0)
        ledger->missing_us = now_us;
    err->kind =
        ledger->goals_set || now_us - ledger->missing_us < MISSING_US_MAX ? ERR_RETRY : ERR_FATAL;
    return false;
}

static bool claim_and_assign(struct ledger *ledger, struct err *err)
{
    const char *cluster_id;
    int32_t count;

    if (!intake_cluster_id(ledger->intake, &cluster_id, err) ||
        !count_partitions(ledger, &count, err))
        return false;
    if (count < ledger->partitions_count)
        return err_set(err, ERR_RETRY, "%s has %" PRId32 " partitions, it had %" PRId32,
                       ledger->topic, count, ledger->partitions_count);
    resize_partitions(ledger, count);
    for (int32_t i = 0; i < count; i++)
        if (!claim(ledger, i, cluster_id, err))
            return false;
    ledger->goals_set = true;
    return assign(ledger, err);
}

static bool premake(struct ledger *ledger, struct err *err)
{
    int64_t default_rows, months_ahead;

    ledger->premake_due_us = clock_mono_us() + ledger->settings->premake_interval_us;
    if (!store_premake(ledger->store, ledger->settings->premake_months, &default_rows,
                       &months_ahead, err))
        return false;
    metric_set(ledger->meters->default_rows, (double)default_rows);
    metric_set(ledger->meters->months_ahead, (double)months_ahead);
    if (default_rows > 0)
        LOG_WARN("default_partition", "rows=%" PRId64, default_rows);
    return true;
}

static bool connect_all(struct ledger *ledger, struct err *err)
{
    const char *cluster_id;
    int32_t count;

    /* Kafka first: a missing topic is to be named whatever the database says. */
    if (!open_intake(ledger, err) || !intake_cluster_id(ledger->intake, &cluster_id, err) ||
        !count_partitions(ledger, &count, err))
        return false;
    if (!open_store(ledger, err) || !take_over(ledger, err) || !premake(ledger, err))
        return false;
    if (!claim_and_assign(ledger, err))
        return false;
    show_partitions(ledger);
    ledger->booking = true;
    /* Who connects well and cannot book is not ready: the next batch decides. */
    if (!ledger->blocked)
        meters_connected(ledger->meters);
    ledger->partitions_due_us = clock_mono_us() + ledger->settings->partitions_interval_us;
    for (int32_t i = 0; i < ledger->partitions_count; i++)
        LOG_INFO("assigned", "topic=%s partition=%d offset=%lld end=%lld epoch=%lld", ledger->topic,
                 i, (long long)ledger->partitions[i].next, (long long)ledger->partitions[i].end,
                 (long long)ledger->epoch);
    return true;
}

/* ---- booking ---- */

static void report_broken(const struct ledger *ledger, const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (rows[i].kind == ROW_BROKEN)
            LOG_ERROR("broken_record", "topic=%s partition=%d offset=%lld reason=%s", ledger->topic,
                      rows[i].partition, (long long)rows[i].offset, rows[i].reason);
}

static size_t collect_advances(struct ledger *ledger)
{
    size_t count = 0;

    for (int32_t i = 0; i < ledger->partitions_count; i++) {
        int64_t position = intake_position(ledger->intake, i);
        if (position > ledger->partitions[i].next)
            ledger->advances[count++] =
                (struct store_advance){i, ledger->partitions[i].next, position};
    }
    return count;
}

/* Books rows and moves offsets, in one transaction. */
static bool book_rows(struct ledger *ledger, struct row *rows, size_t count, size_t advances_count,
                      struct err *err)
{
    struct store_batch batch = {
        .rows = rows,
        .rows_count = count,
        .advances = ledger->advances,
        .advances_count = advances_count,
        .epoch = ledger->epoch,
    };
    struct store_result result;
    int64_t start_us = clock_mono_us();

    if (!store_write(ledger->store, &batch, &result, err))
        return false;
    for (size_t i = 0; i < batch.advances_count; i++)
        ledger->partitions[batch.advances[i].partition].next = batch.advances[i].next;
    meters_batch(ledger->meters, &result, clock_mono_us() - start_us);
    show_partitions(ledger);
    report_broken(ledger, rows, count);
    if (count > 0)
        LOG_DEBUG("booked", "usage=%llu worker_time=%llu broken=%llu duplicates=%llu us=%lld",
                  (unsigned long long)result.usage, (unsigned long long)result.worker_time,
                  (unsigned long long)result.broken, (unsigned long long)result.duplicates,
                  (long long)(clock_mono_us() - start_us));
    return true;
}

static bool book_alone(struct ledger *ledger, struct row *row, struct err *err)
{
    if (suspect_guilty(&ledger->suspect, row))
        row_refuse(row, "the database takes its neighbours and not this record");
    ledger->advances[0] = (struct store_advance){
        row->partition, ledger->partitions[row->partition].next, row->offset + 1};
    if (book_rows(ledger, row, 1, 1, err))
        return true;
    if (err->kind == ERR_ABORT)
        suspect_row_aborted(&ledger->suspect, row);
    return false;
}

/* Books rows, or moves offsets over transaction markers when there are none. */
static bool book(struct ledger *ledger, struct row *rows, size_t count, struct err *err)
{
    bool alone = suspect_alone(&ledger->suspect);
    size_t advances_count;
    bool ok = true;

    for (size_t i = 0; i < count; i++)
        row_read(&rows[i], ledger->codec);
    for (size_t i = 0; ok && alone && i < count; i++)
        ok = book_alone(ledger, &rows[i], err);
    if (!ok)
        return false;
    advances_count = collect_advances(ledger);
    if (advances_count == 0)
        return true;
    return book_rows(ledger, rows, alone ? 0 : count, advances_count, err);
}

/* What a batch's end means for the next one, and for /readyz. */
static bool book_and_judge(struct ledger *ledger, struct row *rows, size_t count, struct err *err)
{
    bool moves = collect_advances(ledger) > 0;

    if (!book(ledger, rows, count, err)) {
        ledger->blocked = true;
        if (err->kind == ERR_ABORT)
            suspect_batch_aborted(&ledger->suspect);
        return false;
    }
    if (!moves)
        return true;
    suspect_batch_booked(&ledger->suspect);
    if (ledger->blocked)
        meters_connected(ledger->meters);
    ledger->blocked = false;
    return true;
}

/* ---- now and then ---- */

static bool refresh_lag(struct ledger *ledger, struct err *err)
{
    for (int32_t i = 0; i < ledger->partitions_count; i++)
        if (!intake_offsets(ledger->intake, i, NULL, &ledger->partitions[i].end, err))
            return false;
    show_partitions(ledger);
    return true;
}

/* New partitions start a connection from scratch: rare, and no second way to assign. */
static bool look_for_partitions(struct ledger *ledger, struct err *err)
{
    int32_t count;

    if (!count_partitions(ledger, &count, err))
        return false;
    if (count > ledger->partitions_count)
        return err_set(err, ERR_RETRY, "%s has grown from %" PRId32 " to %" PRId32 " partitions",
                       ledger->topic, ledger->partitions_count, count);
    return true;
}

static bool tend(struct ledger *ledger, struct err *err)
{
    int64_t now_us = clock_mono_us();
    struct err passing;

    if (now_us >= ledger->lag_due_us) {
        ledger->lag_due_us = now_us + ledger->settings->lag_interval_us;
        if (!refresh_lag(ledger, &passing))
            log_err(LOG_LEVEL_WARN, "lag_unknown", &passing);
    }
    if (now_us >= ledger->partitions_due_us) {
        ledger->partitions_due_us = now_us + ledger->settings->partitions_interval_us;
        if (!look_for_partitions(ledger, err))
            return false;
    }
    return now_us < ledger->premake_due_us || premake(ledger, err);
}

static bool goals_reached(const struct ledger *ledger)
{
    for (int32_t i = 0; i < ledger->partitions_count; i++)
        if (ledger->partitions[i].next < ledger->partitions[i].goal)
            return false;
    return true;
}

static bool step(struct ledger *ledger, struct err *err)
{
    struct row *rows;
    size_t count;

    if (!ledger->booking)
        return connect_all(ledger, err);
    return tend(ledger, err) &&
           intake_fill(ledger->intake, ledger->settings->batch_wait_us, &rows, &count, err) &&
           book_and_judge(ledger, rows, count, err);
}

static bool loop(struct ledger *ledger, struct err *err)
{
    int64_t backoff_ms = BACKOFF_MS_MIN;
    int64_t good_us = clock_mono_us();

    while (!stop_requested()) {
        if (step(ledger, err)) {
            /* Connecting alone is no success for who cannot book. */
            if (!ledger->blocked)
                backoff_ms = BACKOFF_MS_MIN;
            good_us = clock_mono_us();
            if (ledger->settings->once && goals_reached(ledger))
                return true;
            continue;
        }
        if (err->kind == ERR_FATAL ||
            (ledger->settings->once && clock_mono_us() - good_us >= ONCE_US_MAX))
            return false;
        if (stop_requested())
            return true;
        log_err(LOG_LEVEL_WARN, "reconnecting", err);
        meters_waiting(ledger->meters, err);
        metric_add(ledger->meters->retries, 1);
        disconnect(ledger);
        wait_ms(backoff_ms);
        backoff_ms = backoff_ms * 2 < BACKOFF_MS_MAX ? backoff_ms * 2 : BACKOFF_MS_MAX;
    }
    return true;
}

int ledger_run(const struct settings *settings, struct config_list kafka_settings,
               struct meters *meters, struct err *err)
{
    struct ledger ledger = {
        .status = EX_UNAVAILABLE,
        .settings = settings,
        .kafka_settings = kafka_settings,
        .meters = meters,
    };

    topic_name(ledger.topic, settings->common.topic_prefix, TOPIC_USAGE);
    if (!codec_open(&ledger.codec, err))
        return EX_UNAVAILABLE;
    bool ok = loop(&ledger, err);
    disconnect(&ledger);
    codec_close(ledger.codec);
    free(ledger.partitions);
    free(ledger.advances);
    return ok ? EX_OK : ledger.status;
}
