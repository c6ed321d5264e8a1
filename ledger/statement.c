/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/statement.h"

#include "common/check.h"

const struct statement_text statements[STATEMENT_COUNT] = {
    [STATEMENT_USAGE] =
        {"usage", "INSERT INTO pelton.usage (request_id, admitted_at, tenant, model, revision,"
                  " batch_id, custom_id, service_class, status, attempt, prompt_tokens_uncached,"
                  " prompt_tokens_cached, output_tokens, prefill_us, decode_us, queue_us, run_us,"
                  " precision, slot, hardware, finished_at)"
                  " VALUES ($1::uuid, $2::timestamptz, $3::text, $4::text, $5::text, $6::text,"
                  " $7::text, $8::text, $9::text, $10::int4, $11::int8, $12::int8, $13::int8,"
                  " $14::int8, $15::int8, $16::int8, $17::int8, $18::text, $19::int8, $20::text,"
                  " $21::timestamptz) ON CONFLICT DO NOTHING"},
    [STATEMENT_WORKER_TIME] = {"worker_time",
                               "INSERT INTO pelton.worker_time"
                               " (incarnation, from_at, to_at, slot, hardware)"
                               " VALUES ($1::uuid, $2::timestamptz, $3::timestamptz, $4::int8,"
                               " $5::text) ON CONFLICT DO NOTHING"},
    [STATEMENT_ERROR] = {"error", "INSERT INTO pelton.ledger_error"
                                  " (topic, partition, record_offset, reason, record, record_size)"
                                  " VALUES ($1::text, $2::int4, $3::int8, $4::text, $5::bytea,"
                                  " $6::int8) ON CONFLICT DO NOTHING"},
    [STATEMENT_CLAIM] = {"claim", "SELECT pelton.claim_offset($1::text, $2::int4, $3::text,"
                                  " $4::int8, $5::int8)"},
    [STATEMENT_ADVANCE] = {"advance", "SELECT pelton.advance_offset($1::text, $2::int4, $3::int8,"
                                      " $4::int8, $5::int8)"},
};

/* Of a broken record, this much is kept. */
enum { ERROR_RECORD_SIZE_MAX = 64 * 1024 };

static void add(struct params *params, const void *value, size_t size)
{
    CHECK(params->count < PARAMS_MAX);
    params->values[params->count] = value;
    params->sizes[params->count] = (int)size;
    params->formats[params->count] = 1;
    params->count++;
}

static void add_big_endian(struct params *params, uint64_t value, size_t size)
{
    CHECK(params->count < PARAMS_MAX);
    uint8_t *scratch = params->scratch[params->count];

    for (size_t i = 0; i < size; i++)
        scratch[i] = (uint8_t)(value >> (8 * (size - 1 - i)));
    add(params, scratch, size);
}

void params_int(struct params *params, int64_t value)
{
    add_big_endian(params, (uint64_t)value, 8);
}

void params_int4(struct params *params, int32_t value)
{
    add_big_endian(params, (uint32_t)value, 4);
}

void params_text(struct params *params, struct str value)
{
    /* A NULL pointer would be SQL's NULL. */
    add(params, value.size > 0 ? value.data : "", value.size);
}

void params_time(struct params *params, int64_t ms)
{
    const int64_t ms_of_2000 = 946684800000;

    params_int(params, (ms - ms_of_2000) * 1000);
}

void params_uuid(struct params *params, const uint8_t *uuid)
{
    add(params, uuid, 16);
}

static struct str class_name(enum service_class class)
{
    return str_from(class == CLASS_INTERACTIVE ? "interactive" : "bulk");
}

static struct str status_name(enum result_status status)
{
    static const char *const names[] = {
        [RESULT_COMPLETED] = "completed",
        [RESULT_FAILED] = "failed",
        [RESULT_EXPIRED] = "expired",
        [RESULT_CANCELLED] = "cancelled",
    };

    return str_from(names[status]);
}

static void usage_params(struct params *params, const struct usage *usage)
{
    params_uuid(params, usage->request_id.bytes);
    params_time(params, usage->admitted_ms);
    params_text(params, usage->tenant);
    params_text(params, usage->model);
    params_text(params, usage->revision);
    params_text(params, usage->batch_id);
    params_text(params, usage->custom_id);
    params_text(params, class_name(usage->service_class));
    params_text(params, status_name(usage->status));
    params_int4(params, (int32_t)usage->attempt);
    params_int(params, usage->usage.prompt_tokens_uncached);
    params_int(params, usage->usage.prompt_tokens_cached);
    params_int(params, usage->usage.output_tokens);
    params_int(params, usage->usage.prefill_us);
    params_int(params, usage->usage.decode_us);
    params_int(params, usage->usage.queue_us);
    params_int(params, usage->usage.run_us);
    params_text(params, usage->precision);
    params_int(params, usage->slot);
    params_text(params, usage->hardware);
    params_time(params, usage->finished_ms);
}

static void worker_time_params(struct params *params, const struct worker_time *time)
{
    params_uuid(params, time->incarnation.bytes);
    params_time(params, time->from_ms);
    params_time(params, time->to_ms);
    params_int(params, time->slot);
    params_text(params, time->hardware);
}

enum statement statement_row(struct params *params, const char *topic, const struct row *row)
{
    params->count = 0;
    switch (row->kind) {
    case ROW_USAGE:
        usage_params(params, &row->record->u.usage);
        return STATEMENT_USAGE;
    case ROW_WORKER_TIME:
        worker_time_params(params, &row->record->u.worker_time);
        return STATEMENT_WORKER_TIME;
    case ROW_BROKEN:
        break;
    }
    size_t kept = row->size < ERROR_RECORD_SIZE_MAX ? row->size : ERROR_RECORD_SIZE_MAX;
    params_text(params, str_from(topic));
    params_int4(params, row->partition);
    params_int(params, row->offset);
    params_text(params, str_from(row->reason));
    params_text(params, (struct str){row->data, kept});
    params_int(params, (int64_t)row->size);
    return STATEMENT_ERROR;
}
