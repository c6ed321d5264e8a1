/* SPDX-License-Identifier: Apache-2.0
 *
 * What heartbeats tell the core beside "alive": draining, and the work that the planner counts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "schemas/codec.h"
#include "tests/unit/scheduler_fixture.h"

static const int32_t ids[] = {5, 6};

static int setup(void **state)
{
    struct scheduler_config config = fixture_config();
    struct fixture *fixture = calloc(1, sizeof *fixture);

    assert_non_null(fixture);
    fixture_open(fixture, &config);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    fixture_close(*state);
    free(*state);
    return 0;
}

static void beat(struct fixture *f, struct heartbeat heartbeat)
{
    struct record record = {.type = RECORD_HEARTBEAT, .u.heartbeat = heartbeat};

    record.u.heartbeat.seq = ++f->heartbeat_seq;
    record.u.heartbeat.sent_ms = f->now_ms;
    fixture_worker(f, heartbeat.slot, record);
}

static size_t assigned(const struct fixture *f)
{
    return count_records(f, RECORD_ASSIGNMENT);
}

/* 0.2, then 0.2 + 0.7 * (0.6 - 0.2); before any heartbeat nothing is known. */
static void a_workers_load_is_forecast(void **state)
{
    struct fixture *f = *state;
    struct scheduler_worker_gauges worker;

    fixture_hello(f, 0, 101);
    assert_true(scheduler_worker_gauges(f->core, 0, &worker));
    assert_true(worker.load_forecast == 0);
    beat(f, (struct heartbeat){.slot = 0, .incarnation = id_of(101), .load = 0.2f});
    beat(f, (struct heartbeat){.slot = 0, .incarnation = id_of(101), .load = 0.6f});
    assert_true(scheduler_worker_gauges(f->core, 0, &worker));
    assert_true(worker.load > 0.599 && worker.load < 0.601);
    assert_true(worker.load_forecast > 0.479 && worker.load_forecast < 0.481);
}

static void a_draining_worker_gets_nothing_new(void **state)
{
    struct fixture *f = *state;

    fixture_hello(f, 0, 101);
    fixture_request(f, 1);
    fixture_tick_commit(f, 20);
    beat(f, (struct heartbeat){.slot = 0, .incarnation = id_of(101), .draining = true});
    assert_int_equal(gauges_of(f).workers_alive, 1);
    assert_int_equal(gauges_of(f).workers_serving, 0);
    fixture_request(f, 2);
    fixture_tick(f, 20);
    assert_int_equal(assigned(f), 0);
    assert_int_equal(count_records(f, RECORD_LEASE_RENEWAL), 1); /* it goes on with request 1 */
    fixture_commit(f);
    fixture_done(f, 0, 101, 1, 1, ids, 2);
    fixture_tick(f, 20);
    assert_int_equal(count_records(f, RECORD_RESULT), 1);
    assert_int_equal(assigned(f), 0);
    fixture_commit(f);
    fixture_hello(f, 1, 102);
    fixture_tick(f, 20);
    assert_int_equal(assigned(f), 1);
    assert_int_equal(record_at(f, RECORD_ASSIGNMENT, 0)->u.assignment.request.request_id.bytes[15],
                     2);
}

/* A request that has crashed twice is to run alone, and the worker that is being emptied for it
 * drains: another one takes it. */
static void a_draining_worker_is_kept_for_nobody(void **state)
{
    struct fixture *f = *state;

    fixture_hello(f, 0, 101);
    fixture_request(f, 1);
    fixture_request(f, 2);
    fixture_tick_commit(f, 20);
    fixture_failed(f, 0, 101, 1, 1, FAILURE_RETRY);
    fixture_tick_commit(f, 20);
    fixture_failed(f, 0, 101, 1, 2, FAILURE_RETRY);
    fixture_tick_commit(f, 20);
    assert_int_equal(gauges_of(f).in_flight, 1); /* request 2 is still there */
    beat(f, (struct heartbeat){.slot = 0,
                               .incarnation = id_of(101),
                               .running = &(struct running){id_of(2), 1},
                               .running_count = 1,
                               .draining = true});
    fixture_hello(f, 1, 102);
    fixture_tick(f, 20);
    assert_int_equal(assigned(f), 1);
    assert_true(request_id_equal(&record_at(f, RECORD_ASSIGNMENT, 0)->u.assignment.incarnation,
                                 &(struct request_id){.bytes[15] = 102}));
}

static uint32_t assigned_number(const struct fixture *f, size_t nth)
{
    return record_at(f, RECORD_ASSIGNMENT, nth)->u.assignment.request.request_id.bytes[15];
}

static void send(struct fixture *f, uint32_t number, enum service_class class)
{
    struct request request = request_of(number);

    request.service_class = class;
    fixture_send_request(f, &request);
}

/* A worker that bulk has filled takes interactive requests with the next tick, as many as it could
 * run without the bulk; bulk does not gain by it. */
