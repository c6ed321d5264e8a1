/* SPDX-License-Identifier: Apache-2.0
 *
 * What time and fullness bring: deadlines, cancels, pauses, renewals, housekeeping.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "schemas/codec.h"
#include "tests/unit/scheduler_fixture.h"

#define assert_str(got, expected) assert_true(str_equal(got, str_from(expected)))

static const int32_t ids[] = {11, 12, 13, 14};

static int setup(void **state)
{
    static struct fixture fixture;
    struct scheduler_config config = fixture_config();

    fixture_open(&fixture, &config);
    *state = &fixture;
    return 0;
}

static int teardown(void **state)
{
    fixture_close(*state);
    return 0;
}

/* The same with another configuration, in the middle of a test. */
static void reopen(struct fixture *f, const struct scheduler_config *config)
{
    fixture_close(f);
    fixture_open(f, config);
}

static size_t assigned(const struct fixture *f)
{
    return count_records(f, RECORD_ASSIGNMENT);
}

static uint32_t assigned_number(const struct fixture *f, size_t nth)
{
    return record_at(f, RECORD_ASSIGNMENT, nth)->u.assignment.request.request_id.bytes[15];
}

static void deadlines_end_requests(void **state)
{
    struct fixture *f = *state;
    struct request request = request_of(1);

    fixture_hello(f, 0, 101);
    request.deadline_ms = f->now_ms + 1000;
    fixture_send_request(f, &request); /* will be running */
    fixture_tick_commit(f, 20);
    fixture_progress(f, 0, 101, 1, 1, 0, ids, 2);
    request = request_of(2);
    request.model = str_from("other");
    request.deadline_ms = f->now_ms + 500;
    fixture_send_request(f, &request); /* will be waiting */
    request = request_of(3);
    request.deadline_ms = f->now_ms;
    fixture_send_request(f, &request); /* is late */
    assert_int_equal(record_at(f, RECORD_RESULT, 0)->u.result.status, RESULT_EXPIRED);
    fixture_tick(f, 600);
    assert_int_equal(count_records(f, RECORD_RESULT), 2);
    assert_int_equal(count_records(f, RECORD_CANCEL), 0);
    assert_int_equal(tick_offset(f, TOPIC_REQUESTS_INTERACTIVE, 0), 3);
    fixture_commit(f);
    fixture_tick(f, 400);
    assert_int_equal(record_at(f, RECORD_CANCEL, 0)->u.cancel.request_id.bytes[15], 1);
    assert_str(record_at(f, RECORD_RESULT, 0)->u.result.failure.code, "batch_expired");
    assert_int_equal(record_at(f, RECORD_USAGE, 0)->u.usage.usage.output_tokens, 2);
    fixture_commit(f);
    fixture_done(f, 0, 101, 1, 1, ids, 2); /* too late */
    assert_int_equal(f->actions.count, 0);
}

static void cancel_ends_a_batch_and_what_comes_of_it(void **state)
{
    struct fixture *f = *state;
    struct request request = request_of(1);

    fixture_hello(f, 0, 101);
    fixture_send_request(f, &request);
    fixture_tick_commit(f, 20);
    request = request_of(2);
    request.model = str_from("other");
    fixture_send_request(f, &request);
    request.request_id = id_of(3);
    request.tenant = str_from("somebody else");
    fixture_send_request(f, &request);
    fixture_cancel(f, "t", "b");
    fixture_tick(f, 20);
    assert_int_equal(count_records(f, RECORD_RESULT), 2);
    assert_int_equal(count_records(f, RECORD_CANCEL), 1);
    assert_str(record_at(f, RECORD_RESULT, 0)->u.result.failure.code, "batch_cancelled");
    assert_int_equal(tick_offset(f, TOPIC_CONTROL, 0), 1);
    fixture_commit(f);
    fixture_request(f, 4);
    assert_int_equal(record_at(f, RECORD_RESULT, 0)->u.result.status, RESULT_CANCELLED);
    fixture_tick_commit(f, 20);
    assert_int_equal(gauges_of(f).classes[CLASS_INTERACTIVE].waiting_requests, 1);
}

