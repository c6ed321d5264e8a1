/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/scheduler_fixture.h"

#include <string.h>

#include "common/check.h"
#include "schemas/codec.h"

struct scheduler_config fixture_config(void)
{
    return (struct scheduler_config){
        .slots = FIXTURE_SLOTS,
        .request_partitions = {1, 1},
        .lease_ms = 3000,
        .dedupe_window_ms = 7 * 24 * 3600 * 1000LL,
        .waiting_size_max = 1000000,
        .crashes_max = 3,
        .model_wait_ms = 10000,
        .batch = {.kind = BATCH_STATIC, .base = 4, .max = 64, .threshold = 0.75, .smoothing = 1},
    };
}

void fixture_open(struct fixture *fixture, const struct scheduler_config *config)
{
    *fixture = (struct fixture){.config = *config, .now_ms = 1700000000000};
    fixture->core = scheduler_new(config);
    CHECK(fixture->core);
    fixture_restored(fixture);
}

void fixture_close(struct fixture *fixture)
{
    scheduler_free(fixture->core);
    actions_free(&fixture->actions);
}

void fixture_takeover(struct fixture *fixture)
{
    scheduler_free(fixture->core);
    fixture->core = scheduler_new(&fixture->config);
    fixture->actions.count = 0;
}

struct request_id id_of(uint32_t number)
{
    struct request_id id = {{0}};

    id.bytes[12] = (uint8_t)(number >> 24);
    id.bytes[13] = (uint8_t)(number >> 16);
    id.bytes[14] = (uint8_t)(number >> 8);
    id.bytes[15] = (uint8_t)number;
    return id;
}

struct request request_of(uint32_t number)
{
    struct request request = {
        .request_id = id_of(number),
        .tenant = str_from("t"),
        .batch_id = str_from("b"),
        .custom_id = str_from("c"),
        .model = str_from("m"),
        .body = str_from("{\"model\":\"m\",\"prompt\":\"ab\",\"max_tokens\":10}"),
        .line = number,
    };

    request.body_hash[0] = 1;
    return request;
}

void fixture_step(struct fixture *fixture, const struct event *event)
{
    scheduler_step(fixture->core, event, fixture->now_ms, &fixture->actions);
}

void fixture_send_request(struct fixture *fixture, const struct request *request)
{
    struct record record = {.type = RECORD_REQUEST, .u.request = *request};
    enum topic topic =
        request->service_class == CLASS_BULK ? TOPIC_REQUESTS_BULK : TOPIC_REQUESTS_INTERACTIVE;
    struct event event = {
        .type = EVENT_REQUEST,
        .position = {topic, 0, fixture->request_offset[request->service_class]++},
        .timestamp_ms = fixture->now_ms,
        .record = &record,
    };

    fixture_step(fixture, &event);
}

void fixture_request(struct fixture *fixture, uint32_t number)
{
    struct request request = request_of(number);

    fixture_send_request(fixture, &request);
}

void fixture_restore(struct fixture *fixture, struct record record)
{
    struct event event = {.type = EVENT_RESTORE_STATE, .record = &record};

    if (record.type == RECORD_RESULT || record.type == RECORD_USAGE ||
        record.type == RECORD_WORKER_TIME)
        event.type = EVENT_RESTORE_OUTPUT;
    fixture_step(fixture, &event);
}

void fixture_restored(struct fixture *fixture)
{
    struct event event = {.type = EVENT_RESTORED};

    fixture_step(fixture, &event);
}

void fixture_worker(struct fixture *fixture, uint32_t slot, struct record record)
{
    struct event event = {
        .type = EVENT_WORKER,
        .position = {TOPIC_WORKER_EVENTS, (int32_t)slot, fixture->event_offset[slot]++},
        .record = &record,
    };

    fixture_step(fixture, &event);
}

void fixture_cancel(struct fixture *fixture, const char *tenant, const char *batch_id)
{
    struct record record = {
        .type = RECORD_CANCEL_BATCH,
        .u.cancel_batch = {.tenant = str_from(tenant), .batch_id = str_from(batch_id)},
    };
    struct event event = {
        .type = EVENT_CONTROL,
        .position = {TOPIC_CONTROL, 0, fixture->control_offset++},
        .record = &record,
    };

    fixture_step(fixture, &event);
}

struct hello hello_of(uint32_t slot, uint32_t incarnation)
{
    return (struct hello){
        .slot = slot,
        .incarnation = id_of(incarnation),
        .model = str_from("m"),
        .revision = str_from("r"),
        .numerics_id = str_from("f32/x"),
        .hardware = str_from("cpu-2"),
        .precision = str_from("f32"),
        .role = ROLE_BOTH,
        .max_seqs = 64,
        .max_context = 1000,
        .kv_tokens = 100000,
    };
}

void fixture_hello(struct fixture *fixture, uint32_t slot, uint32_t incarnation)
{
    struct record record = {.type = RECORD_HELLO, .u.hello = hello_of(slot, incarnation)};

    record.u.hello.sent_ms = fixture->now_ms;
    fixture_worker(fixture, slot, record);
}

