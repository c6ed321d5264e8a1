/* SPDX-License-Identifier: Apache-2.0
 *
 * Which worker a request goes to when its beginning is cached somewhere, and what that must not
 * change: order, room, tenants, and that nobody idles while one worker drowns.
 *
 * Two workers with room for 32 unless a test says otherwise; a system prompt is 1 KB of one letter,
 * and the user says a number.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/sim/random.h"
#include "schemas/codec.h"
#include "tests/unit/scheduler_fixture.h"

enum { PROMPT_SIZE = 1024, BODY_SIZE = PROMPT_SIZE + 100 };

static const int32_t ids[] = {1};

static struct scheduler_config config_of(double weight)
{
    struct scheduler_config config = fixture_config();

    config.prefix_affinity_weight = weight;
    config.long_share_percent = 100;
    config.batch.base = 32;
    config.overtakes_max[CLASS_BULK] = 1024;
    return config;
}

static void hello(struct fixture *f, uint32_t slot, uint32_t incarnation, uint64_t kv_tokens)
{
    struct record record = {.type = RECORD_HELLO, .u.hello = hello_of(slot, incarnation)};

    record.u.hello.kv_tokens = kv_tokens;
    record.u.hello.max_context = 100000;
    fixture_worker(f, slot, record);
    fixture_heartbeat(f, slot, incarnation, NULL, 0);
}

static void open(struct fixture *f, const struct scheduler_config *config)
{
    fixture_open(f, config);
    hello(f, 0, 100, 100000);
    hello(f, 1, 101, 100000);
    fixture_tick_commit(f, 20);
}

static struct request prompt_of(uint32_t number, char letter, char *body)
{
    struct request request = request_of(number);
    size_t size = (size_t)sprintf(body, "{\"max_tokens\":10,\"messages\":[{\"content\":\"");

    memset(body + size, letter, PROMPT_SIZE);
    size += PROMPT_SIZE;
    size += (size_t)sprintf(body + size, "\"},{\"content\":\"%u\"}]}", number);
    request.body = (struct str){body, size};
    request.service_class = CLASS_BULK;
    return request;
}

static void send(struct fixture *f, uint32_t number, char letter)
{
    char body[BODY_SIZE];
    const struct request request = prompt_of(number, letter, body);

    fixture_send_request(f, &request);
}

static uint32_t number_of(const struct record *record)
{
    const uint8_t *bytes = record->u.assignment.request.request_id.bytes;

    return (uint32_t)bytes[14] << 8 | bytes[15];
}

/* The slot that the tick gives the request to, or -1. */
static int32_t slot_of(const struct fixture *f, uint32_t number)
{
    for (size_t i = 0; i < f->actions.count; i++) {
        const struct action *action = &f->actions.items[i];
        if (action->type == ACTION_SEND && action->record->type == RECORD_ASSIGNMENT &&
            number_of(action->record) == number)
            return action->partition;
    }
    return -1;
}

/* Sends one, and tells where it went. */
static int32_t where(struct fixture *f, uint32_t number, char letter)
{
    int32_t slot;

    send(f, number, letter);
    fixture_tick(f, 20);
    slot = slot_of(f, number);
    fixture_commit(f);
    return slot;
}

static void done(struct fixture *f, uint32_t slot, uint32_t number, uint32_t cached)
{
    struct record record = {
        .type = RECORD_DONE,
        .u.done = {.incarnation = id_of(100 + slot),
                   .request_id = id_of(number),
                   .attempt = 1,
                   .ids = {ids, 1},
                   .usage = {.prompt_tokens_cached = cached,
                             .prompt_tokens_uncached = 256 - cached,
                             .output_tokens = 1}},
    };

    fixture_worker(f, slot, record);
}

static void a_beginning_is_followed(void **state)
{
    const struct scheduler_config config = config_of(1);
    struct fixture f;

    (void)state;
    open(&f, &config);
    assert_int_equal(where(&f, 1, 'a'), 0);
    assert_int_equal(where(&f, 2, 'b'), 1);
    assert_int_equal(where(&f, 3, 'b'), 1); /* both hold one: by load it were slot 0 */
    assert_int_equal(where(&f, 4, 'a'), 0);
    done(&f, 1, 3, 250);
    fixture_tick_commit(&f, 20);
    const struct scheduler_prefixes prefixes = gauges_of(&f).prefixes;
    assert_int_equal(prefixes.affinity_assignments, 1);
    assert_int_equal(prefixes.prompt_tokens, 256);
    assert_int_equal(prefixes.cached_tokens, 250);
    assert_int_equal(prefixes.cached_tokens_expected, 2 * PROMPT_SIZE / 4);
    assert_true(prefixes.prompt_tokens_expected > 4 * PROMPT_SIZE / 4);
    fixture_close(&f);
}

