/* SPDX-License-Identifier: Apache-2.0
 *
 * Long and short requests beside each other: who gets the places of a batch.
 *
 * One worker with a batch of four and a share of a half for long requests, unless a test says
 * otherwise; requests below 100 are short, those from 100 on long, all of them bulk. Nobody's lease
 * ends.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "schemas/codec.h"
#include "tests/unit/scheduler_fixture.h"

enum { LONG = 100 };

static const int32_t ids[] = {11};

static struct scheduler_config config_of(void)
{
    struct scheduler_config config = fixture_config();

    config.lease_ms = 3600000;
    config.long_request_tokens = 500;
    config.long_share_percent = 50;
    return config;
}

static void open(struct fixture *f, const struct scheduler_config *config, uint32_t workers)
{
    fixture_open(f, config);
    for (uint32_t slot = 0; slot < workers; slot++)
        fixture_hello(f, slot, 101 + slot);
    fixture_tick_commit(f, 20);
}

static struct request request_for(uint32_t number)
{
    struct request request = request_of(number);

    request.service_class = CLASS_BULK;
    if (number >= LONG)
        request.body = str_from("{\"max_tokens\":800}");
    return request;
}

static void send(struct fixture *f, uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++) {
        struct request request = request_for(i);
        fixture_send_request(f, &request);
    }
}

/* A tick, ms later: short ones given to workers in it, and long ones times 10. */
static uint32_t given_at_once(struct fixture *f, int64_t ms, uint32_t *slots, uint32_t *numbers)
{
    uint32_t count = 0, sum = 0;

    fixture_tick(f, ms);
    for (size_t i = 0; i < f->actions.count; i++) {
        const struct action *action = &f->actions.items[i];
        if (action->type != ACTION_SEND || action->record->type != RECORD_ASSIGNMENT)
            continue;
        slots[count] = (uint32_t)action->partition;
        numbers[count] = action->id.bytes[15];
        sum += numbers[count++] < LONG ? 1 : 10;
    }
    fixture_commit(f);
    return sum;
}

/* The same, and in the ticks behind it, while each request begins to answer before the next. */
static uint32_t given(struct fixture *f, int64_t ms)
{
    uint32_t slots[64], numbers[64], sum = 0, more;

    while ((more = given_at_once(f, ms, slots, numbers)) > 0) {
        for (uint32_t i = 0; i < more / 10 + more % 10; i++)
            fixture_progress(f, slots[i], 101 + slots[i], numbers[i], 1, 0, ids, 1);
        sum += more;
        ms = 20;
    }
    return sum;
}

static void done(struct fixture *f, uint32_t slot, uint32_t number)
{
    fixture_done(f, slot, 101 + slot, number, 1, ids, 1);
}

/* Four, though the worker would take six of them: a short one finds nobody queued before it. */
static void long_ones_alone_fill_the_batch(void **state)
{
    struct scheduler_config config = config_of();
    struct fixture f;

    (void)state;
    config.assign_ahead_percent = 50;
    open(&f, &config, 1);
    send(&f, LONG, 20);
    assert_int_equal(given(&f, 20), 40);
    send(&f, 1, 4);
    assert_int_equal(given(&f, 20), 2);
    fixture_close(&f);
}

static void both_kinds_get_their_share(void **state)
{
    const struct scheduler_config config = config_of();
    struct fixture f;

    (void)state;
    open(&f, &config, 1);
    send(&f, LONG, 20);
    send(&f, 1, 20);
    assert_int_equal(given(&f, 20), 22);
    done(&f, 0, LONG);
    done(&f, 0, 1);
    assert_int_equal(given(&f, 20), 11);
    done(&f, 0, 2);
    assert_int_equal(given(&f, 20), 1);
    fixture_close(&f);
}

