/* SPDX-License-Identifier: Apache-2.0
 *
 * What a new leader makes of the state that an earlier one left.
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

enum { BULK_NEXT = 8, EVENTS_NEXT = 20 };

/* An earlier leader with epoch 5. Bulk request 1 at offset 3 and 2 at offset 9 run in slot 0 at
 * incarnation 101; all below 8 but offset 3 are finished, 7 among them with a mark. */
static int setup(void **state)
{
    static struct fixture fixture;
    struct scheduler_config config = fixture_config();
    const struct partition_offset next[] = {
        {str_from("requests.bulk"), 0, BULK_NEXT},
        {str_from("worker-events"), 0, EVENTS_NEXT},
    };
    struct in_flight in_flight = {
        .request_id = id_of(1),
        .topic = str_from("requests.bulk"),
        .offset = 3,
        .attempt = 2,
        .crashes = 1,
        .incarnation = id_of(101),
        .events_offset = 15,
        .prefix = {ids, 1},
        .admitted_ms = 1600000000000,
        .first_assigned_ms = 1600000001000,
    };

    fixture_open(&fixture, &config);
    fixture_takeover(&fixture);
    fixture_restore(&fixture, (struct record){.type = RECORD_WORKER_MARK,
                                              .u.worker_mark = {hello_of(0, 101), 1000}});
    fixture_restore(&fixture, (struct record){.type = RECORD_IN_FLIGHT, .u.in_flight = in_flight});
    in_flight.request_id = id_of(2);
    in_flight.offset = 9;
    in_flight.attempt = 1;
    in_flight.crashes = 0;
    in_flight.events_offset = 18;
    in_flight.prefix.count = 0;
    fixture_restore(&fixture, (struct record){.type = RECORD_IN_FLIGHT, .u.in_flight = in_flight});
    fixture_restore(&fixture, (struct record){.type = RECORD_DONE_MARK,
                                              .u.done_mark = {.request_id = id_of(7),
                                                              .body_hash = {1},
                                                              .finished_ms = 1700000000000}});
    fixture_restore(
        &fixture,
        (struct record){
            .type = RECORD_TICK,
            .u.tick = {.epoch = 5, .seq = 99, .next_input = next, .next_input_count = 2}});
    fixture.event_offset[0] = EVENTS_NEXT;
    *state = &fixture;
    return 0;
}

static int teardown(void **state)
{
    fixture_close(*state);
    return 0;
}

/* Request number, read again at this offset of the bulk topic. */
static void reread(struct fixture *f, uint32_t number, int64_t offset)
{
    struct request request = request_of(number);

    request.service_class = CLASS_BULK;
    f->request_offset[CLASS_BULK] = offset;
    fixture_send_request(f, &request);
}

static void starts_reading_where_it_must(void **state)
{
    struct fixture *f = *state;

    fixture_restored(f);
    assert_int_equal(scheduler_start_offset(f->core, TOPIC_REQUESTS_BULK, 0), 3);
    assert_int_equal(scheduler_start_offset(f->core, TOPIC_WORKER_EVENTS, 0), 15);
    assert_int_equal(scheduler_start_offset(f->core, TOPIC_WORKER_EVENTS, 1), -1);
    assert_int_equal(scheduler_start_offset(f->core, TOPIC_REQUESTS_INTERACTIVE, 0), -1);
    assert_int_equal(scheduler_start_offset(f->core, TOPIC_CONTROL, 0), -1);
    assert_int_equal(gauges_of(f).epoch, 6);
    assert_int_equal(gauges_of(f).in_flight, 2);
}

static void a_living_worker_is_adopted(void **state)
{
    struct fixture *f = *state;
    const uint32_t running[] = {2001, 2};
    const struct lease_renewal *renewal;

    fixture_restored(f);
    fixture_heartbeat(f, 0, 101, running, 2);
    fixture_tick(f, 20);
    renewal = &record_at(f, RECORD_LEASE_RENEWAL, 0)->u.lease_renewal;
    assert_int_equal(renewal->epoch, 6);
    assert_int_equal(count_records(f, RECORD_ASSIGNMENT), 0);
    assert_int_equal(count_records(f, RECORD_CANCEL), 0);
    /* Nothing is read of the topic yet: what state names stands. */
    assert_int_equal(tick_offset(f, TOPIC_REQUESTS_BULK, 0), BULK_NEXT);
    fixture_commit(f);

    /* The answer comes before the request is read again: the result waits for it. */
    fixture_done(f, 0, 101, 1, 2, ids, 3);
    assert_int_equal(count_records(f, RECORD_RESULT), 0);
    reread(f, 1, 3);
    assert_true(str_equal(record_at(f, RECORD_RESULT, 0)->u.result.tenant, str_from("t")));
    assert_int_equal(record_at(f, RECORD_RESULT, 0)->u.result.ids.count, 3);
    assert_int_equal(record_at(f, RECORD_RESULT, 0)->u.result.admitted_ms, 1600000000000);
    reread(f, 2, 9);
    fixture_done(f, 0, 101, 2, 1, ids, 3);
    fixture_tick(f, 20);
    assert_int_equal(count_records(f, RECORD_RESULT), 2);
    assert_int_equal(tick_offset(f, TOPIC_REQUESTS_BULK, 0), 10);
}