static void a_large_cancel_takes_several_ticks(void **state)
{
    struct fixture *f = *state;

    for (uint32_t i = 1; i <= 3000; i++)
        fixture_request(f, i);
    fixture_cancel(f, "t", "b");
    fixture_tick(f, 20);
    assert_int_equal(count_records(f, RECORD_RESULT), 2000);
    fixture_commit(f);
    fixture_tick(f, 20);
    assert_int_equal(count_records(f, RECORD_RESULT), 1000);
}

static void interactive_before_bulk_and_tenants_in_turn(void **state)
{
    struct fixture *f = *state;
    struct request request;

    for (uint32_t i = 1; i <= 6; i++) { /* bulk: 1..6 */
        request = request_of(i);
        request.service_class = CLASS_BULK;
        request.body = str_from("{\"max_tokens\":4000}");
        request.tenant = str_from(i <= 4 ? "greedy" : "modest");
        fixture_send_request(f, &request);
    }
    fixture_request(f, 7); /* interactive */
    fixture_hello(f, 0, 101);
    fixture_tick(f, 20);
    assert_int_equal(assigned(f), 4);
    assert_int_equal(assigned_number(f, 0), 7);
    assert_false(record_at(f, RECORD_ASSIGNMENT, 1)->u.assignment.stream); /* bulk, AUTO */
    assert_int_equal(assigned_number(f, 1) + assigned_number(f, 2), 1 + 5);
    assert_int_equal(tick_offset(f, TOPIC_REQUESTS_BULK, 0), assigned_number(f, 3) == 2 ? 2 : 1);
}

static void workers_are_filled_evenly(void **state)
{
    struct fixture *f = *state;
    struct scheduler_worker_gauges worker;

    f->config.batch.base = 4;
    fixture_hello(f, 0, 101);
    fixture_hello(f, 1, 102);
    for (uint32_t i = 1; i <= 6; i++)
        fixture_request(f, i);
    fixture_tick_commit(f, 20);
    for (uint32_t slot = 0; slot < 2; slot++) {
        assert_true(scheduler_worker_gauges(f->core, slot, &worker));
        assert_int_equal(worker.in_flight, 3);
        assert_int_equal(worker.batch_size, 4);
    }
    assert_false(scheduler_worker_gauges(f->core, 2, &worker));
    for (uint32_t i = 7; i <= 12; i++)
        fixture_request(f, i);
    fixture_tick(f, 20);
    assert_int_equal(assigned(f), 2); /* 4 + 4 and no more */
}

static void ahead_of_the_batch(void **state)
{
    struct fixture *f = *state;
    struct scheduler_config config = fixture_config();

    config.assign_ahead_percent = 50;
    reopen(f, &config);
    fixture_hello(f, 0, 101);
    for (uint32_t i = 1; i <= 9; i++)
        fixture_request(f, i);
    fixture_tick(f, 20);
    assert_int_equal(assigned(f), 6);
}

static void never_over_the_kv_cache(void **state)
{
    struct fixture *f = *state;
    struct record hello = {.type = RECORD_HELLO, .u.hello = hello_of(0, 101)};
    struct request request;

    hello.u.hello.kv_tokens = 1000;
    fixture_worker(f, 0, hello);
    for (uint32_t i = 1; i <= 3; i++) {
        request = request_of(i);
        request.body = str_from(i == 2 ? "{\"max_tokens\":900}" : "{\"max_tokens\":400}");
        fixture_send_request(f, &request);
    }
    fixture_tick(f, 20); /* 2 does not fit beside 1; 3 would, and does not pass it by */
    assert_int_equal(assigned(f), 1);
    fixture_commit(f);
    fixture_done(f, 0, 101, 1, 1, ids, 1);
    fixture_tick(f, 20);
    assert_int_equal(assigned(f), 1);
    assert_int_equal(assigned_number(f, 0), 2);
}

