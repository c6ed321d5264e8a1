/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of a request, step by step: intake, assignment, outcome, retries.
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

/* A worker with incarnation 101 in slot 0 that has requests 1..count in attempt 1, committed. */
static void with_running(struct fixture *f, uint32_t count)
{
    fixture_hello(f, 0, 101);
    for (uint32_t i = 1; i <= count; i++)
        fixture_request(f, i);
    fixture_tick_commit(f, 20);
}

/* Slot 0 falls silent, its lease runs out, its events are read: its worker is dead. */
static void worker_dies(struct fixture *f)
{
    fixture_tick(f, 3502);
    assert_int_equal(count_actions(f, ACTION_READ_EVENTS), 1);
    fixture_commit(f);
    fixture_events_end(f, 0);
}

static void request_to_result(void **state)
{
    struct fixture *f = *state;
    const struct in_flight *in_flight;
    const struct assignment *assignment;
    const struct result *result;
    const struct usage *usage;
    int64_t admitted_ms = f->now_ms;

    fixture_hello(f, 0, 101);
    fixture_request(f, 1);
    fixture_tick(f, 20);
    assert_int_equal(f->actions.count, 4); /* WorkerMark, InFlight, Assignment, Tick */
    in_flight = &record_at(f, RECORD_IN_FLIGHT, 0)->u.in_flight;
    assert_str(in_flight->topic, "requests.interactive");
    assert_int_equal(in_flight->offset, 0);
    assert_int_equal(in_flight->attempt, 1);
    assert_int_equal(in_flight->events_offset, 1); /* behind the Hello */
    assert_int_equal(in_flight->first_assigned_ms, f->now_ms);
    assignment = &record_at(f, RECORD_ASSIGNMENT, 0)->u.assignment;
    assert_int_equal(assignment->epoch, 1);
    assert_int_equal(assignment->attempt, 1);
    assert_int_equal(assignment->prefix.count, 0);
    assert_true(assignment->stream); /* interactive, STREAM_AUTO */
    assert_str(assignment->request.custom_id, "c");
    assert_int_equal(assignment->request.body_hash[0], 1);
    assert_int_equal(tick_offset(f, TOPIC_REQUESTS_INTERACTIVE, 0), 1);
    assert_int_equal(tick_offset(f, TOPIC_WORKER_EVENTS, 0), 1);
    assert_int_equal(tick_offset(f, TOPIC_REQUESTS_BULK, 0), -1); /* nothing known of it */
    fixture_commit(f);

    fixture_done(f, 0, 101, 1, 1, ids, 2);
    fixture_tick(f, 20);
    assert_int_equal(f->actions.count, 4); /* Result, Usage, DoneMark, Tick */
    result = &record_at(f, RECORD_RESULT, 0)->u.result;
    assert_int_equal(result->status, RESULT_COMPLETED);
    assert_str(result->text, "answer");
    assert_int_equal(result->ids.count, 2);
    assert_int_equal(result->attempt, 1);
    assert_str(result->hardware, "cpu-2");
    assert_int_equal(result->usage.prompt_tokens_uncached, 5);
    usage = &record_at(f, RECORD_USAGE, 0)->u.usage;
    assert_memory_equal(&usage->usage, &result->usage, sizeof usage->usage);
    assert_int_equal(usage->admitted_ms, admitted_ms);
    assert_int_equal(record_at(f, RECORD_DONE_MARK, 0)->u.done_mark.body_hash[0], 1);
    fixture_commit(f);

    fixture_tick(f, 20);
    assert_int_equal(f->actions.count, 0); /* an empty tick sends nothing */
    assert_int_equal(gauges_of(f).done_marks, 1);
    assert_int_equal(gauges_of(f).in_flight, 0);
}