void fixture_heartbeat(struct fixture *fixture, uint32_t slot, uint32_t incarnation,
                       const uint32_t *running, size_t count)
{
    struct running list[64];
    struct record record = {.type = RECORD_HEARTBEAT};

    CHECK(count <= 64);
    for (size_t i = 0; i < count; i++) {
        uint32_t attempt = running[i] / 1000;
        list[i] = (struct running){id_of(running[i] % 1000), attempt ? attempt : 1};
    }
    record.u.heartbeat = (struct heartbeat){
        .slot = slot,
        .incarnation = id_of(incarnation),
        .seq = ++fixture->heartbeat_seq,
        .sent_ms = fixture->now_ms,
        .running = list,
        .running_count = count,
    };
    fixture_worker(fixture, slot, record);
}

void fixture_progress(struct fixture *fixture, uint32_t slot, uint32_t incarnation, uint32_t number,
                      uint32_t attempt, uint32_t first_index, const int32_t *ids, size_t count)
{
    struct record record = {
        .type = RECORD_PROGRESS,
        .u.progress = {slot, id_of(incarnation), id_of(number), attempt, first_index, {ids, count}},
    };

    fixture_worker(fixture, slot, record);
}

void fixture_done(struct fixture *fixture, uint32_t slot, uint32_t incarnation, uint32_t number,
                  uint32_t attempt, const int32_t *ids, size_t count)
{
    struct record record = {
        .type = RECORD_DONE,
        .u.done = {.slot = slot,
                   .incarnation = id_of(incarnation),
                   .request_id = id_of(number),
                   .attempt = attempt,
                   .text = str_from("answer"),
                   .ids = {ids, count},
                   .finish_reason = FINISH_STOP,
                   .usage = {.prompt_tokens_uncached = 5, .output_tokens = (uint32_t)count}},
    };

    fixture_worker(fixture, slot, record);
}

void fixture_failed(struct fixture *fixture, uint32_t slot, uint32_t incarnation, uint32_t number,
                    uint32_t attempt, enum failure_kind kind)
{
    struct record record = {
        .type = RECORD_FAILED,
        .u.failed = {.slot = slot,
                     .incarnation = id_of(incarnation),
                     .request_id = id_of(number),
                     .attempt = attempt,
                     .kind = kind,
                     .failure = {.code = str_from("invalid_value"), .message = str_from("no")},
                     .usage = {.prompt_tokens_uncached = 3}},
    };

    fixture_worker(fixture, slot, record);
}

void fixture_goodbye(struct fixture *fixture, uint32_t slot, uint32_t incarnation)
{
    struct record record = {
        .type = RECORD_GOODBYE,
        .u.goodbye = {slot, id_of(incarnation), fixture->now_ms},
    };

    fixture_worker(fixture, slot, record);
}

void fixture_events_end(struct fixture *fixture, uint32_t slot)
{
    struct event event = {.type = EVENT_EVENTS_END, .slot = slot};

    fixture_step(fixture, &event);
}

void fixture_tick(struct fixture *fixture, int64_t ms)
{
    struct event event = {.type = EVENT_TICK};

    fixture->now_ms += ms;
    fixture_step(fixture, &event);
}

void fixture_commit(struct fixture *fixture)
{
    struct event event = {.type = EVENT_COMMITTED};

    fixture_step(fixture, &event);
    fixture->actions.count = 0;
}

void fixture_tick_commit(struct fixture *fixture, int64_t ms)
{
    fixture_tick(fixture, ms);
    fixture_commit(fixture);
}

static bool is_record(const struct action *action, enum record_type type)
{
    return action->type == ACTION_SEND && action->record->type == type;
}

size_t count_actions(const struct fixture *fixture, enum action_type type)
{
    size_t count = 0;

    for (size_t i = 0; i < fixture->actions.count; i++)
        count += fixture->actions.items[i].type == type;
    return count;
}

size_t count_records(const struct fixture *fixture, enum record_type type)
{
    size_t count = 0;

    for (size_t i = 0; i < fixture->actions.count; i++)
        count += is_record(&fixture->actions.items[i], type);
    return count;
}

const struct action *action_at(const struct fixture *fixture, enum action_type type, size_t nth)
{
    for (size_t i = 0; i < fixture->actions.count; i++)
        if (fixture->actions.items[i].type == type && nth-- == 0)
            return &fixture->actions.items[i];
    CHECK(!"there are fewer such actions");
    return NULL;
}

const struct record *record_at(const struct fixture *fixture, enum record_type type, size_t nth)
{
    for (size_t i = 0; i < fixture->actions.count; i++)
        if (is_record(&fixture->actions.items[i], type) && nth-- == 0)
            return fixture->actions.items[i].record;
    CHECK(!"there are fewer such records");
    return NULL;
}

int64_t tick_offset(const struct fixture *fixture, enum topic topic, int32_t partition)
{
    size_t count = count_records(fixture, RECORD_TICK);
    const struct tick *tick;

    CHECK(count > 0);
    tick = &record_at(fixture, RECORD_TICK, count - 1)->u.tick;
    for (size_t i = 0; i < tick->next_input_count; i++)
        if (tick->next_input[i].partition == partition &&
            str_equal(tick->next_input[i].topic, str_from(topic_specs[topic].name)))
            return tick->next_input[i].offset;
    return -1;
}

struct scheduler_gauges gauges_of(const struct fixture *fixture)
{
    struct scheduler_gauges gauges;

    scheduler_gauges(fixture->core, &gauges);
    return gauges;
}
