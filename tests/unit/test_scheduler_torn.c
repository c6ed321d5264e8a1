/* SPDX-License-Identifier: Apache-2.0
 *
 * A transaction was torn: what a new leader finds of it, what it completes, and what it has to keep
 * until the outcome of each tick is certain.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "schemas/codec.h"
#include "tests/unit/scheduler_fixture.h"

static const int32_t ids[] = {11, 12, 13, 14};

enum { BULK_NEXT = 30, TICK = 40, UNCERTAIN = 3, RESULTS_END = 70 };

static const int64_t admitted_ms = 1600000000000;

static void restore_tick(struct fixture *f, int64_t number, int64_t uncertain)
{
    const struct partition_offset next[] = {{str_from("requests.bulk"), 0, BULK_NEXT}};
    const struct partition_offset outputs[] = {{str_from("results"), 0, RESULTS_END}};
    struct tick tick = {.epoch = 5,
                        .seq = 9,
                        .next_input = next,
                        .next_input_count = 1,
                        .outputs = outputs,
                        .outputs_count = 1,
                        .number = number,
                        .uncertain = uncertain};

    fixture_restore(f, (struct record){.type = RECORD_TICK, .u.tick = tick});
}

/* An earlier leader whose last Tick is number 40; 38 to 40 are uncertain. */
static int setup(void **state)
{
    static struct fixture fixture;
    struct scheduler_config config = fixture_config();

    config.trim_requests = true;
    fixture_open(&fixture, &config);
    fixture_takeover(&fixture);
    *state = &fixture;
    return 0;
}

static int teardown(void **state)
{
    fixture_close(*state);
    return 0;
}

/* Of request number at offset number, with two attempts of which one killed its worker. */
static struct done_mark mark_of(uint32_t number, int64_t tick)
{
    return (struct done_mark){
        .request_id = id_of(number),
        .body_hash = {1},
        .finished_ms = 1700000000000,
        .service_class = CLASS_BULK,
        .offset = number,
        .attempt = 2,
        .crashes = 1,
        .admitted_ms = admitted_ms,
        .tick = tick,
        .uncertain = UNCERTAIN,
    };
}

static void restore_mark(struct fixture *f, const struct done_mark *mark)
{
    fixture_restore(f, (struct record){.type = RECORD_DONE_MARK, .u.done_mark = *mark});
}

static void restore_result(struct fixture *f, uint32_t number)
{
    struct result result = {.request_id = id_of(number),
                            .tenant = str_from("t"),
                            .admitted_ms = admitted_ms,
                            .finished_ms = f->now_ms - 60000,
                            .usage = {.output_tokens = 4}};

    fixture_restore(f, (struct record){.type = RECORD_RESULT, .u.result = result});
}

static void restore_usage(struct fixture *f, uint32_t number)
{
    struct usage usage = {.request_id = id_of(number), .tenant = str_from("t")};

    fixture_restore(f, (struct record){.type = RECORD_USAGE, .u.usage = usage});
}

/* One mark of the last tick, for the request at offset 3. */
static void one_mark(struct fixture *f)
{
    struct done_mark mark = mark_of(3, TICK);

    restore_mark(f, &mark);
    restore_tick(f, TICK, UNCERTAIN);
}

static void assert_torn(const struct fixture *f, uint64_t requests, uint64_t marks, uint64_t usages)
{
    struct scheduler_torn torn = gauges_of(f).torn;

    assert_int_equal(torn.requests, requests);
    assert_int_equal(torn.marks, marks);
    assert_int_equal(torn.usages, usages);
}

static struct request request_at(struct fixture *f, uint32_t number)
{
    struct request request = request_of(number);

    request.service_class = CLASS_BULK;
    f->request_offset[CLASS_BULK] = number;
    return request;
}

static void reread(struct fixture *f, uint32_t number)
{
    struct request request = request_at(f, number);

    fixture_send_request(f, &request);
}

/* ---- the mark is there ---- */