static void same_id_counts_once(void **state)
{
    struct fixture *f = *state;

    fixture_request(f, 1);
    fixture_request(f, 1); /* waiting */
    fixture_hello(f, 0, 101);
    fixture_tick_commit(f, 20);
    fixture_request(f, 1); /* in flight */
    fixture_done(f, 0, 101, 1, 1, ids, 1);
    fixture_request(f, 1); /* done, in the same tick */
    fixture_tick(f, 20);
    assert_int_equal(count_records(f, RECORD_RESULT), 1);
    assert_int_equal(tick_offset(f, TOPIC_REQUESTS_INTERACTIVE, 0), 4);
    fixture_commit(f);
    fixture_request(f, 1); /* done, committed */
    fixture_tick(f, 20);
    assert_int_equal(count_records(f, RECORD_ASSIGNMENT), 0);
    assert_int_equal(gauges_of(f).duplicates_total, 4);
}

static void same_id_other_body_is_a_dead_letter(void **state)
{
    struct fixture *f = *state;
    struct request other = request_of(1);
    const struct action *letter;

    other.body_hash[0] = 2;
    fixture_request(f, 1);
    fixture_send_request(f, &other);
    letter = action_at(f, ACTION_DEAD_LETTER, 0);
    assert_memory_equal(letter->reason.data, "id_conflict", 11);
    assert_int_equal(letter->position.offset, 1);
    assert_int_equal(letter->record->u.request.body_hash[0], 2);

    fixture_hello(f, 0, 101);
    fixture_tick_commit(f, 20);
    fixture_done(f, 0, 101, 1, 1, ids, 1);
    fixture_tick_commit(f, 20);
    fixture_send_request(f, &other); /* the first one is done */
    assert_int_equal(count_actions(f, ACTION_DEAD_LETTER), 1);
    fixture_tick(f, 20);
    assert_int_equal(count_records(f, RECORD_RESULT), 0);
}

static void undecodable_bytes_are_a_dead_letter(void **state)
{
    struct fixture *f = *state;
    struct event event = {
        .type = EVENT_BAD_REQUEST,
        .position = {TOPIC_REQUESTS_INTERACTIVE, 0, f->request_offset[0]++},
        .raw = str_from("junk"),
        .key = str_from("k"),
        .reason = str_from("no schema"),
    };

    fixture_step(f, &event);
    fixture_request(f, 2);
    fixture_hello(f, 0, 101);
    fixture_tick(f, 20);
    assert_str(action_at(f, ACTION_DEAD_LETTER, 0)->raw, "junk");
    assert_int_equal(count_records(f, RECORD_ASSIGNMENT), 1); /* its neighbour is unharmed */
    assert_int_equal(tick_offset(f, TOPIC_REQUESTS_INTERACTIVE, 0), 2);
}

static void stored_offset_is_the_lowest_not_admitted(void **state)
{
    struct fixture *f = *state;
    struct request big = request_of(1);

    /* Request 1 needs a model that no worker has; 2 and 3 pass it by. */
    big.model = str_from("other");
    fixture_send_request(f, &big);
    fixture_request(f, 2);
    fixture_request(f, 3);
    fixture_hello(f, 0, 101);
    fixture_tick(f, 20);
    assert_int_equal(count_records(f, RECORD_ASSIGNMENT), 2);
    assert_int_equal(tick_offset(f, TOPIC_REQUESTS_INTERACTIVE, 0), 0);
}

static void unknown_model_fails_after_the_wait(void **state)
{
    struct fixture *f = *state;
    struct request other = request_of(1);
    const struct result *result;

    other.model = str_from("other");
    fixture_send_request(f, &other);
    fixture_tick_commit(f, 20000); /* no worker lives: everybody waits */
    assert_int_equal(gauges_of(f).results_total[RESULT_FAILED], 0);
    fixture_hello(f, 0, 101);
    fixture_tick_commit(f, 20);
    for (int i = 0; i < 10; i++) {
        fixture_heartbeat(f, 0, 101, NULL, 0);
        fixture_tick_commit(f, 1000);
    }
    fixture_heartbeat(f, 0, 101, NULL, 0);
    fixture_tick(f, 1);
    result = &record_at(f, RECORD_RESULT, 0)->u.result;
    assert_str(result->failure.code, "model_not_found");
    assert_str(result->failure.message, "no worker serves the model \"other\"; served: \"m\"");
    assert_str(result->model, "other");
    assert_int_equal(result->attempt, 0);
    assert_int_equal(result->usage.output_tokens, 0);
    assert_int_equal(count_records(f, RECORD_USAGE), 1);
}