static void a_prefix_goes_on_with_the_same_numerics(void **state)
{
    struct fixture *f = *state;
    struct record other = {.type = RECORD_HELLO, .u.hello = hello_of(1, 102)};

    fixture_hello(f, 0, 101);
    fixture_request(f, 1);
    fixture_tick_commit(f, 20);
    fixture_progress(f, 0, 101, 1, 1, 0, ids, 2);
    fixture_goodbye(f, 0, 101);
    other.u.hello.numerics_id = str_from("bf16/y");
    fixture_worker(f, 1, other);
    fixture_tick_commit(f, 20);
    fixture_tick(f, 1000);
    assert_int_equal(assigned(f), 0);
    fixture_hello(f, 2, 103);
    fixture_tick(f, 20);
    assert_int_equal(assigned(f), 1);
    assert_int_equal(action_at(f, ACTION_SEND, count_actions(f, ACTION_SEND) - 2)->partition, 2);
}

static void a_full_house_pauses(void **state)
{
    struct fixture *f = *state;
    struct scheduler_config config = fixture_config();
    static char body[1000];
    struct request request;

    config.waiting_size_max = 8000; /* bulk: 6000 */
    reopen(f, &config);
    memset(body, ' ', sizeof body);
    for (uint32_t i = 1; i <= 6; i++) {
        request = request_of(i);
        request.service_class = CLASS_BULK;
        request.body = (struct str){body, sizeof body};
        fixture_send_request(f, &request);
    }
    fixture_tick(f, 20);
    assert_int_equal(count_actions(f, ACTION_PAUSE), 1);
    assert_int_equal(action_at(f, ACTION_PAUSE, 0)->position.topic, TOPIC_REQUESTS_BULK);
    assert_int_equal(count_records(f, RECORD_TICK), 0); /* a pause is no message */
    fixture_commit(f);
    fixture_tick(f, 20);
    assert_int_equal(f->actions.count, 0);
    for (uint32_t i = 7; i <= 9; i++) {
        request = request_of(i);
        request.body = (struct str){body, sizeof body};
        fixture_send_request(f, &request);
    }
    fixture_tick(f, 20);
    assert_int_equal(action_at(f, ACTION_PAUSE, 0)->position.topic, TOPIC_REQUESTS_INTERACTIVE);
    fixture_commit(f);
    fixture_hello(f, 0, 101);
    fixture_tick(f, 20); /* the interactive three and one bulk are assigned: 5 wait */
    assert_int_equal(assigned(f), 4);
    assert_int_equal(count_actions(f, ACTION_RESUME), 1);
    fixture_commit(f);
    fixture_done(f, 0, 101, 7, 1, ids, 1);
    fixture_tick(f, 20);
    assert_int_equal(action_at(f, ACTION_RESUME, 0)->position.topic, TOPIC_REQUESTS_BULK);
    assert_int_equal(gauges_of(f).waiting_size, 4 * (72 + 1000 + 1));
}

static void done_marks_end_with_the_window(void **state)
{
    struct fixture *f = *state;
    int64_t window_ms = f->config.dedupe_window_ms;

    fixture_hello(f, 0, 101);
    fixture_request(f, 1);
    fixture_tick_commit(f, 20);
    fixture_done(f, 0, 101, 1, 1, ids, 1);
    fixture_tick_commit(f, 20);
    fixture_tick(f, window_ms - 1000);
    assert_int_equal(count_actions(f, ACTION_TOMBSTONE), 0);
    fixture_commit(f);
    fixture_tick_commit(f, 3000); /* what is certain now has an effect at the next one */
    fixture_tick(f, 20);
    assert_int_equal(action_at(f, ACTION_TOMBSTONE, 0)->id.bytes[15], 1);
    assert_int_equal(count_records(f, RECORD_TICK), 1);
    assert_int_equal(gauges_of(f).done_marks, 0);
}

