/* SPDX-License-Identifier: Apache-2.0
 *
 * Which request goes to which worker: batches mixed by what experts the requests use, within the
 * bounds of order, deadlines and service class; KV cache and prefill spread over workers.
 *
 * Requests that begin with "a" use expert 0 of two, those with "b" expert 1.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "schemas/codec.h"
#include "tests/unit/scheduler_fixture.h"

static struct scheduler_config config_of(double weight, uint32_t overtakes_max)
{
    struct scheduler_config config = fixture_config();

    config.expert_balance_weight = weight;
    config.overtakes_max[CLASS_INTERACTIVE] = 1;
    config.overtakes_max[CLASS_BULK] = overtakes_max;
    return config;
}

static void hello(struct fixture *f, uint32_t slot, uint32_t incarnation)
{
    struct record record = {.type = RECORD_HELLO, .u.hello = hello_of(slot, incarnation)};

    record.u.hello.experts = 2;
    fixture_worker(f, slot, record);
}

static void request(struct fixture *f, uint32_t number, enum service_class service_class, char kind,
                    int64_t deadline_ms)
{
    struct request request = request_of(number);
    char body[64];

    snprintf(body, sizeof body, "{\"prompt\":\"%c 1\",\"max_tokens\":10}", kind);
    request.body = str_from(body);
    request.service_class = service_class;
    request.deadline_ms = deadline_ms;
    fixture_send_request(f, &request);
}

/* Numbers from first on, one for each letter. */
static void bulk(struct fixture *f, uint32_t first, const char *kinds)
{
    for (uint32_t i = 0; kinds[i]; i++)
        request(f, first + i, CLASS_BULK, kinds[i], 0);
}

static void done(struct fixture *f, uint32_t number, const int32_t *profile, size_t count)
{
    static const int32_t ids[] = {1};
    struct record record = {
        .type = RECORD_DONE,
        .u.done = {.incarnation = id_of(101),
                   .request_id = id_of(number),
                   .attempt = 1,
                   .ids = {ids, 1},
                   .profile = {profile, count}},
    };

    fixture_worker(f, 0, record);
}

/* A worker in slot 0, and one answer of each kind. */
static void teach(struct fixture *f)
{
    static const int32_t first[] = {63, 0}, second[] = {0, 63};

    hello(f, 0, 101);
    bulk(f, 1, "ab");
    fixture_tick_commit(f, 20);
    done(f, 1, first, 2);
    done(f, 2, second, 2);
    fixture_tick_commit(f, 20);
}