static void a_mark_without_result_runs_again(void **state)
{
    struct fixture *f = *state;
    const struct in_flight *entry;

    one_mark(f);
    fixture_restored(f);
    assert_torn(f, 1, 0, 0);
    entry = &record_at(f, RECORD_IN_FLIGHT, 0)->u.in_flight;
    assert_true(str_equal(entry->topic, str_from("requests.bulk")));
    assert_int_equal(entry->offset, 3);
    assert_int_equal(entry->attempt, 2);
    assert_int_equal(entry->crashes, 1);
    assert_int_equal(entry->admitted_ms, admitted_ms);
    assert_int_equal(gauges_of(f).done_marks, 0);
    assert_int_equal(scheduler_start_offset(f->core, TOPIC_REQUESTS_BULK, 0), 3);

    reread(f, 3);
    fixture_hello(f, 0, 101);
    fixture_tick(f, 20);
    assert_int_equal(record_at(f, RECORD_ASSIGNMENT, 0)->u.assignment.attempt, 3);
    assert_int_equal(tick_offset(f, TOPIC_REQUESTS_BULK, 0), BULK_NEXT); /* does not go back */
    fixture_commit(f);
    fixture_done(f, 0, 101, 3, 3, ids, 4);
    fixture_tick(f, 20);
    assert_int_equal(count_records(f, RECORD_RESULT), 1);
    assert_int_equal(record_at(f, RECORD_RESULT, 0)->u.result.admitted_ms, admitted_ms);
    assert_int_equal(record_at(f, RECORD_USAGE, 0)->u.usage.admitted_ms, admitted_ms);
    assert_int_equal(record_at(f, RECORD_DONE_MARK, 0)->u.done_mark.tick, TICK + 2);
    assert_int_equal(record_at(f, RECORD_DONE_MARK, 0)->u.done_mark.attempt, 3);
}

static void a_mark_without_usage_gets_it_from_the_result(void **state)
{
    struct fixture *f = *state;

    one_mark(f);
    restore_result(f, 3);
    fixture_restored(f);
    assert_torn(f, 0, 0, 1);
    assert_int_equal(count_records(f, RECORD_USAGE), 1);
    assert_int_equal(record_at(f, RECORD_USAGE, 0)->u.usage.admitted_ms, admitted_ms);
    assert_int_equal(record_at(f, RECORD_USAGE, 0)->u.usage.usage.output_tokens, 4);
    assert_int_equal(count_records(f, RECORD_IN_FLIGHT), 0);
    assert_int_equal(count_records(f, RECORD_DONE_MARK), 0);
}

/* Partitions tear one by one: each request by itself. A Usage alone is no outcome. */
static void nothing_is_done_twice(void **state)
{
    struct fixture *f = *state;

    for (uint32_t number = 3; number <= 6; number++) {
        struct done_mark mark = mark_of(number, TICK);
        restore_mark(f, &mark);
    }
    restore_tick(f, TICK, UNCERTAIN);
    restore_usage(f, 3);
    restore_result(f, 3);
    restore_result(f, 4);
    restore_usage(f, 5);
    fixture_restored(f);
    assert_torn(f, 2, 0, 1);
    assert_int_equal(count_records(f, RECORD_IN_FLIGHT), 2);
    assert_int_equal(record_at(f, RECORD_USAGE, 0)->u.usage.request_id.bytes[15], 4);
}

static void certain_marks_are_believed(void **state)
{
    struct fixture *f = *state;
    struct done_mark mark = mark_of(3, 0); /* of a version that wrote no number */

    restore_mark(f, &mark);
    mark = mark_of(4, TICK - UNCERTAIN);
    restore_mark(f, &mark);
    mark = mark_of(5, TICK - UNCERTAIN + 1);
    restore_mark(f, &mark);
    restore_tick(f, TICK, UNCERTAIN);
    fixture_restored(f);
    assert_torn(f, 1, 0, 0);
    assert_int_equal(record_at(f, RECORD_IN_FLIGHT, 0)->u.in_flight.offset, 5);
}