/* Two workers of one model are one name, and more than five names are not listed. */
static void served_models_are_named(void **state)
{
    static const char *const models[] = {"a", "b", "b", "c", "d", "e", "f"};
    struct fixture *f = *state;
    struct request other = request_of(1);
    const uint32_t count = sizeof models / sizeof *models;

    other.model = str_from("A");
    fixture_send_request(f, &other);
    for (uint32_t slot = 0; slot < count; slot++) {
        struct record record = {.type = RECORD_HELLO, .u.hello = hello_of(slot, 101 + slot)};
        record.u.hello.model = str_from(models[slot]);
        record.u.hello.sent_ms = f->now_ms;
        fixture_worker(f, slot, record);
    }
    for (int i = 0; i < 20 && count_records(f, RECORD_RESULT) == 0; i++) {
        fixture_commit(f);
        for (uint32_t slot = 0; slot < count; slot++)
            fixture_heartbeat(f, slot, 101 + slot, NULL, 0);
        fixture_tick(f, 1000);
    }
    assert_str(
        record_at(f, RECORD_RESULT, 0)->u.result.failure.message,
        "no worker serves the model \"A\"; served: \"a\", \"b\", \"c\", \"d\", \"e\" and others");
}

static void rejected_by_the_worker(void **state)
{
    struct fixture *f = *state;
    const struct result *result;

    with_running(f, 2);
    fixture_failed(f, 0, 101, 1, 1, FAILURE_REJECT);
    fixture_tick(f, 20);
    result = &record_at(f, RECORD_RESULT, 0)->u.result;
    assert_int_equal(result->status, RESULT_FAILED);
    assert_str(result->failure.code, "invalid_value");
    assert_int_equal(record_at(f, RECORD_USAGE, 0)->u.usage.usage.prompt_tokens_uncached, 3);
    assert_int_equal(gauges_of(f).in_flight, 1); /* its neighbour runs on */
}

static void progress_is_forced_on_the_next_attempt(void **state)
{
    struct fixture *f = *state;
    const struct assignment *again;

    with_running(f, 1);
    fixture_progress(f, 0, 101, 1, 1, 0, ids, 2);
    fixture_progress(f, 0, 101, 1, 1, 1, ids + 1, 2); /* overlaps by one */
    fixture_progress(f, 0, 101, 1, 1, 9, ids, 1);     /* a gap helps nobody */
    fixture_failed(f, 0, 101, 1, 1, FAILURE_RETRY);
    fixture_tick(f, 20);
    again = &record_at(f, RECORD_ASSIGNMENT, 0)->u.assignment;
    assert_int_equal(again->attempt, 2);
    assert_int_equal(again->prefix.count, 3);
    assert_memory_equal(again->prefix.items, ids, 3 * sizeof *ids);
    assert_int_equal(record_at(f, RECORD_IN_FLIGHT, 1)->u.in_flight.prefix.count, 3);
    fixture_commit(f);

    fixture_done(f, 0, 101, 1, 1, ids, 4); /* of the attempt that is over */
    fixture_tick(f, 20);
    assert_int_equal(count_records(f, RECORD_RESULT), 0);
    fixture_done(f, 0, 101, 1, 2, ids, 4);
    fixture_tick(f, 20);
    assert_int_equal(record_at(f, RECORD_RESULT, 0)->u.result.attempt, 2);
}

