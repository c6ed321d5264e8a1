/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/store.h"

#include <libpq-fe.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/check.h"
#include "common/clock.h"
#include "common/stop.h"
#include "ledger/sqlstate.h"
#include "ledger/statement.h"

enum {
    ANSWER_MS = 65000, /* a little more than the server's own statement_timeout */
    STOP_MS = 2000,    /* for the answer under way when the ledger is to stop */
    LOOK_MS = 100,     /* how late a stop is seen */
};

struct store {
    PGconn *conn;
    const char *topic;
};

/* The first line of what the server said. */
static bool fail(struct store *store, const PGresult *result, const char *what, struct err *err)
{
    const char *state = result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
    const char *text = result ? PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) : NULL;

    if (!text || !*text)
        text = PQerrorMessage(store->conn);
    return err_set(err, sqlstate_kind(state), "%s: %.*s", what, (int)strcspn(text, "\n"), text);
}

/* RETRY but for what stays wrong however often it is tried: REJECT. */
static bool fail_opening(struct store *store, const PGresult *result, const char *what,
                         struct err *err)
{
    fail(store, result, what, err);
    err->kind =
        sqlstate_stays(PQresultErrorField(result, PG_DIAG_SQLSTATE)) ? ERR_REJECT : ERR_RETRY;
    return false;
}

/* Waits until the next PQgetResult() does not block. A server that keeps the connection and says
 * nothing is given up: libpq itself would wait for ever, and not see a stop. */
static void await_answer(struct store *store)
{
    int64_t until_us = clock_mono_us() + ANSWER_MS * (int64_t)1000;
    bool stops = false;

    while (PQisBusy(store->conn) && PQstatus(store->conn) == CONNECTION_OK) {
        struct pollfd socket = {.fd = PQsocket(store->conn), .events = POLLIN};
        int64_t now_us = clock_mono_us();

        if (!stops && stop_requested()) {
            stops = true;
            until_us = now_us + STOP_MS * (int64_t)1000;
        }
        if (now_us >= until_us) {
            shutdown(socket.fd, SHUT_RDWR); /* libpq finds the connection lost */
            return;
        }
        if (poll(&socket, 1, LOOK_MS) > 0 && !PQconsumeInput(store->conn))
            return;
    }
}

/* The answer to what was sent as PQexec() would give it: the last of its results, or NULL. */
static PGresult *answer(struct store *store, int sent)
{
    PGresult *result, *last = NULL;

    if (!sent)
        return NULL;
    for (;;) {
        await_answer(store);
        result = PQgetResult(store->conn);
        if (!result)
            return last;
        PQclear(last);
        last = result;
    }
}

static bool command(struct store *store, const char *sql, const char *what, struct err *err)
{
    PGresult *result = answer(store, PQsendQuery(store->conn, sql));
    ExecStatusType status = PQresultStatus(result);
    bool ok =
        status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK || fail(store, result, what, err);

    PQclear(result);
    return ok;
}

static bool set_role(struct store *store, const char *role, struct err *err)
{
    char sql[200];
    char *quoted;

    if (!*role)
        return true;
    quoted = PQescapeIdentifier(store->conn, role, strlen(role));
    if (!quoted || strlen(quoted) + sizeof "SET ROLE " > sizeof sql) {
        PQfreemem(quoted);
        return err_set(err, ERR_REJECT, "database_role %.64s is no name of a role", role);
    }
    snprintf(sql, sizeof sql, "SET ROLE %s", quoted);
    PQfreemem(quoted);
    PGresult *result = answer(store, PQsendQuery(store->conn, sql));
    bool ok = PQresultStatus(result) == PGRES_COMMAND_OK || fail_opening(store, result, sql, err);
    PQclear(result);
    return ok;
}

static bool prepare(struct store *store, struct err *err)
{
    for (int i = 0; i < STATEMENT_COUNT; i++) {
        PGresult *result = answer(
            store, PQsendPrepare(store->conn, statements[i].name, statements[i].sql, 0, NULL));
        bool ok = PQresultStatus(result) == PGRES_COMMAND_OK ||
                  fail_opening(store, result, "preparing SQL (run `sqitch deploy`)", err);

        PQclear(result);
        if (!ok)
            return false;
    }
    return true;
}

static void ignore_notice(void *context, const PGresult *result)
{
    (void)context;
    (void)result;
}

/* The server's side of the same: it drops the session, and with it the lock, of a ledger whose
 * machine is gone. */
#define SESSION_SQL                                                                                \
    "SET statement_timeout = '60s'; SET tcp_keepalives_idle = 10; "                                \
    "SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 4; SET tcp_user_timeout = 30000"

static bool fail_connecting(struct store *store, struct err *err)
{
    bool settings =
        sqlstate_refused(PQerrorMessage(store->conn)) || PQconnectionNeedsPassword(store->conn);

    fail(store, NULL, "connecting to PostgreSQL", err);
    err->kind = settings ? ERR_REJECT : ERR_RETRY;
    return false;
}