static void marks_behind_a_waiting_request_stay(void **state)
{
    struct fixture *f = *state;
    struct request request = request_of(1);

    request.model = str_from("other"); /* waits: no worker lives by then */
    fixture_send_request(f, &request);
    fixture_hello(f, 0, 101);
    fixture_request(f, 2);
    fixture_tick_commit(f, 20);
    fixture_done(f, 0, 101, 2, 1, ids, 1);
    fixture_goodbye(f, 0, 101);
    fixture_tick_commit(f, 20);
    fixture_tick(f, 2 * f->config.dedupe_window_ms);
    assert_int_equal(count_actions(f, ACTION_TOMBSTONE), 0);
}

/* A few offsets of one slow request among 50,000 fast ones: nothing stalls, nothing is lost. */
static void one_slow_among_many(void **state)
{
    struct fixture *f = *state;
    struct scheduler_config config = fixture_config();
    struct request slow = request_of(1);

    config.batch.base = 64;
    reopen(f, &config);
    slow.model = str_from("other");
    fixture_send_request(f, &slow);
    fixture_hello(f, 0, 101);
    for (uint32_t i = 2; i < 50000; i += 50) {
        for (uint32_t k = i; k < i + 50; k++)
            fixture_request(f, k);
        fixture_tick(f, 1);
        assert_int_equal(assigned(f), 50);
        assert_int_equal(tick_offset(f, TOPIC_REQUESTS_INTERACTIVE, 0), 0);
        fixture_commit(f);
        for (uint32_t k = i; k < i + 50; k++)
            fixture_done(f, 0, 101, k, 1, ids, 1);
    }
    fixture_tick_commit(f, 1);
    assert_int_equal(gauges_of(f).done_marks, 50000);
    assert_int_equal(gauges_of(f).classes[CLASS_INTERACTIVE].waiting_requests, 1);
    slow.request_id = id_of(60000);
    slow.deadline_ms = 1;
    fixture_send_request(f, &slow);
    fixture_cancel(f, "t", "b");
    fixture_tick(f, 1);
    assert_int_equal(tick_offset(f, TOPIC_REQUESTS_INTERACTIVE, 0), 50002);
}

static void worker_time_is_consecutive(void **state)
{
    struct fixture *f = *state;
    int64_t start_ms = f->now_ms;
    const struct worker_time *time;

    fixture_hello(f, 0, 101);
    fixture_tick_commit(f, 20);
    for (int i = 0; i < 59; i++) {
        fixture_heartbeat(f, 0, 101, NULL, 0);
        fixture_tick(f, 1000);
        assert_int_equal(count_records(f, RECORD_WORKER_TIME), 0);
        fixture_commit(f);
    }
    fixture_heartbeat(f, 0, 101, NULL, 0); /* sent 59.02 s after the Hello */
    fixture_tick(f, 1000);
    time = &record_at(f, RECORD_WORKER_TIME, 0)->u.worker_time;
    assert_int_equal(time->from_ms, start_ms);
    assert_int_equal(time->to_ms, start_ms + 59020);
    assert_int_equal(record_at(f, RECORD_WORKER_MARK, 0)->u.worker_mark.worker_time_to_ms,
                     start_ms + 59020);
    fixture_commit(f);
    f->now_ms += 500;
    fixture_goodbye(f, 0, 101);
    time = &record_at(f, RECORD_WORKER_TIME, 0)->u.worker_time;
    assert_int_equal(time->from_ms, start_ms + 59020);
    assert_int_equal(time->to_ms, start_ms + 60520);
}

static void a_dead_workers_time_ends_with_its_last_heartbeat(void **state)
{
    struct fixture *f = *state;
    int64_t start_ms = f->now_ms;

    fixture_hello(f, 0, 101);
    fixture_tick_commit(f, 500);
    fixture_heartbeat(f, 0, 101, NULL, 0);
    fixture_tick_commit(f, 20);
    fixture_tick_commit(f, 3502);
    fixture_events_end(f, 0);
    assert_int_equal(record_at(f, RECORD_WORKER_TIME, 0)->u.worker_time.from_ms, start_ms);
    assert_int_equal(record_at(f, RECORD_WORKER_TIME, 0)->u.worker_time.to_ms, start_ms + 500);
}

