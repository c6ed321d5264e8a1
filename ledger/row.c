/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/row.h"

#include <stdio.h>
#include <string.h>

#include "common/utf8.h"

/* 9999-12-31: PostgreSQL knows later times, but a clock that is off by a factor of a thousand is
 * more likely than a request from then. */
static const int64_t time_ms_max = 253402300799999;

/* No request runs for ten years. Values beyond come from broken clocks and overflows; tens of
 * thousands of rows at the limit still add up within a bigint. */
static const int64_t span_us_max = (int64_t)3652 * 86400 * 1000000;

enum { TEXT_SIZE_MAX = 256 }; /* bytes: names of revisions, precisions and hardware */

static bool fail(struct row *row, const char *what, const char *why)
{
    char reason[sizeof row->reason];

    snprintf(reason, sizeof reason, "%s %s", what, why);
    row_refuse(row, reason);
    return false;
}

/* PostgreSQL stores neither NUL nor broken UTF-8. */
static bool check_text(struct row *row, const char *name, struct str text)
{
    if (text.size > 0 && memchr(text.data, 0, text.size))
        return fail(row, name, "contains a NUL");
    if (!utf8_valid(text.data, text.size))
        return fail(row, name, "is not UTF-8");
    return true;
}

static bool check_time(struct row *row, const char *name, int64_t ms)
{
    return (ms > 0 && ms <= time_ms_max) || fail(row, name, "is no time from 1970 to 9999");
}

static bool check_name(struct row *row, const char *name, struct str text)
{
    return check_text(row, name, text) &&
           (text.size <= TEXT_SIZE_MAX || fail(row, name, "has more than 256 bytes"));
}

static bool check_names(struct row *row, const struct usage *usage)
{
    struct err err;

    if (names_check(usage->tenant, usage->batch_id, usage->custom_id, usage->model, &err))
        return true;
    row_refuse(row, err.message);
    return false;
}

static bool check_span(struct row *row, const char *name, int64_t us)
{
    if (us < 0)
        return fail(row, name, "is negative");
    return us <= span_us_max || fail(row, name, "is beyond ten years");
}

static bool check_usage(struct row *row, const struct usage *usage)
{
    return check_time(row, "admitted_ms", usage->admitted_ms) &&
           check_time(row, "finished_ms", usage->finished_ms) && check_names(row, usage) &&
           check_text(row, "tenant", usage->tenant) && check_text(row, "model", usage->model) &&
           check_text(row, "batch_id", usage->batch_id) &&
           check_text(row, "custom_id", usage->custom_id) &&
           check_name(row, "revision", usage->revision) &&
           check_name(row, "precision", usage->precision) &&
           check_name(row, "hardware", usage->hardware) &&
           check_span(row, "prefill_us", usage->usage.prefill_us) &&
           check_span(row, "decode_us", usage->usage.decode_us) &&
           check_span(row, "queue_us", usage->usage.queue_us) &&
           check_span(row, "run_us", usage->usage.run_us) &&
           (usage->attempt <= INT32_MAX || fail(row, "attempt", "is too large"));
}

static bool check_worker_time(struct row *row, const struct worker_time *time)
{
    return check_time(row, "from_ms", time->from_ms) && check_time(row, "to_ms", time->to_ms) &&
           check_name(row, "hardware", time->hardware) &&
           (time->to_ms >= time->from_ms || fail(row, "to_ms", "is before from_ms"));
}

void row_read(struct row *row, struct codec *codec)
{
    struct err err;

    row->record = NULL;
    if (row->size == 0) {
        row_refuse(row, "the record has no value");
        return;
    }
    if (!codec_decode(codec, row->data, row->size, &row->record, &err)) {
        row->record = NULL;
        row_refuse(row, err.message);
        return;
    }
    switch (row->record->type) {
    case RECORD_USAGE:
        row->kind = ROW_USAGE;
        check_usage(row, &row->record->u.usage);
        break;
    case RECORD_WORKER_TIME:
        row->kind = ROW_WORKER_TIME;
        check_worker_time(row, &row->record->u.worker_time);
        break;
    default:
        fail(row, record_type_name(row->record->type), "is no record of the usage topic");
    }
}

void row_refuse(struct row *row, const char *reason)
{
    size_t size = 0;

    /* The reason may quote the record; the table of broken records must take it all the same. */
    for (; reason[size] && size + 1 < sizeof row->reason; size++)
        row->reason[size] = reason[size] >= ' ' && reason[size] <= '~' ? reason[size] : '?';
    row->reason[size] = 0;
    row->kind = ROW_BROKEN;
    record_free(row->record);
    row->record = NULL;
}

void row_free(struct row *row)
{
    record_free(row->record);
    row->record = NULL;
}