static void without_weight_load_decides(void **state)
{
    const struct scheduler_config config = config_of(0);
    struct fixture f;

    (void)state;
    open(&f, &config);
    assert_int_equal(where(&f, 1, 'a'), 0);
    assert_int_equal(where(&f, 2, 'b'), 1);
    assert_int_equal(where(&f, 3, 'b'), 0);
    assert_int_equal(gauges_of(&f).prefixes.affinity_assignments, 0);
    fixture_close(&f);
}

/* Everybody has the same system prompt: one worker alone gets no more than the cost allows. */
static void a_hot_beginning_does_not_pile_up(void **state)
{
    const struct scheduler_config config = config_of(1);
    struct fixture f;
    uint32_t counts[2] = {0};

    (void)state;
    open(&f, &config);
    for (uint32_t number = 1; number <= 24; number++)
        counts[where(&f, number, 'h')]++;
    assert_true(counts[0] >= 10 && counts[1] >= 10);
    fixture_close(&f);
    /* All at once, in one tick. */
    open(&f, &config);
    for (uint32_t number = 1; number <= 24; number++)
        send(&f, number, 'h');
    fixture_tick(&f, 20);
    counts[0] = counts[1] = 0;
    for (uint32_t number = 1; number <= 24; number++)
        counts[slot_of(&f, number)]++;
    assert_true(counts[0] >= 10 && counts[1] >= 10);
    fixture_close(&f);
}

/* Both workers are empty, and the second one has had the beginning: it gets it again, unless it is
 * another one in the same slot. */
static void a_new_worker_holds_nothing(void **state)
{
    const struct scheduler_config config = config_of(1);

    (void)state;
    for (int again = 0; again < 2; again++) {
        struct fixture f;
        open(&f, &config);
        assert_int_equal(where(&f, 1, 'a'), 0);
        assert_int_equal(where(&f, 2, 'b'), 1);
        done(&f, 0, 1, 0);
        done(&f, 1, 2, 0);
        fixture_tick_commit(&f, 20);
        if (again) {
            fixture_goodbye(&f, 1, 101);
            hello(&f, 1, 102, 100000);
            fixture_tick_commit(&f, 20);
        }
        assert_int_equal(where(&f, 3, 'b'), again ? 0 : 1);
        fixture_close(&f);
    }
}

static void a_full_holder_is_passed_by(void **state)
{
    struct scheduler_config config = config_of(100); /* whatever the load */
    struct fixture f;

    (void)state;
    config.batch.base = 2;
    open(&f, &config);
    assert_int_equal(where(&f, 1, 'a'), 0);
    assert_int_equal(where(&f, 2, 'a'), 0);
    assert_int_equal(where(&f, 3, 'a'), 1);
    fixture_close(&f);
}

/* The holder has KV memory for one such request: the second goes elsewhere, whatever the weight. */
static void kv_memory_is_respected(void **state)
{
    const struct scheduler_config config = config_of(100);
    struct fixture f;

    (void)state;
    fixture_open(&f, &config);
    hello(&f, 0, 100, 500);
    hello(&f, 1, 101, 100000);
    fixture_tick_commit(&f, 20);
    assert_int_equal(where(&f, 1, 'a'), 0);
    assert_int_equal(where(&f, 2, 'a'), 1);
    fixture_close(&f);
}

/* Batches of two and as many ahead; a short request needed one of the four places lately. The
 * holder of the beginning gets three long ones, another worker one, which is what is left of its
 * batch. */
static void the_long_share_is_respected(void **state)
{
    struct scheduler_config config = config_of(100);
    struct fixture f;

    (void)state;
    config.batch.base = 2;
    config.assign_ahead_percent = 100;
    config.long_request_tokens = 100;
    config.long_share_percent = 50;
    open(&f, &config);
    fixture_request(&f, 1);
    fixture_request(&f, 2);
    fixture_tick_commit(&f, 20);
    done(&f, 0, 1, 0);
    done(&f, 1, 2, 0);
    for (uint32_t number = 3; number < 6; number++)
        assert_int_equal(where(&f, number, 'a'), 0);
    assert_int_equal(where(&f, 6, 'a'), 1);
    assert_int_equal(where(&f, 7, 'a'), -1);
    fixture_close(&f);
}

static void tenants_share_nothing(void **state)
{
    const struct scheduler_config config = config_of(1);
    char body[BODY_SIZE];
    struct request request;
    struct fixture f;

    (void)state;
    open(&f, &config);
    assert_int_equal(where(&f, 1, 'a'), 0);
    assert_int_equal(where(&f, 2, 'b'), 1);
    request = prompt_of(3, 'b', body);
    request.tenant = str_from("other");
    fixture_send_request(&f, &request);
    fixture_tick(&f, 20);
    assert_int_equal(slot_of(&f, 3), 0);
    fixture_close(&f);
}

/* The second worker holds the beginning, and a request, the first one is empty. While it reports
 * that it had the beginning, the next goes there; when it never has it, the emptier one is taken.
 */