static void held_and_not_given_is_cancelled(void **state)
{
    struct fixture *f = *state;
    const uint32_t running[] = {1, 2};

    fixture_hello(f, 0, 101);
    fixture_request(f, 1);
    fixture_tick_commit(f, 20);
    fixture_heartbeat(f, 0, 101, running, 2);
    assert_int_equal(count_records(f, RECORD_CANCEL), 1);
    assert_int_equal(record_at(f, RECORD_CANCEL, 0)->u.cancel.request_id.bytes[15], 2);
}

static void a_silent_worker_gets_nothing_new(void **state)
{
    struct fixture *f = *state;

    fixture_hello(f, 0, 101);
    fixture_tick_commit(f, 20);
    fixture_request(f, 1);
    fixture_tick(f, 2000); /* its lease still runs */
    assert_int_equal(assigned(f), 0);
    fixture_heartbeat(f, 0, 101, NULL, 0);
    fixture_tick(f, 20);
    assert_int_equal(assigned(f), 1);
}

static void trims_what_nobody_needs(void **state)
{
    struct fixture *f = *state;
    struct scheduler_config config = fixture_config();

    config.trim_requests = true;
    reopen(f, &config);
    fixture_hello(f, 0, 101);
    fixture_request(f, 1);
    fixture_request(f, 2);
    fixture_tick_commit(f, 20);
    fixture_done(f, 0, 101, 1, 1, ids, 1);
    fixture_tick_commit(f, 20);
    fixture_heartbeat(f, 0, 101, NULL, 0);
    fixture_tick(f, 2000);
    assert_int_equal(count_actions(f, ACTION_TRIM), 0); /* not certain, see test_scheduler_torn.c */
    fixture_commit(f);
    fixture_tick(f, 2000);
    assert_int_equal(count_actions(f, ACTION_TRIM), 0); /* no record of offsets beside it */
    fixture_heartbeat(f, 0, 101, NULL, 0);
    fixture_tick(f, 20);
    assert_int_equal(count_actions(f, ACTION_TRIM), 1);
    assert_int_equal(action_at(f, ACTION_TRIM, 0)->position.offset, 1); /* 2 is in flight */
}

static void offsets_that_moved_are_written_in_time(void **state)
{
    struct fixture *f = *state;

    fixture_tick_commit(f, 20);
    fixture_progress(f, 0, 101, 1, 1, 0, ids, 1); /* of nobody; it only moves the offset */
    fixture_tick(f, 5000);
    assert_int_equal(f->actions.count, 1);
    assert_int_equal(tick_offset(f, TOPIC_WORKER_EVENTS, 0), 1);
    fixture_commit(f);
    fixture_tick(f, 5000);
    assert_int_equal(f->actions.count, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(deadlines_end_requests),
        TEST(cancel_ends_a_batch_and_what_comes_of_it),
        TEST(a_large_cancel_takes_several_ticks),
        TEST(interactive_before_bulk_and_tenants_in_turn),
        TEST(workers_are_filled_evenly),
        TEST(ahead_of_the_batch),
        TEST(never_over_the_kv_cache),
        TEST(a_prefix_goes_on_with_the_same_numerics),
        TEST(a_full_house_pauses),
        TEST(done_marks_end_with_the_window),
        TEST(marks_behind_a_waiting_request_stay),
        TEST(one_slow_among_many),
        TEST(worker_time_is_consecutive),
        TEST(a_dead_workers_time_ends_with_its_last_heartbeat),
        TEST(held_and_not_given_is_cancelled),
        TEST(a_silent_worker_gets_nothing_new),
        TEST(trims_what_nobody_needs),
        TEST(offsets_that_moved_are_written_in_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