static void contradicting_the_prefix_is_no_answer(void **state)
{
    struct fixture *f = *state;
    const int32_t other[] = {11, 99};

    with_running(f, 2);
    fixture_progress(f, 0, 101, 1, 1, 0, ids, 2);
    fixture_done(f, 0, 101, 1, 1, other, 2);
    fixture_progress(f, 0, 101, 2, 1, 0, ids, 2);
    fixture_progress(f, 0, 101, 2, 1, 1, other, 1);
    assert_int_equal(count_records(f, RECORD_RESULT), 0);
    assert_int_equal(count_records(f, RECORD_CANCEL), 2);
    fixture_tick(f, 20);
    assert_int_equal(count_records(f, RECORD_ASSIGNMENT), 2);
    assert_int_equal(record_at(f, RECORD_ASSIGNMENT, 0)->u.assignment.prefix.count, 2);
}

static void yield_and_goodbye_are_no_crashes(void **state)
{
    struct fixture *f = *state;
    struct record yield = {
        .type = RECORD_YIELD,
        .u.yield = {.slot = 0, .incarnation = id_of(101), .request_id = id_of(1), .attempt = 1},
    };

    with_running(f, 2);
    fixture_progress(f, 0, 101, 1, 1, 0, ids, 1);
    fixture_worker(f, 0, yield);
    fixture_goodbye(f, 0, 101);
    fixture_tick(f, 20);
    assert_int_equal(count_records(f, RECORD_IN_FLIGHT), 2);
    assert_int_equal(record_at(f, RECORD_IN_FLIGHT, 0)->u.in_flight.crashes, 0);
    assert_int_equal(record_at(f, RECORD_IN_FLIGHT, 0)->u.in_flight.incarnation.bytes[15], 0);
    assert_int_equal(gauges_of(f).classes[CLASS_INTERACTIVE].waiting_requests, 2);
    fixture_commit(f);
    fixture_hello(f, 0, 102);
    fixture_tick(f, 20);
    assert_int_equal(count_records(f, RECORD_ASSIGNMENT), 2);
    assert_int_equal(record_at(f, RECORD_ASSIGNMENT, 0)->u.assignment.prefix.count, 1);
}

static void dead_worker_after_lease_and_last_event(void **state)
{
    struct fixture *f = *state;

    with_running(f, 1);
    fixture_tick(f, 3400);
    assert_int_equal(count_actions(f, ACTION_READ_EVENTS), 0); /* within lease and margin */
    fixture_tick(f, 102);
    assert_int_equal(count_actions(f, ACTION_READ_EVENTS), 1);
    fixture_commit(f);
    fixture_tick(f, 1000); /* no answer yet: nothing is given away, nothing asked twice */
    assert_int_equal(f->actions.count, 0);
    fixture_hello(f, 1, 102);
    fixture_progress(f, 0, 101, 1, 1, 0, ids, 2); /* found while reading to the end */
    fixture_tick_commit(f, 20);
    fixture_events_end(f, 0);
    fixture_tick(f, 20);
    assert_int_equal(record_at(f, RECORD_ASSIGNMENT, 0)->u.assignment.prefix.count, 2);
    assert_int_equal(record_at(f, RECORD_CANCEL, 0)->u.cancel.attempt, 1);
    assert_int_equal(action_at(f, ACTION_SEND, 0)->partition, 0); /* the Cancel */
    assert_int_equal(action_at(f, ACTION_SEND, 3)->partition, 1); /* at the other worker */
    assert_int_equal(record_at(f, RECORD_IN_FLIGHT, 1)->u.in_flight.crashes, 1);
}

static void heartbeat_found_while_reading_saves_the_worker(void **state)
{
    struct fixture *f = *state;
    const uint32_t running[] = {1};

    with_running(f, 1);
    fixture_tick_commit(f, 3502);
    fixture_heartbeat(f, 0, 101, running, 1);
    fixture_events_end(f, 0);
    fixture_tick(f, 20);
    assert_int_equal(count_records(f, RECORD_ASSIGNMENT), 0);
    assert_int_equal(record_at(f, RECORD_LEASE_RENEWAL, 0)->u.lease_renewal.heartbeat_seq, 1);
    assert_int_equal(record_at(f, RECORD_LEASE_RENEWAL, 0)->u.lease_renewal.batch_size, 4);
}