bool store_open(struct store **out, const struct store_options *options, struct err *err)
{
    /* A peer that vanished without a word is noticed after 30 s, not after hours. */
    const char *const keywords[] = {"tcp_user_timeout",
                                    "keepalives_idle",
                                    "connect_timeout",
                                    "application_name",
                                    "client_encoding",
                                    "dbname",
                                    NULL};
    const char *const values[] = {"30000",           "10", "5", "pelton-ledger", "UTF8",
                                  options->database, NULL};
    struct store *store = calloc(1, sizeof *store);

    CHECK(store);
    store->topic = options->topic;
    /* The connection string is expanded where "dbname" stands: what it says wins over the above. */
    store->conn = PQconnectdbParams(keywords, values, 1);
    CHECK(store->conn);
    PQsetNoticeReceiver(store->conn, ignore_notice, NULL);
    if (PQstatus(store->conn) != CONNECTION_OK) {
        fail_connecting(store, err);
    } else if (command(store, SESSION_SQL, "setting timeouts", err) &&
               set_role(store, options->role, err) && prepare(store, err)) {
        *out = store;
        return true;
    }
    store_close(store);
    return false;
}

void store_close(struct store *store)
{
    if (!store)
        return;
    PQfinish(store->conn);
    free(store);
}

static bool query_int(struct store *store, const char *sql, int64_t *values, int count,
                      struct err *err)
{
    PGresult *result = answer(store, PQsendQuery(store->conn, sql));
    bool ok = PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1 &&
              PQnfields(result) == count;

    if (ok) {
        for (int i = 0; i < count; i++)
            values[i] = strtoll(PQgetvalue(result, 0, i), NULL, 10);
    } else {
        fail(store, result, sql, err);
    }
    PQclear(result);
    return ok;
}

bool store_epoch(struct store *store, int64_t *epoch, struct err *err)
{
    return query_int(store, "SELECT nextval('pelton.ledger_epoch')", epoch, 1, err);
}

bool store_lock(struct store *store, bool *mine, struct err *err)
{
    const char *const values[] = {store->topic};
    int sent = PQsendQueryParams(
        store->conn, "SELECT pg_try_advisory_lock(hashtextextended('pelton-ledger ' || $1, 0))", 1,
        NULL, values, NULL, NULL, 0);
    PGresult *result = answer(store, sent);
    bool ok =
        PQresultStatus(result) == PGRES_TUPLES_OK || fail(store, result, "locking the topic", err);

    if (ok)
        *mine = *PQgetvalue(result, 0, 0) == 't';
    PQclear(result);
    return ok;
}

static bool send_statement(struct store *store, enum statement statement,
                           const struct params *params)
{
    return PQsendQueryPrepared(store->conn, statements[statement].name, params->count,
                               params->values, params->sizes, params->formats, 0);
}

static PGresult *execute(struct store *store, enum statement statement, const struct params *params)
{
    return answer(store, send_statement(store, statement, params));
}

bool store_claim(struct store *store, const struct store_claim *claim, int64_t *next,
                 struct err *err)
{
    struct params params = {0};

    params_text(&params, str_from(store->topic));
    params_int4(&params, claim->partition);
    params_text(&params, str_from(claim->cluster_id));
    params_int(&params, claim->first_offset);
    params_int(&params, claim->epoch);
    PGresult *result = execute(store, STATEMENT_CLAIM, &params);
    bool ok = PQresultStatus(result) == PGRES_TUPLES_OK ||
              fail(store, result, "claiming a partition", err);

    if (ok)
        *next = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
    PQclear(result);
    return ok;
}

bool store_premake(struct store *store, int64_t months, int64_t *default_rows,
                   int64_t *months_ahead, struct err *err)
{
    char sql[100];
    int64_t values[2];

    snprintf(sql, sizeof sql, "SELECT pelton.premake_partitions(%d)", (int)months);
    if (!command(store, sql, "making partitions", err) ||
        !query_int(store, "SELECT default_rows, months_ahead FROM pelton.partition_health", values,
                   2, err))
        return false;
    *default_rows = values[0];
    *months_ahead = values[1];
    return true;
}

static void advance_params(struct params *params, const struct store *store,
                           const struct store_advance *advance, int64_t epoch)
{
    params->count = 0;
    params_text(params, str_from(store->topic));
    params_int4(params, advance->partition);
    params_int(params, advance->expected);
    params_int(params, advance->next);
    params_int(params, epoch);
}

static void count_row(struct store_result *counts, const struct row *row, PGresult *result)
{
    if (!strcmp(PQcmdTuples(result), "0"))
        counts->duplicates++;
    else if (row->kind == ROW_USAGE)
        counts->usage++;
    else if (row->kind == ROW_WORKER_TIME)
        counts->worker_time++;
    else
        counts->broken++;
}

/* ---- the usual way: one pipeline ---- */