/* Of a torn tick the Tick record may be missing: its marks tell as much. */
static void marks_move_the_bound_too(void **state)
{
    struct fixture *f = *state;
    struct done_mark mark = mark_of(3, TICK);

    restore_mark(f, &mark);
    restore_tick(f, TICK, UNCERTAIN);
    mark = mark_of(4, TICK + 1);
    mark.uncertain = 1;
    restore_mark(f, &mark);
    fixture_restored(f);
    assert_torn(f, 1, 0, 0);
    assert_int_equal(record_at(f, RECORD_IN_FLIGHT, 0)->u.in_flight.offset, 4);
}

static void what_the_state_has_overtaken_is_left(void **state)
{
    struct fixture *f = *state;
    struct in_flight again = {
        .request_id = id_of(3), .topic = str_from("requests.bulk"), .offset = 3, .attempt = 2};
    struct event deleted = {.type = EVENT_RESTORE_DELETED, .id = id_of(4)};
    struct done_mark mark = mark_of(3, TICK);

    restore_mark(f, &mark);
    fixture_restore(f, (struct record){.type = RECORD_IN_FLIGHT, .u.in_flight = again});
    mark = mark_of(4, TICK);
    restore_mark(f, &mark);
    fixture_step(f, &deleted);
    restore_tick(f, TICK, UNCERTAIN);
    fixture_restored(f);
    assert_torn(f, 0, 0, 0);
    assert_int_equal(f->actions.count, 0);
    assert_int_equal(scheduler_start_offset(f->core, TOPIC_REQUESTS_BULK, 0), 3);
}

/* Results that retention has deleted are not missing. */
static void what_is_gone_proves_nothing(void **state)
{
    struct fixture *f = *state;
    struct event gone = {.type = EVENT_RESTORE_GONE};
    struct done_mark mark = mark_of(4, TICK);

    restore_mark(f, &mark);
    one_mark(f);
    fixture_step(f, &gone);
    restore_result(f, 4);
    fixture_restored(f);
    assert_torn(f, 0, 0, 0);
    assert_int_equal(gauges_of(f).done_marks, 2);
}

/* ---- outcomes of the scheduler's own ---- */

static void what_had_expired_expires_again(void **state)
{
    struct fixture *f = *state;
    struct request request = request_at(f, 3);

    one_mark(f);
    fixture_restored(f);
    fixture_hello(f, 0, 101);
    request.deadline_ms = f->now_ms;
    fixture_send_request(f, &request);
    fixture_tick(f, 20);
    assert_int_equal(count_records(f, RECORD_ASSIGNMENT), 0);
    assert_int_equal(record_at(f, RECORD_RESULT, 0)->u.result.status, RESULT_EXPIRED);
}

static void what_was_cancelled_is_cancelled_again(void **state)
{
    struct fixture *f = *state;

    one_mark(f);
    fixture_restored(f);
    fixture_cancel(f, "t", "b"); /* control is read before requests are */
    reread(f, 3);
    assert_int_equal(record_at(f, RECORD_RESULT, 0)->u.result.status, RESULT_CANCELLED);
}

static void what_nobody_served_is_refused_again(void **state)
{
    struct fixture *f = *state;
    struct done_mark mark = mark_of(3, TICK);
    struct request request = request_at(f, 3);

    mark.attempt = mark.crashes = 0;
    restore_mark(f, &mark);
    restore_tick(f, TICK, UNCERTAIN);
    fixture_restored(f);
    request.model = str_from("nobody");
    fixture_send_request(f, &request);
    fixture_hello(f, 0, 101);
    for (int i = 0; i < 12; i++) {
        fixture_heartbeat(f, 0, 101, NULL, 0);
        fixture_tick_commit(f, 1000);
    }
    assert_int_equal(gauges_of(f).results_total[RESULT_FAILED], 1);
    assert_int_equal(gauges_of(f).classes[CLASS_BULK].waiting_requests, 0);
}