static void short_ones_alone_fill_the_batch(void **state)
{
    const struct scheduler_config config = config_of();
    struct fixture f;

    (void)state;
    open(&f, &config, 1);
    send(&f, 1, 20);
    assert_int_equal(given(&f, 20), 4);
    send(&f, LONG, 4);
    assert_int_equal(given(&f, 20), 0);
    done(&f, 0, 1); /* in turn until they have theirs */
    done(&f, 0, 2);
    assert_int_equal(given(&f, 20), 11);
    done(&f, 0, 3);
    done(&f, 0, 4);
    assert_int_equal(given(&f, 20), 11);
    fixture_close(&f);
}

/* The places of four long ones go to short ones that wait, whoever waits longer, until these have
 * what they need or their half. */
static void a_place_that_becomes_free_is_a_short_ones(void **state)
{
    const struct scheduler_config config = config_of();
    struct fixture f;

    (void)state;
    open(&f, &config, 1);
    send(&f, LONG, 20);
    assert_int_equal(given(&f, 20), 40);
    send(&f, 1, 1);
    assert_int_equal(given(&f, 20), 0);
    done(&f, 0, LONG);
    assert_int_equal(given(&f, 20), 1);
    done(&f, 0, LONG + 1); /* one short one: three places are for long ones */
    assert_int_equal(given(&f, 20), 10);
    send(&f, 2, 5);
    done(&f, 0, LONG + 2);
    assert_int_equal(given(&f, 20), 1);
    done(&f, 0, LONG + 3);
    assert_int_equal(given(&f, 20), 10); /* two and two: the half is kept for long ones */
    fixture_close(&f);
}

/* Two short ones at once: their places are kept while they may be needed again, one of them for
 * long ones after 30 ln(2 / 1.5) / ln 2 = 12.5 s, the other after another 47.5 s. */
static void places_are_kept_for_a_while(void **state)
{
    const struct scheduler_config config = config_of();
    struct fixture f;

    (void)state;
    open(&f, &config, 1);
    send(&f, 1, 2);
    assert_int_equal(given(&f, 20), 2);
    send(&f, LONG, 20);
    assert_int_equal(given(&f, 20), 20);
    done(&f, 0, 1);
    done(&f, 0, 2);
    assert_int_equal(given(&f, 20), 0);
    send(&f, 3, 2); /* the next ones find them empty */
    assert_int_equal(given(&f, 20), 2);
    done(&f, 0, 3);
    done(&f, 0, 4);
    assert_int_equal(given(&f, 12000), 0);
    assert_int_equal(given(&f, 1000), 10);
    assert_int_equal(given(&f, 46000), 0);
    assert_int_equal(given(&f, 2000), 10);
    fixture_close(&f);
}

/* A job of long ones that does not come back to a worker without short ones. */
static void no_share_means_one(void **state)
{
    struct scheduler_config config = config_of();
    struct fixture f;

    (void)state;
    config.long_share_percent = 0;
    open(&f, &config, 1);
    send(&f, LONG, 20);
    send(&f, 1, 20);
    assert_int_equal(given(&f, 20), 13);
    fixture_close(&f);
}

/* Interactive ones see their own kind alone, the long ones, too. */
static void bulk_does_not_stop_interactive_ones(void **state)
{
    const struct scheduler_config config = config_of();
    struct request request;
    struct fixture f;

    (void)state;
    open(&f, &config, 1);
    send(&f, LONG, 20);
    assert_int_equal(given(&f, 20), 40);
    for (uint32_t i = 50; i < 53; i++) {
        request = request_for(LONG + i);
        request.service_class = CLASS_INTERACTIVE;
        fixture_send_request(&f, &request);
    }
    assert_int_equal(given(&f, 20), 30);
    for (uint32_t i = 50; i < 56; i++) {
        request = request_for(i);
        request.service_class = CLASS_INTERACTIVE;
        fixture_send_request(&f, &request);
    }
    assert_int_equal(given(&f, 20), 1);
    fixture_close(&f);
}