static void a_full_worker_takes_interactive(void **state)
{
    struct fixture *f = *state;

    fixture_hello(f, 0, 101);
    for (uint32_t i = 1; i <= 6; i++)
        send(f, i, CLASS_BULK);
    fixture_tick(f, 20);
    assert_int_equal(assigned(f), 4);
    fixture_commit(f);
    for (uint32_t i = 7; i <= 11; i++)
        send(f, i, CLASS_INTERACTIVE);
    fixture_tick(f, 20);
    assert_int_equal(assigned(f), 4);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(assigned_number(f, i), 7 + i);
    fixture_commit(f);
    fixture_done(f, 0, 101, 1, 1, ids, 2); /* bulk: its place is the interactive ones' */
    fixture_tick(f, 20);
    assert_int_equal(assigned(f), 0);
    fixture_commit(f);
    fixture_done(f, 0, 101, 7, 1, ids, 2); /* interactive: the fifth one's turn */
    fixture_tick(f, 20);
    assert_int_equal(assigned(f), 1);
    assert_int_equal(assigned_number(f, 0), 11);
}

static void work_is_counted_for_the_planner(void **state)
{
    struct fixture *f = *state;
    const uint64_t tokens = 43 / 4 + 10; /* bytes of the body, max_tokens */
    struct scheduler_work work;

    fixture_hello(f, 0, 101);
    fixture_request(f, 1);
    fixture_request(f, 1); /* a duplicate brings no work */
    fixture_request(f, 2);
    assert_int_equal(gauges_of(f).work.arrived_tokens, 2 * tokens);
    fixture_tick_commit(f, 20);
    fixture_done(f, 0, 101, 1, 1, ids, 2);
    fixture_failed(f, 0, 101, 2, 1, FAILURE_REJECT); /* says nothing of how long answers are */
    work = gauges_of(f).work;
    assert_int_equal(work.finished_tokens, tokens);
    assert_int_equal(work.output_tokens, 2);

    beat(
        f,
        (struct heartbeat){
            .slot = 0, .incarnation = id_of(101), .steps = 7, .decode_tokens = 70, .busy_us = 900});
    beat(f, (struct heartbeat){.slot = 0,
                               .incarnation = id_of(101),
                               .steps = 8,
                               .decode_tokens = 100,
                               .busy_us = 1000});
    fixture_hello(f, 1, 102);
    beat(f,
         (struct heartbeat){
             .slot = 1, .incarnation = id_of(102), .steps = 5, .decode_tokens = 5, .busy_us = 50});
    work = gauges_of(f).work;
    assert_int_equal(work.steps, 13);
    assert_int_equal(work.decode_tokens, 105);
    assert_int_equal(work.busy_us, 1050);
}

/* After a takeover everything that waits is read again; that is no traffic. */
static void a_backlog_is_no_traffic(void **state)
{
    struct fixture *f = *state;
    struct request request = request_of(1);
    struct record record = {.type = RECORD_REQUEST, .u.request = request};
    struct event event = {.type = EVENT_REQUEST,
                          .position = {TOPIC_REQUESTS_INTERACTIVE, 0, 0},
                          .timestamp_ms = f->now_ms - 1,
                          .record = &record};

    fixture_takeover(f);
    fixture_restored(f);
    fixture_step(f, &event);
    assert_int_equal(gauges_of(f).classes[CLASS_INTERACTIVE].waiting_requests, 1);
    assert_int_equal(gauges_of(f).work.arrived_tokens, 0);
    f->request_offset[CLASS_INTERACTIVE] = 1;
    fixture_request(f, 2);
    assert_int_equal(gauges_of(f).classes[CLASS_INTERACTIVE].waiting_requests, 2);
    assert_true(gauges_of(f).work.arrived_tokens > 0);
}

/* 1,000 tokens of KV cache, three quarters to plan with, requests that may need 400 and use few. */
static void memory_is_planned_by_use(void **state)
{
    struct fixture *f = *state;
    struct scheduler_config config = fixture_config();
    struct record hello = {.type = RECORD_HELLO, .u.hello = hello_of(0, 101)};

    config.kv_share = 0.75;
    config.batch.base = 64;
    fixture_close(f);
    fixture_open(f, &config);
    hello.u.hello.kv_tokens = 1000;
    hello.u.hello.max_seqs = 64;
    fixture_worker(f, 0, hello);
    /* A body of 90 bytes is a prompt of 30 tokens: 25 fit into 750, by their most it would be 2. */
    for (uint32_t i = 1; i <= 40; i++) {
        struct request request = request_of(i);
        request.body =
            str_from("{\"max_tokens\":400,\"prompt\":\"0123456789012345678901234567890123"
                     "45678901234567890123456789\"}");
        assert_int_equal(request.body.size, 90);
        fixture_send_request(f, &request);
    }
    fixture_tick_commit(f, 20);
    assert_int_equal(gauges_of(f).in_flight, 25);
    beat(f, (struct heartbeat){.slot = 0, .incarnation = id_of(101)});
    beat(f, (struct heartbeat){.slot = 0, .incarnation = id_of(101), .kv_tokens_used = 660});
    for (int i = 0; i < 3; i++) /* 660 + 3 * 30 = 750 */
        fixture_tick_commit(f, 20);
    assert_int_equal(gauges_of(f).in_flight, 28);
    beat(f, (struct heartbeat){.slot = 0, .incarnation = id_of(101), .kv_tokens_used = 600});
    fixture_tick_commit(f, 20); /* those three may be in no report yet: room for 2 beside them */
    assert_int_equal(gauges_of(f).in_flight, 30);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_workers_load_is_forecast),
        TEST(a_draining_worker_gets_nothing_new), TEST(a_draining_worker_is_kept_for_nobody),
        TEST(a_full_worker_takes_interactive),    TEST(a_backlog_is_no_traffic),
        TEST(work_is_counted_for_the_planner),    TEST(a_backlog_is_no_traffic),
        TEST(memory_is_planned_by_use),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