static void what_killed_its_workers_kills_no_more(void **state)
{
    struct fixture *f = *state;
    struct done_mark mark = mark_of(3, TICK);

    mark.crashes = f->config.crashes_max;
    restore_mark(f, &mark);
    restore_tick(f, TICK, UNCERTAIN);
    fixture_restored(f);
    fixture_hello(f, 0, 101);
    reread(f, 3);
    fixture_tick(f, 20);
    assert_int_equal(count_records(f, RECORD_ASSIGNMENT), 0);
    assert_int_equal(count_actions(f, ACTION_DEAD_LETTER), 1); /* may be the second */
    assert_int_equal(record_at(f, RECORD_RESULT, 0)->u.result.status, RESULT_FAILED);
}

/* ---- the mark is not there ---- */

static void a_result_without_mark_is_marked(void **state)
{
    struct fixture *f = *state;
    struct in_flight entry = {.request_id = id_of(3),
                              .topic = str_from("requests.bulk"),
                              .offset = 3,
                              .attempt = 2,
                              .admitted_ms = admitted_ms};
    const struct done_mark *mark;

    fixture_restore(f, (struct record){.type = RECORD_IN_FLIGHT, .u.in_flight = entry});
    restore_tick(f, TICK, UNCERTAIN);
    restore_result(f, 3);
    restore_usage(f, 3);
    restore_result(f, 4); /* never assigned: expired, say */
    fixture_restored(f);
    assert_torn(f, 0, 2, 1);
    for (size_t i = 0; i < 2; i++) {
        mark = &record_at(f, RECORD_DONE_MARK, i)->u.done_mark;
        assert_int_equal(mark->offset, mark->request_id.bytes[15] == 3 ? 3 : -1);
        assert_int_equal(mark->tick, TICK + 1);
    }
    assert_int_equal(record_at(f, RECORD_USAGE, 0)->u.usage.request_id.bytes[15], 4);
    assert_int_equal(gauges_of(f).done_marks, 2);
    assert_int_equal(scheduler_start_offset(f->core, TOPIC_REQUESTS_BULK, 0), BULK_NEXT);
}

static void a_result_whose_mark_is_forgotten_stays(void **state)
{
    struct fixture *f = *state;

    restore_tick(f, TICK, UNCERTAIN);
    restore_result(f, 3);
    f->now_ms += f->config.dedupe_window_ms;
    fixture_restored(f);
    assert_torn(f, 0, 0, 0);
}

/* The next leader reads the outputs from before; a mark without offset needs its Usage alone. */
static void what_was_settled_is_torn_again(void **state)
{
    struct fixture *f = *state;
    struct done_mark mark = mark_of(4, TICK + 1);

    mark.offset = -1;
    restore_tick(f, TICK, UNCERTAIN);
    restore_mark(f, &mark);
    restore_result(f, 4);
    fixture_restored(f);
    assert_torn(f, 0, 0, 1);
}

static void a_worker_time_without_mark_counts(void **state)
{
    struct fixture *f = *state;
    struct worker_time time = {.incarnation = id_of(101), .from_ms = 1000, .to_ms = 5000};

    fixture_restore(
        f, (struct record){.type = RECORD_WORKER_MARK, .u.worker_mark = {hello_of(0, 101), 1000}});
    restore_tick(f, TICK, UNCERTAIN);
    fixture_restore(f, (struct record){.type = RECORD_WORKER_TIME, .u.worker_time = time});
    time.incarnation = id_of(102); /* of an earlier one in the slot */
    time.to_ms = 6000;
    fixture_restore(f, (struct record){.type = RECORD_WORKER_TIME, .u.worker_time = time});
    fixture_restored(f);
    fixture_heartbeat(f, 0, 101, NULL, 0);
    fixture_goodbye(f, 0, 101);
    assert_int_equal(record_at(f, RECORD_WORKER_TIME, 0)->u.worker_time.from_ms, 5000);
}

