/* SPDX-License-Identifier: Apache-2.0
 *
 * arena, idmap, ring, stop.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "common/arena.h"
#include "common/idmap.h"
#include "common/ids.h"
#include "common/ring.h"
#include "common/stop.h"

static void test_arena_aligns_and_reuses(void **state)
{
    struct arena arena = {.block_size = 64};
    char *first = arena_alloc(&arena, 3);
    char *second = arena_alloc(&arena, 3);
    char *large;

    (void)state;
    assert_int_equal((uintptr_t)first % 16, 0);
    assert_int_equal(second - first, 16);
    large = arena_zalloc(&arena, 100, 10);
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(large[i], 0);
    assert_string_equal(arena_strndup(&arena, "abcdef", 3), "abc");
    arena_reset(&arena);
    assert_ptr_equal(arena_alloc(&arena, 900), large); /* the largest block stays */
    arena_free(&arena);
}

static void make_id(uint64_t number, uint8_t id[16])
{
    memset(id, 0, 16);
    memcpy(id + 5, &number, 8);
}

static void test_idmap_small(void **state)
{
    struct idmap *map = idmap_open(0);
    union idmap_value value;
    uint8_t a[16], b[16];
    bool added;

    (void)state;
    make_id(1, a);
    make_id(2, b);
    assert_null(idmap_get(map, a));
    idmap_put(map, a, &added)->number = 10;
    assert_true(added);
    assert_int_equal(idmap_put(map, a, &added)->number, 10);
    assert_false(added);
    assert_null(idmap_get(map, b));
    assert_false(idmap_remove(map, b, NULL));
    assert_true(idmap_remove(map, a, &value));
    assert_int_equal(value.number, 10);
    assert_null(idmap_get(map, a));
    assert_int_equal(idmap_count(map), 0);
    idmap_close(map);
}

/* Against a plain array, with every step checked: puts, removes, growth, walks. */
static void test_idmap_model(void **state)
{
    enum { IDS = 5000, STEPS = 200000 };
    struct idmap *map = idmap_open(0);
    uint64_t *model = calloc(IDS, sizeof *model); /* 0: not there */
    uint32_t random = 1;
    size_t count = 0, walked = 0, cursor = 0;
    union idmap_value *value;
    uint8_t id[16];

    (void)state;
    for (int step = 1; step <= STEPS; step++) {
        random = random * 1664525u + 1013904223u;
        uint32_t number = (random >> 8) % IDS;
        make_id(number, id);
        if (random >> 31) {
            bool added;
            idmap_put(map, id, &added)->number = (uint64_t)step;
            assert_true(added == (model[number] == 0));
            count += added;
            model[number] = (uint64_t)step;
        } else {
            assert_true(idmap_remove(map, id, NULL) == (model[number] != 0));
            count -= model[number] != 0;
            model[number] = 0;
        }
        assert_int_equal(idmap_count(map), count);
    }
    for (uint32_t number = 0; number < IDS; number++) {
        make_id(number, id);
        value = idmap_get(map, id);
        assert_true((value != NULL) == (model[number] != 0));
        assert_true(!value || value->number == model[number]);
    }
    while (idmap_next(map, &cursor, id, &value)) {
        uint64_t number;
        memcpy(&number, id + 5, 8);
        assert_int_equal(value->number, model[number]);
        walked++;
    }
    assert_int_equal(walked, count);
    free(model);
    idmap_close(map);
}

/* The scheduler remembers a million finished ids: at most 32 bytes each, value included. */
static void test_idmap_memory(void **state)
{
    enum { IDS = 300000 };
    struct idmap *map = idmap_open(0);
    uint8_t id[16];

    (void)state;
    for (uint64_t i = 0; i < IDS; i++) {
        make_id(i, id);
        idmap_put(map, id, NULL);
        if (i > 1000)
            assert_true(idmap_memory_size(map) <= 32 * idmap_count(map));
    }
    idmap_close(map);
}

static void test_ring_bounds_and_order(void **state)
{
    struct ring *ring = ring_open(2);
    int a, b, c;

    (void)state;
    assert_null(ring_pop(ring));
    assert_true(ring_push(ring, &a));
    assert_true(ring_push(ring, &b));
    assert_false(ring_push(ring, &c));
    assert_ptr_equal(ring_pop(ring), &a);
    assert_true(ring_push(ring, &c));
    assert_int_equal(ring_count(ring), 2);
    assert_ptr_equal(ring_pop(ring), &b);
    assert_ptr_equal(ring_pop(ring), &c);
    assert_false(ring_wait(ring, 1));
    ring_wake(ring);
    assert_false(ring_wait(ring, 60000)); /* woken: returns at once, empty */
    ring_close(ring);
}

enum { PRODUCERS = 3, ITEMS = 20000 };

struct producer {
    pthread_t thread;
    struct ring *ring;
    uintptr_t number;
};

static void *produce(void *argument)
{
    struct producer *producer = argument;

    for (uintptr_t i = 1; i <= ITEMS; i++)
        while (!ring_push(producer->ring, (void *)(producer->number << 32 | i)))
            sched_yield();
    return NULL;
}

static void test_ring_threads(void **state)
{
    struct ring *ring = ring_open(64);
    struct producer producers[PRODUCERS];
    uintptr_t last[PRODUCERS] = {0};

    (void)state;
    for (uintptr_t i = 0; i < PRODUCERS; i++) {
        producers[i] = (struct producer){.ring = ring, .number = i};
        assert_int_equal(pthread_create(&producers[i].thread, NULL, produce, &producers[i]), 0);
    }
    for (size_t got = 0; got < PRODUCERS * ITEMS;) {
        uintptr_t item = (uintptr_t)ring_pop(ring);
        if (item == 0) {
            ring_wait(ring, 1000);
            continue;
        }
        assert_int_equal(item & 0xffffffff, last[item >> 32] + 1); /* in order, none lost */
        last[item >> 32]++;
        got++;
    }
    for (size_t i = 0; i < PRODUCERS; i++)
        pthread_join(producers[i].thread, NULL);
    ring_close(ring);
}

static void test_stop(void **state)
{
    (void)state;
    stop_install();
    assert_false(stop_requested());
    raise(SIGPIPE); /* ignored */
    raise(SIGTERM);
    assert_true(stop_requested());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena_aligns_and_reuses),
        cmocka_unit_test(test_idmap_small),
        cmocka_unit_test(test_idmap_model),
        cmocka_unit_test(test_idmap_memory),
        cmocka_unit_test(test_ring_bounds_and_order),
        cmocka_unit_test(test_ring_threads),
        cmocka_unit_test(test_stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