/* Four that wait are two for each of two workers. */
static void what_waits_is_shared_among_workers(void **state)
{
    struct scheduler_config config = config_of();
    struct fixture f;

    (void)state;
    config.long_share_percent = 0;
    open(&f, &config, 2);
    send(&f, LONG, 20);
    send(&f, 1, 4);
    assert_int_equal(given(&f, 20), 44);
    fixture_close(&f);
}

static void other_models_need_nothing_here(void **state)
{
    const struct scheduler_config config = config_of();
    struct request request;
    struct fixture f;

    (void)state;
    open(&f, &config, 1);
    for (uint32_t i = 1; i < 5; i++) {
        request = request_for(i);
        request.model = str_from("other");
        fixture_send_request(&f, &request);
    }
    send(&f, LONG, 20);
    assert_int_equal(given(&f, 20), 40);
    request = request_for(5);
    request.model = str_from(""); /* any */
    fixture_send_request(&f, &request);
    done(&f, 0, LONG);
    assert_int_equal(given(&f, 20), 1);
    fixture_close(&f);
}

/* Two prompts of a kind that is read one by one: the next when one of them answers. What a second's
 * reading is, the worker shows. */
static void long_prompts_wait_here(void **state)
{
    struct scheduler_config config = config_of();
    uint32_t slots[64], numbers[64];
    struct fixture f;

    (void)state;
    config.batch.base = 32;
    open(&f, &config, 1);
    send(&f, LONG, 30);
    assert_int_equal(given_at_once(&f, 20, slots, numbers), 20);
    assert_int_equal(given_at_once(&f, 20, slots, numbers), 0);
    send(&f, 1, 3); /* short ones do not wait for them */
    assert_int_equal(given_at_once(&f, 20, slots, numbers), 3);
    fixture_progress(&f, 0, 101, LONG, 1, 0, ids, 1);
    assert_int_equal(given_at_once(&f, 20, slots, numbers), 10);
    fixture_progress(&f, 0, 101, LONG + 1, 1, 0, ids, 1);
    fixture_progress(&f, 0, 101, LONG + 2, 1, 0, ids, 1);
    assert_int_equal(given_at_once(&f, 20, slots, numbers), 20); /* three were read: nearly three */
    fixture_progress(&f, 0, 101, LONG + 3, 1, 0, ids, 1);
    assert_int_equal(given_at_once(&f, 20, slots, numbers), 20); /* four: three wait */
    fixture_close(&f);
}

/* What came back needs a place as well, and a long one that came back keeps to its share. */
static void returned_ones_count(void **state)
{
    struct scheduler_config config = config_of();
    struct fixture f;

    (void)state;
    open(&f, &config, 1);
    send(&f, 1, 2);
    send(&f, LONG, 2);
    assert_int_equal(given(&f, 20), 22);
    fixture_goodbye(&f, 0, 101);
    send(&f, LONG + 2, 20);
    fixture_hello(&f, 0, 102);
    assert_int_equal(given(&f, 20), 22);
    fixture_close(&f);
    config.long_share_percent = 25;
    open(&f, &config, 1);
    send(&f, LONG, 4);
    assert_int_equal(given(&f, 20), 40);
    fixture_goodbye(&f, 0, 101);
    send(&f, 1, 4);
    fixture_hello(&f, 0, 102);
    assert_int_equal(given(&f, 20), 13);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_ones_alone_fill_the_batch),
        cmocka_unit_test(both_kinds_get_their_share),
        cmocka_unit_test(short_ones_alone_fill_the_batch),
        cmocka_unit_test(a_place_that_becomes_free_is_a_short_ones),
        cmocka_unit_test(places_are_kept_for_a_while),
        cmocka_unit_test(no_share_means_one),
        cmocka_unit_test(bulk_does_not_stop_interactive_ones),
        cmocka_unit_test(what_waits_is_shared_among_workers),
        cmocka_unit_test(other_models_need_nothing_here),
        cmocka_unit_test(long_prompts_wait_here),
        cmocka_unit_test(returned_ones_count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