static void a_dead_worker_is_waited_for(void **state)
{
    struct fixture *f = *state;
    const struct assignment *again;

    fixture_restored(f);
    reread(f, 1, 3);
    reread(f, 2, 9);
    fixture_hello(f, 1, 102);
    fixture_tick_commit(f, 3400);
    fixture_heartbeat(f, 1, 102, NULL, 0);
    fixture_tick(f, 102);
    assert_int_equal(action_at(f, ACTION_READ_EVENTS, 0)->slot, 0);
    assert_int_equal(count_records(f, RECORD_ASSIGNMENT), 0);
    fixture_commit(f);
    fixture_events_end(f, 0);
    fixture_tick(f, 20);
    /* The second crash of request 1: it waits for a worker of its own. */
    again = &record_at(f, RECORD_ASSIGNMENT, 0)->u.assignment;
    assert_int_equal(count_records(f, RECORD_ASSIGNMENT), 1);
    assert_int_equal(again->attempt, 3);
    assert_int_equal(again->prefix.count, 1);
}

static void progress_is_replayed_and_nothing_else(void **state)
{
    struct fixture *f = *state;
    struct record goodbye = {.type = RECORD_GOODBYE, .u.goodbye = {0, id_of(101), 1}};

    fixture_restored(f);
    f->event_offset[0] = 15;
    fixture_progress(f, 0, 101, 1, 1, 0, ids, 4); /* of the first attempt */
    fixture_progress(f, 0, 101, 1, 2, 1, ids + 1, 2);
    fixture_failed(f, 0, 101, 1, 2, FAILURE_RETRY);
    fixture_worker(f, 0, goodbye);
    assert_int_equal(f->actions.count, 0);
    f->event_offset[0] = EVENTS_NEXT;
    reread(f, 1, 3);
    fixture_failed(f, 0, 101, 1, 2, FAILURE_RETRY);
    assert_int_equal(record_at(f, RECORD_IN_FLIGHT, 0)->u.in_flight.prefix.count, 3);
}

static void rereads_bring_nothing_twice(void **state)
{
    struct fixture *f = *state;

    fixture_restored(f);
    fixture_hello(f, 1, 102);
    reread(f, 1, 3);
    reread(f, 1, 4); /* a duplicate that the earlier leader has counted */
    reread(f, 6, 5); /* below the stored offset and unknown: its mark has expired */
    reread(f, 7, 7); /* done */
    reread(f, 2, 9);
    reread(f, 7, 10); /* new, and a duplicate */
    reread(f, 8, 11);
    fixture_tick(f, 20);
    assert_int_equal(count_records(f, RECORD_ASSIGNMENT), 1);
    assert_int_equal(record_at(f, RECORD_ASSIGNMENT, 0)->u.assignment.request.request_id.bytes[15],
                     8);
    assert_int_equal(gauges_of(f).duplicates_total, 1);
    assert_int_equal(tick_offset(f, TOPIC_REQUESTS_BULK, 0), 12);
}

static void a_result_without_mark_is_settled(void **state)
{
    struct fixture *f = *state;
    struct result result = {.request_id = id_of(2),
                            .tenant = str_from("t"),
                            .status = RESULT_COMPLETED,
                            .usage = {.output_tokens = 4}};
    struct usage usage = {.request_id = id_of(1), .tenant = str_from("t")};

    fixture_restore(f, (struct record){.type = RECORD_RESULT, .u.result = result});
    fixture_restore(f, (struct record){.type = RECORD_USAGE, .u.usage = usage});
    result.request_id = id_of(7); /* has its mark: nothing is missing */
    fixture_restore(f, (struct record){.type = RECORD_RESULT, .u.result = result});
    fixture_restored(f);
    assert_int_equal(count_records(f, RECORD_DONE_MARK), 1);
    assert_int_equal(record_at(f, RECORD_DONE_MARK, 0)->u.done_mark.request_id.bytes[15], 2);
    assert_int_equal(count_records(f, RECORD_USAGE), 1);
    assert_int_equal(record_at(f, RECORD_USAGE, 0)->u.usage.usage.output_tokens, 4);
    fixture_tick(f, 20);
    assert_int_equal(count_records(f, RECORD_TICK), 1);
    fixture_commit(f);
    fixture_done(f, 0, 101, 2, 1, ids, 1); /* the worker knows nothing of it */
    fixture_tick(f, 20);
    assert_int_equal(count_records(f, RECORD_RESULT), 0);
    assert_int_equal(gauges_of(f).in_flight, 1); /* a Usage alone settles nothing */
}

