/* SPDX-License-Identifier: Apache-2.0 */
#include "schemas/fields.h"

#define FIELD(owner, kind_, member, required_)                                                     \
    .name = #member, .kind = kind_, .offset = offsetof(struct owner, member), .required = required_
#define HAVE(owner, kind, member)                                                                  \
    {                                                                                              \
        FIELD(owner, kind, member, false)                                                          \
    }
#define NEED(owner, kind, member)                                                                  \
    {                                                                                              \
        FIELD(owner, kind, member, true)                                                           \
    }
#define BYTES(owner, member)                                                                       \
    {                                                                                              \
        FIELD(owner, FIELD_FIXED, member, true), .size = sizeof((struct owner *)0)->member         \
    }
#define SYMBOL(owner, member, type)                                                                \
    {                                                                                              \
        FIELD(owner, FIELD_ENUM, member, false), .symbols = type##_symbols                         \
    }
#define RECORD(owner, member, type)                                                                \
    {                                                                                              \
        FIELD(owner, FIELD_RECORD, member, false), .record = &type##_fields                        \
    }
#define NEED_RECORD(owner, member, type)                                                           \
    {                                                                                              \
        FIELD(owner, FIELD_RECORD, member, true), .record = &type##_fields                         \
    }
#define FLOATS(owner, member)                                                                      \
    {                                                                                              \
        FIELD(owner, FIELD_F32_ARRAY, member, false),                                              \
            .count_offset = offsetof(struct owner, member##_count)                                 \
    }
#define RECORDS(owner, member, type)                                                               \
    {                                                                                              \
        FIELD(owner, FIELD_RECORD_ARRAY, member, false),                                           \
            .count_offset = offsetof(struct owner, member##_count), .record = &type##_fields       \
    }
#define TABLE(owner, name_)                                                                        \
    {                                                                                              \
        .name = name_, .size = sizeof(struct owner), .rows = owner##_rows,                         \
        .count = sizeof owner##_rows / sizeof *owner##_rows                                        \
    }

static const char *const service_class_symbols[] = {"INTERACTIVE", "BULK", NULL};
static const char *const endpoint_symbols[] = {"CHAT_COMPLETIONS", "COMPLETIONS", NULL};
static const char *const result_status_symbols[] = {"COMPLETED", "FAILED", "EXPIRED", "CANCELLED",
                                                    NULL};
static const char *const finish_reason_symbols[] = {"NONE", "STOP", "LENGTH", NULL};
static const char *const failure_kind_symbols[] = {"REJECT", "RETRY", NULL};
static const char *const stream_mode_symbols[] = {"AUTO", "ON", "OFF", NULL};
static const char *const worker_role_symbols[] = {"BOTH", "PREFILL", "DECODE", NULL};

static const struct field partition_offset_rows[] = {
    NEED(partition_offset, FIELD_STR, topic),
    NEED(partition_offset, FIELD_I32, partition),
    NEED(partition_offset, FIELD_I64, offset),
};
static const struct fields partition_offset_fields = TABLE(partition_offset, "PartitionOffset");

static const struct field token_usage_rows[] = {
    HAVE(token_usage, FIELD_U32, prompt_tokens_uncached),
    HAVE(token_usage, FIELD_U32, prompt_tokens_cached),
    HAVE(token_usage, FIELD_U32, output_tokens),
    HAVE(token_usage, FIELD_I64, prefill_us),
    HAVE(token_usage, FIELD_I64, decode_us),
    HAVE(token_usage, FIELD_I64, queue_us),
    HAVE(token_usage, FIELD_I64, run_us),
};
static const struct fields token_usage_fields = TABLE(token_usage, "TokenUsage");

static const struct field failure_rows[] = {
    HAVE(failure, FIELD_STR, code),
    HAVE(failure, FIELD_STR, message),
    HAVE(failure, FIELD_STR, param),
};
static const struct fields failure_fields = TABLE(failure, "Failure");

static const struct field running_rows[] = {
    NEED(running, FIELD_UUID, request_id),
    HAVE(running, FIELD_U32, attempt),
};
static const struct fields running_fields = TABLE(running, "Running");

static const struct field request_rows[] = {
    NEED(request, FIELD_UUID, request_id),
    HAVE(request, FIELD_STR, tenant),
    HAVE(request, FIELD_STR, batch_id),
    HAVE(request, FIELD_STR, custom_id),
    SYMBOL(request, service_class, service_class),
    SYMBOL(request, endpoint, endpoint),
    HAVE(request, FIELD_STR, model),
    HAVE(request, FIELD_STR, body),
    BYTES(request, body_hash),
    HAVE(request, FIELD_U32, line),
    HAVE(request, FIELD_I64, submitted_ms),
    HAVE(request, FIELD_I64, deadline_ms),
    SYMBOL(request, stream, stream_mode),
};
static const struct fields request_fields = TABLE(request, "Request");

static const struct field assignment_rows[] = {
    NEED(assignment, FIELD_I64, epoch),        NEED(assignment, FIELD_UUID, incarnation),
    HAVE(assignment, FIELD_U32, attempt),      HAVE(assignment, FIELD_I64, admitted_ms),
    HAVE(assignment, FIELD_BOOL, stream),      HAVE(assignment, FIELD_I32_ARRAY, prefix),
    NEED_RECORD(assignment, request, request),
};
static const struct fields assignment_fields = TABLE(assignment, "Assignment");

static const struct field lease_renewal_rows[] = {
    NEED(lease_renewal, FIELD_I64, epoch),
    NEED(lease_renewal, FIELD_UUID, incarnation),
    HAVE(lease_renewal, FIELD_I64, heartbeat_seq),
    HAVE(lease_renewal, FIELD_U32, batch_size),
    HAVE(lease_renewal, FIELD_U32, micro_batch_size),
};
static const struct fields lease_renewal_fields = TABLE(lease_renewal, "LeaseRenewal");

static const struct field cancel_rows[] = {
    NEED(cancel, FIELD_I64, epoch),
    NEED(cancel, FIELD_UUID, incarnation),
    NEED(cancel, FIELD_UUID, request_id),
    HAVE(cancel, FIELD_U32, attempt),
};
static const struct fields cancel_fields = TABLE(cancel, "Cancel");

static const struct field hello_rows[] = {
    NEED(hello, FIELD_U32, slot),
    NEED(hello, FIELD_UUID, incarnation),
    HAVE(hello, FIELD_STR, model),
    HAVE(hello, FIELD_STR, revision),
    HAVE(hello, FIELD_STR, numerics_id),
    HAVE(hello, FIELD_STR, hardware),
    HAVE(hello, FIELD_STR, precision),
    SYMBOL(hello, role, worker_role),
    HAVE(hello, FIELD_U32, max_seqs),
    HAVE(hello, FIELD_U32, max_context),
    HAVE(hello, FIELD_U64, kv_tokens),
    HAVE(hello, FIELD_U32, experts),
    HAVE(hello, FIELD_I64, assignments_offset),
    HAVE(hello, FIELD_I64, sent_ms),
};
static const struct fields hello_fields = TABLE(hello, "Hello");

static const struct field heartbeat_rows[] = {
    NEED(heartbeat, FIELD_U32, slot),
    NEED(heartbeat, FIELD_UUID, incarnation),
    HAVE(heartbeat, FIELD_I64, seq),
    HAVE(heartbeat, FIELD_I64, sent_ms),
    HAVE(heartbeat, FIELD_I64, up_since_ms),
    RECORDS(heartbeat, running, running),
    HAVE(heartbeat, FIELD_U64, kv_tokens_used),
    HAVE(heartbeat, FIELD_F64, load),
    FLOATS(heartbeat, layer_load),
    HAVE(heartbeat, FIELD_I64, step_us),
    HAVE(heartbeat, FIELD_F64, imbalance),
    HAVE(heartbeat, FIELD_F64, experts_used),
    HAVE(heartbeat, FIELD_I64, prefill_tokens),
    HAVE(heartbeat, FIELD_I64, decode_tokens),
    HAVE(heartbeat, FIELD_I64, steps),
    HAVE(heartbeat, FIELD_I64, busy_us),
    HAVE(heartbeat, FIELD_BOOL, draining),
};
static const struct fields heartbeat_fields = TABLE(heartbeat, "Heartbeat");

static const struct field progress_rows[] = {
    NEED(progress, FIELD_U32, slot),          NEED(progress, FIELD_UUID, incarnation),
    NEED(progress, FIELD_UUID, request_id),   HAVE(progress, FIELD_U32, attempt),
    HAVE(progress, FIELD_U32, first_index),   HAVE(progress, FIELD_I32_ARRAY, ids),
    HAVE(progress, FIELD_I32_ARRAY, profile),
};
static const struct fields progress_fields = TABLE(progress, "Progress");

static const struct field done_rows[] = {
    NEED(done, FIELD_U32, slot),
    NEED(done, FIELD_UUID, incarnation),
    NEED(done, FIELD_UUID, request_id),
    HAVE(done, FIELD_U32, attempt),
    HAVE(done, FIELD_STR, text),
    HAVE(done, FIELD_I32_ARRAY, ids),
    SYMBOL(done, finish_reason, finish_reason),
    RECORD(done, usage, token_usage),
    HAVE(done, FIELD_I32_ARRAY, profile),
};
static const struct fields done_fields = TABLE(done, "Done");

static const struct field failed_rows[] = {
    NEED(failed, FIELD_U32, slot),        NEED(failed, FIELD_UUID, incarnation),
    NEED(failed, FIELD_UUID, request_id), HAVE(failed, FIELD_U32, attempt),
    SYMBOL(failed, kind, failure_kind),   RECORD(failed, failure, failure),
    RECORD(failed, usage, token_usage),
};
static const struct fields failed_fields = TABLE(failed, "Failed");

static const struct field yield_rows[] = {
    NEED(yield, FIELD_U32, slot),        NEED(yield, FIELD_UUID, incarnation),
    NEED(yield, FIELD_UUID, request_id), HAVE(yield, FIELD_U32, attempt),
    HAVE(yield, FIELD_STR, reason),
};
static const struct fields yield_fields = TABLE(yield, "Yield");

static const struct field goodbye_rows[] = {
    NEED(goodbye, FIELD_U32, slot),
    NEED(goodbye, FIELD_UUID, incarnation),
    HAVE(goodbye, FIELD_I64, sent_ms),
};
static const struct fields goodbye_fields = TABLE(goodbye, "Goodbye");

static const struct field token_chunk_rows[] = {
    NEED(token_chunk, FIELD_UUID, request_id), HAVE(token_chunk, FIELD_STR, batch_id),
    HAVE(token_chunk, FIELD_STR, custom_id),   HAVE(token_chunk, FIELD_U32, attempt),
    HAVE(token_chunk, FIELD_U32, first_index), HAVE(token_chunk, FIELD_I32_ARRAY, ids),
    HAVE(token_chunk, FIELD_STR, text),        HAVE(token_chunk, FIELD_I32_ARRAY, text_ends),
};
static const struct fields token_chunk_fields = TABLE(token_chunk, "TokenChunk");

static const struct field result_rows[] = {
    NEED(result, FIELD_UUID, request_id),
    HAVE(result, FIELD_STR, tenant),
    HAVE(result, FIELD_STR, batch_id),
    HAVE(result, FIELD_STR, custom_id),
    SYMBOL(result, service_class, service_class),
    SYMBOL(result, endpoint, endpoint),
    HAVE(result, FIELD_STR, model),
    HAVE(result, FIELD_STR, revision),
    SYMBOL(result, status, result_status),
    HAVE(result, FIELD_STR, text),
    HAVE(result, FIELD_I32_ARRAY, ids),
    SYMBOL(result, finish_reason, finish_reason),
    RECORD(result, failure, failure),
    RECORD(result, usage, token_usage),
    HAVE(result, FIELD_U32, attempt),
    HAVE(result, FIELD_U32, slot),
    HAVE(result, FIELD_STR, hardware),
    HAVE(result, FIELD_STR, precision),
    HAVE(result, FIELD_I64, admitted_ms),
    HAVE(result, FIELD_I64, finished_ms),
};
static const struct fields result_fields = TABLE(result, "Result");

static const struct field usage_rows[] = {
    NEED(usage, FIELD_UUID, request_id),  HAVE(usage, FIELD_I64, admitted_ms),
    HAVE(usage, FIELD_STR, tenant),       HAVE(usage, FIELD_STR, model),
    HAVE(usage, FIELD_STR, revision),     HAVE(usage, FIELD_STR, batch_id),
    HAVE(usage, FIELD_STR, custom_id),    SYMBOL(usage, service_class, service_class),
    SYMBOL(usage, status, result_status), HAVE(usage, FIELD_U32, attempt),
    RECORD(usage, usage, token_usage),    HAVE(usage, FIELD_STR, precision),
    HAVE(usage, FIELD_U32, slot),         HAVE(usage, FIELD_STR, hardware),
    HAVE(usage, FIELD_I64, finished_ms),
};
static const struct fields usage_fields = TABLE(usage, "Usage");

static const struct field worker_time_rows[] = {
    NEED(worker_time, FIELD_U32, slot),     NEED(worker_time, FIELD_UUID, incarnation),
    HAVE(worker_time, FIELD_STR, hardware), HAVE(worker_time, FIELD_I64, from_ms),
    HAVE(worker_time, FIELD_I64, to_ms),
};
static const struct fields worker_time_fields = TABLE(worker_time, "WorkerTime");

static const struct field in_flight_rows[] = {
    NEED(in_flight, FIELD_UUID, request_id),   HAVE(in_flight, FIELD_STR, topic),
    HAVE(in_flight, FIELD_I32, partition),     HAVE(in_flight, FIELD_I64, offset),
    HAVE(in_flight, FIELD_U32, attempt),       HAVE(in_flight, FIELD_U32, crashes),
    HAVE(in_flight, FIELD_U32, slot),          NEED(in_flight, FIELD_UUID, incarnation),
    HAVE(in_flight, FIELD_I64, events_offset), HAVE(in_flight, FIELD_I32_ARRAY, prefix),
    HAVE(in_flight, FIELD_I64, admitted_ms),   HAVE(in_flight, FIELD_I64, first_assigned_ms),
};
static const struct fields in_flight_fields = TABLE(in_flight, "InFlight");

static const struct field done_mark_rows[] = {
    NEED(done_mark, FIELD_UUID, request_id),
    BYTES(done_mark, body_hash),
    HAVE(done_mark, FIELD_I64, finished_ms),
    SYMBOL(done_mark, status, result_status),
    SYMBOL(done_mark, service_class, service_class),
    HAVE(done_mark, FIELD_I32, partition),
    HAVE(done_mark, FIELD_I64, offset),
    HAVE(done_mark, FIELD_U32, attempt),
    HAVE(done_mark, FIELD_U32, crashes),
    HAVE(done_mark, FIELD_I64, admitted_ms),
    HAVE(done_mark, FIELD_I64, tick),
    HAVE(done_mark, FIELD_I64, uncertain),
};
static const struct fields done_mark_fields = TABLE(done_mark, "DoneMark");

static const struct field tick_rows[] = {
    NEED(tick, FIELD_I64, epoch),
    HAVE(tick, FIELD_I64, seq),
    HAVE(tick, FIELD_I64, committed_ms),
    RECORDS(tick, next_input, partition_offset),
    RECORDS(tick, outputs, partition_offset),
    HAVE(tick, FIELD_I64, number),
    HAVE(tick, FIELD_I64, uncertain),
};
static const struct fields tick_fields = TABLE(tick, "Tick");

static const struct field worker_mark_rows[] = {
    NEED_RECORD(worker_mark, hello, hello),
    HAVE(worker_mark, FIELD_I64, worker_time_to_ms),
};
static const struct fields worker_mark_fields = TABLE(worker_mark, "WorkerMark");

static const struct field batch_rows[] = {
    NEED(batch, FIELD_STR, batch_id),
    HAVE(batch, FIELD_STR, tenant),
    HAVE(batch, FIELD_STR, file_name),
    BYTES(batch, file_hash),
    HAVE(batch, FIELD_U64, total),
    HAVE(batch, FIELD_U64, rejected),
    SYMBOL(batch, service_class, service_class),
    HAVE(batch, FIELD_I64, created_ms),
    HAVE(batch, FIELD_I64, deadline_ms),
    HAVE(batch, FIELD_BOOL, complete),
    RECORDS(batch, first_offsets, partition_offset),
    HAVE(batch, FIELD_STR, retry_of),
};
static const struct fields batch_fields = TABLE(batch, "Batch");

static const struct field cancel_batch_rows[] = {
    NEED(cancel_batch, FIELD_STR, batch_id),
    HAVE(cancel_batch, FIELD_STR, tenant),
    HAVE(cancel_batch, FIELD_I64, sent_ms),
};
static const struct fields cancel_batch_fields = TABLE(cancel_batch, "CancelBatch");

static const struct field batch_claim_rows[] = {
    NEED(batch_claim, FIELD_UUID, claim),   NEED(batch_claim, FIELD_STR, batch_id),
    HAVE(batch_claim, FIELD_STR, tenant),   HAVE(batch_claim, FIELD_STR, file_name),
    BYTES(batch_claim, file_hash),          HAVE(batch_claim, FIELD_I64, sent_ms),
    HAVE(batch_claim, FIELD_STR, retry_of),
};
static const struct fields batch_claim_fields = TABLE(batch_claim, "BatchClaim");

const struct fields *const record_fields[RECORD_TYPE_COUNT] = {
    [RECORD_REQUEST] = &request_fields,
    [RECORD_ASSIGNMENT] = &assignment_fields,
    [RECORD_LEASE_RENEWAL] = &lease_renewal_fields,
    [RECORD_CANCEL] = &cancel_fields,
    [RECORD_HELLO] = &hello_fields,
    [RECORD_HEARTBEAT] = &heartbeat_fields,
    [RECORD_PROGRESS] = &progress_fields,
    [RECORD_DONE] = &done_fields,
    [RECORD_FAILED] = &failed_fields,
    [RECORD_YIELD] = &yield_fields,
    [RECORD_GOODBYE] = &goodbye_fields,
    [RECORD_TOKEN_CHUNK] = &token_chunk_fields,
    [RECORD_RESULT] = &result_fields,
    [RECORD_USAGE] = &usage_fields,
    [RECORD_WORKER_TIME] = &worker_time_fields,
    [RECORD_IN_FLIGHT] = &in_flight_fields,
    [RECORD_DONE_MARK] = &done_mark_fields,
    [RECORD_TICK] = &tick_fields,
    [RECORD_WORKER_MARK] = &worker_mark_fields,
    [RECORD_BATCH] = &batch_fields,
    [RECORD_CANCEL_BATCH] = &cancel_batch_fields,
    [RECORD_BATCH_CLAIM] = &batch_claim_fields,
};