static void crashing_request_becomes_a_dead_letter(void **state)
{
    struct fixture *f = *state;
    const struct result *result;

    with_running(f, 2); /* 1 is deadly, 2 happens to be its neighbour */
    worker_dies(f);
    fixture_hello(f, 0, 102);
    fixture_tick_commit(f, 20); /* both again */
    worker_dies(f);
    fixture_hello(f, 0, 103);
    fixture_tick(f, 20); /* two crashes each: alone */
    assert_int_equal(count_records(f, RECORD_ASSIGNMENT), 1);
    fixture_commit(f);
    fixture_tick(f, 20);
    assert_int_equal(f->actions.count, 0);
    worker_dies(f);
    assert_int_equal(count_actions(f, ACTION_DEAD_LETTER), 1);
    assert_int_equal(action_at(f, ACTION_DEAD_LETTER, 0)->record->u.request.line, 1);
    result = &record_at(f, RECORD_RESULT, 0)->u.result;
    assert_str(result->failure.code, "worker_crashed");
    assert_int_equal(count_records(f, RECORD_USAGE), 1);
    fixture_hello(f, 0, 104);
    fixture_tick_commit(f, 20);
    fixture_done(f, 0, 104, 2, 3, ids, 1); /* the neighbour, alone in its third attempt */
    fixture_tick(f, 20);
    assert_int_equal(record_at(f, RECORD_RESULT, 0)->u.result.status, RESULT_COMPLETED);
}

static void too_large_a_result_is_an_error(void **state)
{
    struct fixture *f = *state;
    struct record done = {
        .type = RECORD_DONE,
        .u.done = {.incarnation = id_of(101), .request_id = id_of(1), .attempt = 1},
    };
    const struct result *result;
    static char text[CODEC_REQUEST_SIZE_MAX];

    memset(text, 'a', sizeof text);
    done.u.done.text = (struct str){text, sizeof text};
    done.u.done.usage.output_tokens = 77;
    with_running(f, 2);
    fixture_worker(f, 0, done);
    fixture_done(f, 0, 101, 2, 1, ids, 1);
    result = &record_at(f, RECORD_RESULT, 0)->u.result;
    assert_str(result->failure.code, "result_too_large");
    assert_int_equal(result->text.size, 0);
    assert_int_equal(result->usage.output_tokens, 77); /* the work was done */
    assert_int_equal(record_at(f, RECORD_RESULT, 1)->u.result.status, RESULT_COMPLETED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(request_to_result, setup, teardown),
        cmocka_unit_test_setup_teardown(same_id_counts_once, setup, teardown),
        cmocka_unit_test_setup_teardown(same_id_other_body_is_a_dead_letter, setup, teardown),
        cmocka_unit_test_setup_teardown(undecodable_bytes_are_a_dead_letter, setup, teardown),
        cmocka_unit_test_setup_teardown(stored_offset_is_the_lowest_not_admitted, setup, teardown),
        cmocka_unit_test_setup_teardown(unknown_model_fails_after_the_wait, setup, teardown),
        cmocka_unit_test_setup_teardown(served_models_are_named, setup, teardown),
        cmocka_unit_test_setup_teardown(rejected_by_the_worker, setup, teardown),
        cmocka_unit_test_setup_teardown(progress_is_forced_on_the_next_attempt, setup, teardown),
        cmocka_unit_test_setup_teardown(contradicting_the_prefix_is_no_answer, setup, teardown),
        cmocka_unit_test_setup_teardown(yield_and_goodbye_are_no_crashes, setup, teardown),
        cmocka_unit_test_setup_teardown(dead_worker_after_lease_and_last_event, setup, teardown),
        cmocka_unit_test_setup_teardown(heartbeat_found_while_reading_saves_the_worker, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(crashing_request_becomes_a_dead_letter, setup, teardown),
        cmocka_unit_test_setup_teardown(too_large_a_result_is_an_error, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