static void a_newer_hello_does_not_end_the_older_lease(void **state)
{
    struct fixture *f = *state;

    fixture_restored(f);
    reread(f, 1, 3);
    reread(f, 2, 9);
    fixture_hello(f, 0, 102);
    fixture_tick(f, 20);
    assert_int_equal(count_records(f, RECORD_ASSIGNMENT), 0);
    fixture_commit(f);
    fixture_done(f, 0, 101, 2, 1, ids, 2); /* still counts */
    assert_int_equal(count_records(f, RECORD_RESULT), 1);
    fixture_tick_commit(f, 3300);
    fixture_heartbeat(f, 0, 102, NULL, 0);
    fixture_tick(f, 200);
    assert_int_equal(count_actions(f, ACTION_READ_EVENTS), 1);
    fixture_commit(f);
    fixture_events_end(f, 0);
    fixture_tick_commit(f, 20);
    assert_int_equal(gauges_of(f).in_flight, 1); /* at the new one, alone after two crashes */
}

/* Or never had: of a torn transaction the InFlight entry may be there and the Assignment not. */
static void what_the_worker_lost_gets_another_attempt(void **state)
{
    struct fixture *f = *state;
    const uint32_t running[] = {2001};

    fixture_restored(f);
    reread(f, 1, 3);
    reread(f, 2, 9);
    for (int i = 0; i < 6; i++) {
        fixture_heartbeat(f, 0, 101, running, 1);
        fixture_tick(f, 1000);
        assert_int_equal(count_records(f, RECORD_ASSIGNMENT), 0);
        fixture_commit(f);
    }
    f->now_ms++;
    fixture_heartbeat(f, 0, 101, running, 1);
    fixture_tick(f, 20);
    assert_int_equal(count_records(f, RECORD_CANCEL), 1);
    assert_int_equal(record_at(f, RECORD_ASSIGNMENT, 0)->u.assignment.attempt, 2);
    assert_int_equal(record_at(f, RECORD_IN_FLIGHT, 1)->u.in_flight.crashes, 0);
}

static void tombstones_forget(void **state)
{
    struct fixture *f = *state;
    struct event event = {.type = EVENT_RESTORE_DELETED, .id = id_of(7)};

    fixture_step(f, &event);
    fixture_restored(f);
    assert_int_equal(gauges_of(f).done_marks, 0);
}

static void output_ends_are_named(void **state)
{
    struct fixture *f = *state;
    struct event end = {.type = EVENT_OUTPUT_END, .position = {TOPIC_RESULTS, 0, 41}};
    const struct tick *tick;

    fixture_restored(f);
    fixture_step(f, &end);
    end.position.offset = 42;
    fixture_step(f, &end);
    fixture_hello(f, 1, 102);
    fixture_tick(f, 20);
    tick = &record_at(f, RECORD_TICK, 0)->u.tick;
    assert_int_equal(tick->epoch, 6);
    assert_int_equal(tick->seq, 1);
    assert_int_equal(tick->outputs_count, 0); /* not certain yet, see test_scheduler_torn.c */
    for (int i = 0; i < 2; i++) {
        fixture_commit(f);
        fixture_heartbeat(f, 1, 102, NULL, 0);
        fixture_tick(f, 2000);
    }
    tick = &record_at(f, RECORD_TICK, 0)->u.tick;
    assert_int_equal(tick->outputs_count, 1);
    assert_true(str_equal(tick->outputs[0].topic, str_from("results")));
    assert_int_equal(tick->outputs[0].offset, 42);
    assert_int_equal(tick->seq, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(starts_reading_where_it_must, setup, teardown),
        cmocka_unit_test_setup_teardown(a_living_worker_is_adopted, setup, teardown),
        cmocka_unit_test_setup_teardown(a_dead_worker_is_waited_for, setup, teardown),
        cmocka_unit_test_setup_teardown(progress_is_replayed_and_nothing_else, setup, teardown),
        cmocka_unit_test_setup_teardown(rereads_bring_nothing_twice, setup, teardown),
        cmocka_unit_test_setup_teardown(a_result_without_mark_is_settled, setup, teardown),
        cmocka_unit_test_setup_teardown(a_newer_hello_does_not_end_the_older_lease, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_the_worker_lost_gets_another_attempt, setup, teardown),
        cmocka_unit_test_setup_teardown(tombstones_forget, setup, teardown),
        cmocka_unit_test_setup_teardown(output_ends_are_named, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