static void a_worker_without_a_cache_is_found_out(void **state)
{
    const struct scheduler_config config = config_of(1);

    (void)state;
    for (int cached = 0; cached < 2; cached++) {
        struct fixture f;
        uint32_t number = 3, followed = 0;
        open(&f, &config);
        assert_int_equal(where(&f, 1, 'a'), 0);
        assert_int_equal(where(&f, 2, 'b'), 1);
        done(&f, 0, 1, 0);
        for (; number < 100; number++) {
            if (where(&f, number, 'b') != 1)
                break;
            followed++;
            done(&f, 1, number, cached ? 256 : 0);
            fixture_heartbeat(&f, 0, 100, NULL, 0);
            fixture_heartbeat(&f, 1, 101, NULL, 0);
            fixture_tick_commit(&f, 20);
        }
        assert_int_equal(followed == 97, cached);
        assert_true(followed > 5);
        fixture_close(&f);
    }
}

/* Each worker runs two, the first one with "a", the second with "b"; then the second has room for
 * two more, while "a" has waited longer. Returns the first of them. */
static uint32_t next_at_the_second(uint32_t overtakes_max, int64_t deadline_in_ms)
{
    static const char waiting[] = "aaabbb";
    struct scheduler_config config = config_of(1);
    struct fixture f;
    uint32_t next;

    config.batch.base = 2;
    config.overtakes_max[CLASS_BULK] = overtakes_max;
    open(&f, &config);
    assert_int_equal(where(&f, 1, 'a'), 0);
    assert_int_equal(where(&f, 2, 'b'), 1);
    for (uint32_t i = 0; i < 6; i++) {
        char body[BODY_SIZE];
        struct request request = prompt_of(3 + i, waiting[i], body);
        if (waiting[i] == 'a' && deadline_in_ms > 0)
            request.deadline_ms = f.now_ms + deadline_in_ms;
        fixture_send_request(&f, &request);
    }
    fixture_tick(&f, 20);
    assert_int_equal(slot_of(&f, 3), 0);
    next = number_of(record_at(&f, RECORD_ASSIGNMENT, 1));
    assert_int_equal(slot_of(&f, next), 1);
    fixture_close(&f);
    return next;
}

/* The choice among those that wait: within the bound on overtaking, and behind deadlines. */
static void a_worker_gets_what_it_has(void **state)
{
    (void)state;
    assert_int_equal(next_at_the_second(1024, 0), 6);
    assert_int_equal(next_at_the_second(4, 0), 6);
    assert_int_equal(next_at_the_second(2, 0), 4); /* all the way costs more than it saves */
    assert_int_equal(next_at_the_second(1, 0), 4);
    assert_int_equal(next_at_the_second(0, 0), 4);
    assert_int_equal(next_at_the_second(1024, 30000), 4);
    assert_int_equal(next_at_the_second(1024, 300000), 6);
}

static uint32_t order_of(struct fixture *f, double weight, uint32_t *order)
{
    struct scheduler_config config = config_of(weight);
    struct random random = {11};
    uint32_t count = 0;

    config.overtakes_max[CLASS_BULK] = 0;
    open(f, &config);
    for (uint32_t number = 1; number <= 200; number++) {
        char body[BODY_SIZE], tenant[] = "t0";
        struct request request = prompt_of(number, (char)('a' + random_u64(&random) % 5), body);
        tenant[1] = (char)('0' + random_u64(&random) % 3);
        request.tenant = str_from(tenant);
        request.service_class = random_u64(&random) % 4 ? CLASS_BULK : CLASS_INTERACTIVE;
        fixture_send_request(f, &request);
    }
    fixture_tick(f, 20);
    for (size_t i = 0; i < count_records(f, RECORD_ASSIGNMENT); i++)
        order[count++] = number_of(record_at(f, RECORD_ASSIGNMENT, i));
    fixture_close(f);
    return count;
}

/* Classes, tenants and arrival: without leave to overtake, who goes next does not depend on where
 * it goes. */
static void the_order_is_the_same(void **state)
{
    uint32_t with[200], without[200], count;
    struct fixture f;

    (void)state;
    count = order_of(&f, 1, with);
    assert_int_equal(count, 64);
    assert_int_equal(order_of(&f, 0, without), count);
    assert_memory_equal(with, without, count * sizeof *with);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_beginning_is_followed),
        cmocka_unit_test(without_weight_load_decides),
        cmocka_unit_test(a_hot_beginning_does_not_pile_up),
        cmocka_unit_test(a_new_worker_holds_nothing),
        cmocka_unit_test(a_full_holder_is_passed_by),
        cmocka_unit_test(kv_memory_is_respected),
        cmocka_unit_test(the_long_share_is_respected),
        cmocka_unit_test(tenants_share_nothing),
        cmocka_unit_test(a_worker_without_a_cache_is_found_out),
        cmocka_unit_test(a_worker_gets_what_it_has),
        cmocka_unit_test(the_order_is_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