/* ---- what is certain ---- */

static const struct tick *ticked(struct fixture *f, int64_t ms)
{
    fixture_heartbeat(f, 0, 101, NULL, 0);
    fixture_tick(f, ms);
    return &record_at(f, RECORD_TICK, 0)->u.tick;
}

/* The repairs of this term may be torn, too: its first Tick names what the last one did. */
static void outputs_are_named_when_they_are_certain(void **state)
{
    struct fixture *f = *state;
    struct event end = {.type = EVENT_OUTPUT_END, .position = {TOPIC_RESULTS, 0, RESULTS_END + 5}};
    const struct tick *tick;

    restore_tick(f, TICK, UNCERTAIN);
    fixture_restored(f);
    fixture_step(f, &end);
    fixture_hello(f, 0, 101);
    tick = ticked(f, 20);
    assert_int_equal(tick->number, TICK + 1);
    assert_int_equal(tick->uncertain, 4);
    assert_int_equal(tick->outputs[0].offset, RESULTS_END);
    fixture_commit(f);
    tick = ticked(f, 2000); /* from this tick on, all is behind the end as it is now */
    assert_int_equal(tick->uncertain, 5);
    assert_int_equal(tick->outputs[0].offset, RESULTS_END);
    fixture_commit(f);
    end.position.offset = RESULTS_END + 9;
    fixture_step(f, &end);
    tick = ticked(f, 1000);
    assert_int_equal(tick->uncertain, 6);
    assert_int_equal(tick->outputs[0].offset, RESULTS_END);
    fixture_commit(f);
    tick = ticked(f, 1000);
    assert_int_equal(tick->number, TICK + 4);
    assert_int_equal(tick->uncertain, 3); /* TICK + 2 and later */
    assert_int_equal(tick->outputs_count, 1);
    assert_int_equal(tick->outputs[0].offset, RESULTS_END + 5);
}

static void requests_are_kept_until_their_end_is_certain(void **state)
{
    struct fixture *f = *state;

    restore_tick(f, TICK, UNCERTAIN);
    fixture_restored(f);
    fixture_hello(f, 0, 101);
    reread(f, BULK_NEXT);
    fixture_tick_commit(f, 20);
    fixture_done(f, 0, 101, BULK_NEXT, 1, ids, 1);
    ticked(f, 2000); /* ends in this tick */
    assert_int_equal(count_records(f, RECORD_RESULT), 1);
    fixture_commit(f);
    ticked(f, 2000); /* until which it may not be trimmed */
    assert_int_equal(action_at(f, ACTION_TRIM, 0)->position.offset, BULK_NEXT);
    fixture_commit(f);
    ticked(f, 2000);
    assert_int_equal(count_actions(f, ACTION_TRIM), 0); /* twice a minute is enough */
    fixture_commit(f);
    ticked(f, 30000);
    assert_int_equal(action_at(f, ACTION_TRIM, 0)->position.offset, BULK_NEXT + 1);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_mark_without_result_runs_again),
        TEST(a_mark_without_usage_gets_it_from_the_result),
        TEST(nothing_is_done_twice),
        TEST(certain_marks_are_believed),
        TEST(marks_move_the_bound_too),
        TEST(what_the_state_has_overtaken_is_left),
        TEST(what_is_gone_proves_nothing),
        TEST(what_had_expired_expires_again),
        TEST(what_was_cancelled_is_cancelled_again),
        TEST(what_nobody_served_is_refused_again),
        TEST(what_killed_its_workers_kills_no_more),
        TEST(a_result_without_mark_is_marked),
        TEST(a_result_whose_mark_is_forgotten_stays),
        TEST(what_was_settled_is_torn_again),
        TEST(a_worker_time_without_mark_counts),
        TEST(outputs_are_named_when_they_are_certain),
        TEST(requests_are_kept_until_their_end_is_certain),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