static bool send_batch(struct store *store, const struct store_batch *batch, struct err *err)
{
    struct params params;
    bool ok = true;

    /* libpq reads what the server has to say while it waits to send, so a long pipeline cannot
     * block both sides. */
    for (size_t i = 0; ok && i < batch->advances_count; i++) {
        advance_params(&params, store, &batch->advances[i], batch->epoch);
        ok = send_statement(store, STATEMENT_ADVANCE, &params);
    }
    for (size_t i = 0; ok && i < batch->rows_count; i++) {
        enum statement statement = statement_row(&params, store->topic, &batch->rows[i]);
        ok = send_statement(store, statement, &params);
    }
    return (ok && PQpipelineSync(store->conn)) || fail(store, NULL, "sending a batch", err);
}

/* Results come in the order of the statements, NULL after each; the first error is the cause. */
static bool receive_batch(struct store *store, const struct store_batch *batch,
                          struct store_result *counts, struct err *err)
{
    bool ok = true;

    for (size_t i = 0; i < batch->advances_count + batch->rows_count; i++) {
        await_answer(store);
        PGresult *result = PQgetResult(store->conn);
        ExecStatusType status = PQresultStatus(result);

        if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
            if (ok)
                fail(store, result, "writing a batch", err);
            ok = false;
        } else if (i >= batch->advances_count) {
            count_row(counts, &batch->rows[i - batch->advances_count], result);
        }
        PQclear(result);
        if (PQstatus(store->conn) != CONNECTION_OK)
            return ok ? fail(store, NULL, "writing a batch", err) : false;
        PQclear(PQgetResult(store->conn));
    }
    /* The commit happens at the sync; without its answer nothing is known. */
    await_answer(store);
    PGresult *sync = PQgetResult(store->conn);
    if (PQresultStatus(sync) != PGRES_PIPELINE_SYNC && ok)
        ok = fail(store, sync, "committing a batch", err);
    PQclear(sync);
    return ok;
}

static bool write_pipelined(struct store *store, const struct store_batch *batch,
                            struct store_result *counts, struct err *err)
{
    if (!PQenterPipelineMode(store->conn))
        return fail(store, NULL, "entering pipeline mode", err);
    bool ok = send_batch(store, batch, err) && receive_batch(store, batch, counts, err);
    if (PQstatus(store->conn) == CONNECTION_OK && !PQexitPipelineMode(store->conn) && ok)
        ok = fail(store, NULL, "leaving pipeline mode", err);
    return ok;
}

/* ---- the careful way: row by row ---- */

static bool write_row(struct store *store, const struct row *row, struct store_result *counts,
                      struct err *err)
{
    struct params params;
    enum statement statement = statement_row(&params, store->topic, row);
    PGresult *result = execute(store, statement, &params);
    bool ok =
        PQresultStatus(result) == PGRES_COMMAND_OK || fail(store, result, "writing a row", err);

    if (ok)
        count_row(counts, row, result);
    PQclear(result);
    return ok;
}

static bool write_row_carefully(struct store *store, struct row *row, struct store_result *counts,
                                struct err *err)
{
    if (!command(store, "SAVEPOINT one", "SAVEPOINT", err))
        return false;
    if (write_row(store, row, counts, err))
        return command(store, "RELEASE SAVEPOINT one", "RELEASE", err);
    if (err->kind != ERR_REJECT || row->kind == ROW_BROKEN)
        return false;
    row_refuse(row, err->message);
    return command(store, "ROLLBACK TO SAVEPOINT one", "ROLLBACK TO", err) &&
           write_row(store, row, counts, err);
}

static bool write_carefully(struct store *store, const struct store_batch *batch,
                            struct store_result *counts, struct err *err)
{
    if (!command(store, "BEGIN", "BEGIN", err))
        return false;
    for (size_t i = 0; i < batch->advances_count; i++) {
        struct params params;
        advance_params(&params, store, &batch->advances[i], batch->epoch);
        PGresult *result = execute(store, STATEMENT_ADVANCE, &params);
        bool ok = PQresultStatus(result) == PGRES_TUPLES_OK ||
                  fail(store, result, "moving an offset", err);

        PQclear(result);
        if (!ok)
            return false;
    }
    for (size_t i = 0; i < batch->rows_count; i++)
        if (!write_row_carefully(store, &batch->rows[i], counts, err))
            return false;
    return command(store, "COMMIT", "COMMIT", err);
}

bool store_write(struct store *store, const struct store_batch *batch, struct store_result *result,
                 struct err *err)
{
    *result = (struct store_result){0};
    if (write_pipelined(store, batch, result, err))
        return true;
    if (err->kind != ERR_REJECT)
        return false;
    *result = (struct store_result){0};
    if (write_carefully(store, batch, result, err))
        return true;
    /* The caller closes the store, which rolls back. What only the commit refuses (a deferred
     * constraint) names no row: booking them one by one finds it. */
    if (err->kind == ERR_REJECT)
        err->kind = ERR_ABORT;
    return false;
}