/* The tick's assignments, by number, must be these. */
static void assert_assigned(struct fixture *f, const uint32_t *numbers, size_t count)
{
    fixture_tick(f, 20);
    assert_int_equal(count_records(f, RECORD_ASSIGNMENT), count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(
            record_at(f, RECORD_ASSIGNMENT, i)->u.assignment.request.request_id.bytes[15],
            numbers[i]);
    fixture_commit(f);
}

/* Sorted by kind, they are mixed. */
static void sorted_requests_are_mixed(void **state)
{
    static const uint32_t mixed[] = {11, 14, 12, 15};
    const struct scheduler_config config = config_of(0.5, 8);
    struct fixture f;

    (void)state;
    fixture_open(&f, &config);
    teach(&f);
    bulk(&f, 11, "aaabbb");
    assert_assigned(&f, mixed, 4);
    fixture_close(&f);
}

/* Where four "a" wait for every "b", the worker gets them so, not one of each. */
static void the_mix_is_that_of_what_waits(void **state)
{
    static const uint32_t mixed[] = {11, 19, 12, 13};
    const struct scheduler_config config = config_of(1, 16);
    struct fixture f;

    (void)state;
    fixture_open(&f, &config);
    teach(&f);
    bulk(&f, 11, "aaaaaaaabb");
    assert_assigned(&f, mixed, 4);
    fixture_close(&f);
}

static void weight_zero_is_arrival_order(void **state)
{
    static const uint32_t order[] = {11, 12, 13, 14};
    const struct scheduler_config config = config_of(0, 8);
    struct fixture f;

    (void)state;
    fixture_open(&f, &config);
    teach(&f);
    bulk(&f, 11, "aaaabb");
    assert_assigned(&f, order, 4);
    fixture_close(&f);
}

/* What nobody has answered yet is no reason to change the order. */
static void unknown_requests_keep_their_order(void **state)
{
    static const uint32_t order[] = {11, 12, 13, 14};
    const struct scheduler_config config = config_of(0.5, 8);
    struct fixture f;

    (void)state;
    fixture_open(&f, &config);
    hello(&f, 0, 101);
    bulk(&f, 11, "aaaabb");
    assert_assigned(&f, order, 4);
    fixture_close(&f);
}

/* Two may be overtaken: the first "b" is the fourth, and goes when the second is the oldest. One
 * may be: it waits until the third is. */
static void overtaking_has_a_bound(void **state)
{
    static const uint32_t order[] = {11, 14, 12, 15};
    static const uint32_t tight[] = {11, 12, 14, 13};
    struct scheduler_config config = config_of(1, 2);
    struct fixture f;

    (void)state;
    fixture_open(&f, &config);
    teach(&f);
    bulk(&f, 11, "aaabbb");
    assert_assigned(&f, order, 4);
    fixture_close(&f);

    config.overtakes_max[CLASS_BULK] = 1;
    fixture_open(&f, &config);
    teach(&f);
    bulk(&f, 11, "aaabbb");
    assert_assigned(&f, tight, 4);
    fixture_close(&f);
}

/* A deadline within the minute goes before balance and before what came earlier. Nobody has
 * answered a "c", so it counts as its tenant's mean, mostly "a", and a "b" is next. */
static void near_deadlines_go_first(void **state)
{
    static const uint32_t order[] = {11, 14, 15, 12};
    const struct scheduler_config config = config_of(0.5, 8);
    struct fixture f;

    (void)state;
    fixture_open(&f, &config);
    teach(&f);
    bulk(&f, 11, "aaa");
    request(&f, 14, CLASS_BULK, 'c', f.now_ms + 30000);
    bulk(&f, 15, "bb");
    assert_assigned(&f, order, 4);
    fixture_close(&f);
}

/* However well bulk would balance, interactive requests of the same tick are given out first. */
static void interactive_overtakes_bulk(void **state)
{
    static const uint32_t order[] = {21, 22};
    const struct scheduler_config config = config_of(0.5, 8);
    struct fixture f;

    (void)state;
    fixture_open(&f, &config);
    teach(&f);
    bulk(&f, 11, "bbaa");
    request(&f, 21, CLASS_INTERACTIVE, 'a', 0);
    request(&f, 22, CLASS_INTERACTIVE, 'a', 0);
    fixture_tick(&f, 20);
    assert_int_equal(count_records(&f, RECORD_ASSIGNMENT), 4);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(
            record_at(&f, RECORD_ASSIGNMENT, i)->u.assignment.request.request_id.bytes[15],
            order[i]);
    fixture_close(&f);
}

/* What a running request really uses replaces what was expected of it: "a" turned out to use
 * expert 1, so that another "a" balances it. */
static void measured_replaces_predicted(void **state)
{
    static const uint32_t before[] = {11, 13, 12, 14}, after[] = {23, 21};
    static const int32_t ids[] = {1}, profile[] = {0, 63};
    const struct scheduler_config config = config_of(0.5, 8);
    struct record record = {.type = RECORD_PROGRESS};
    struct fixture f;

    (void)state;
    fixture_open(&f, &config);
    teach(&f);
    bulk(&f, 11, "aabb");
    assert_assigned(&f, before, 4);
    for (uint32_t number = 11; number <= 12; number++) {
        record.u.progress = (struct progress){.incarnation = id_of(101),
                                              .request_id = id_of(number),
                                              .attempt = 1,
                                              .ids = {ids, 1},
                                              .profile = {profile, 2}};
        fixture_worker(&f, 0, record);
    }
    fixture_done(&f, 0, 101, 13, 1, ids, 1);
    fixture_done(&f, 0, 101, 14, 1, ids, 1);
    /* Left: two that use expert 1, where two that use expert 0 were expected. */
    bulk(&f, 21, "bbaa");
    assert_assigned(&f, after, 2);
    fixture_close(&f);
}

/* A profile that cannot be is no profile. */
static void strange_profiles_are_ignored(void **state)
{
    static const uint32_t order[] = {11, 12, 13, 14};
    static const int32_t odd[] = {1, 2, 3}, negative[] = {-1, 2};
    const struct scheduler_config config = config_of(0.5, 8);
    struct fixture f;

    (void)state;
    fixture_open(&f, &config);
    hello(&f, 0, 101);
    bulk(&f, 1, "ab");
    fixture_tick_commit(&f, 20);
    done(&f, 1, odd, 3);
    done(&f, 2, negative, 2);
    fixture_tick(&f, 20);
    assert_int_equal(count_records(&f, RECORD_RESULT), 2);
    fixture_commit(&f);
    bulk(&f, 11, "aaaabb");
    assert_assigned(&f, order, 4);
    fixture_close(&f);
}

/* The workers that the tick's assignments went to, as their incarnations. */
static void assert_workers(struct fixture *f, const uint32_t *incarnations, size_t count)
{
    fixture_tick(f, 20);
    assert_int_equal(count_records(f, RECORD_ASSIGNMENT), count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(record_at(f, RECORD_ASSIGNMENT, i)->u.assignment.incarnation.bytes[15],
                         incarnations[i]);
    fixture_commit(f);
}

/* The first worker has a prompt of 750 tokens, the second one of 12, one request each: what comes
 * next goes to the second, twice. When the long one has begun to answer, its prefill is over, and
 * the first worker has less to do. */
static void workers_share_kv_and_prefill(void **state)
{
    static const int32_t ids[] = {1};
    static const uint32_t one_each[] = {101, 102}, second[] = {102, 102}, first[] = {101};
    static char text[3000];
    const struct scheduler_config config = config_of(0, 0);
    struct request long_one = request_of(1);
    struct fixture f;

    (void)state;
    memset(text, ' ', sizeof text);
    long_one.body = (struct str){text, sizeof text};
    fixture_open(&f, &config);
    fixture_hello(&f, 0, 101);
    fixture_hello(&f, 1, 102);
    fixture_send_request(&f, &long_one);
    fixture_request(&f, 2);
    assert_workers(&f, one_each, 2);
    fixture_request(&f, 3);
    fixture_request(&f, 4);
    assert_workers(&f, second, 2);
    fixture_progress(&f, 0, 101, 1, 1, 0, ids, 1);
    fixture_request(&f, 5);
    assert_workers(&f, first, 1);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sorted_requests_are_mixed),
        cmocka_unit_test(the_mix_is_that_of_what_waits),
        cmocka_unit_test(weight_zero_is_arrival_order),
        cmocka_unit_test(unknown_requests_keep_their_order),
        cmocka_unit_test(overtaking_has_a_bound),
        cmocka_unit_test(near_deadlines_go_first),
        cmocka_unit_test(interactive_overtakes_bulk),
        cmocka_unit_test(measured_replaces_predicted),
        cmocka_unit_test(strange_profiles_are_ignored),
        cmocka_unit_test(workers_share_kv_and_prefill),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
