/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU device, its pool of threads, and the search for back ends.
 */
#include <stdatomic.h>
#include <time.h>

#include "kernels/cpu/pool.h"
#include "tests/unit/kernels_fixture.h"

enum { N_PARTS_MAX = 64 };

struct counts {
    atomic_uint *of_part; /* (N_PARTS_MAX) */
    uint32_t *n_parts;
};

static void count_part(const void *context, uint32_t part, uint32_t n_parts)
{
    const struct counts *counts = context;

    atomic_fetch_add(&counts->of_part[part], 1);
    if (part == 0)
        *counts->n_parts = n_parts;
}

/* Ten thousand tasks at once, then some after the threads have gone to sleep. */
static void test_every_part_once(void **state)
{
    struct err err;

    (void)state;
    for (uint32_t n_threads = 1; n_threads <= 4; n_threads++) {
        struct pool *pool;
        assert_true(pool_open(n_threads, &pool, &err));
        for (int task = 0; task < 10020; task++) {
            atomic_uint of_part[N_PARTS_MAX] = {0};
            uint32_t n_parts = 0;
            const struct counts counts = {of_part, &n_parts};
            if (task >= 10000)
                nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
            pool_run(pool, count_part, &counts, UINT64_MAX);
            assert_true(n_parts >= n_threads);
            assert_true(n_parts <= N_PARTS_MAX);
            for (uint32_t part = 0; part < N_PARTS_MAX; part++)
                assert_int_equal(atomic_load(&of_part[part]), part < n_parts);
        }
        pool_close(pool);
    }
}

static void test_small_work_stays_here(void **state)
{
    atomic_uint of_part[N_PARTS_MAX] = {0};
    uint32_t n_parts = 0;
    const struct counts counts = {of_part, &n_parts};
    struct pool *pool;
    struct err err;

    (void)state;
    assert_true(pool_open(3, &pool, &err));
    pool_run(pool, count_part, &counts, 10);
    assert_int_equal(n_parts, 1);
    pool_close(pool);
}

static void test_split(void **state)
{
    const struct pool_range a = pool_split(10, 4, 0, 2), b = pool_split(10, 4, 1, 2);
    const struct pool_range none = pool_split(3, 4, 0, 2), all = pool_split(3, 4, 1, 2);

    (void)state;
    assert_true(a.begin == 0 && a.end == 4 && b.begin == 4 && b.end == 10);
    assert_true(none.begin == none.end && all.begin == 0 && all.end == 3);
    for (uint32_t n = 0; n < 40; n++) {
        uint32_t next = 0;
        for (uint32_t part = 0; part < 5; part++) {
            const struct pool_range r = pool_split(n, 3, part, 5);
            assert_int_equal(r.begin, next);
            assert_true(r.end == n || r.end % 3 == 0);
            next = r.end;
        }
        assert_int_equal(next, n);
    }
}

static void test_memory_and_events(void **state)
{
    struct stream *stream = fixture.streams[1];
    struct event *event;
    void *memory, *empty;
    char back[5];
    struct err err;

    (void)state;
    assert_true(device_alloc(fixture.devices[1], 70, &memory, &err));
    assert_int_equal((uintptr_t)memory % 64, 0);
    for (size_t i = 0; i < 70; i++)
        assert_int_equal(((char *)memory)[i], 0);
    assert_true(device_alloc(fixture.devices[1], 0, &empty, &err));
    assert_non_null(empty);
    assert_true(event_open(fixture.devices[1], &event, &err));
    assert_true(device_copy(stream, memory, "copy", 5, &err));
    assert_true(stream_record(stream, event, &err));
    assert_true(stream_wait(stream, event, &err));
    assert_true(device_copy(stream, back, memory, 5, &err));
    assert_true(device_copy(stream, NULL, NULL, 0, &err));
    assert_true(stream_sync(stream, &err));
    assert_string_equal(back, "copy");
    event_close(event);
    device_free(fixture.devices[1], memory);
    device_free(fixture.devices[1], empty);

    assert_false(device_alloc(fixture.devices[1], SIZE_MAX, &memory, &err));
    assert_int_equal(err.kind, ERR_FATAL);
}

static void test_too_many_threads(void **state)
{
    struct device *device;
    struct err err;

    (void)state;
    assert_false(device_open((struct device_options){.n_threads = 257}, &device, &err));
    assert_string_equal(err.message, "cpu device: 257 threads wanted, at most 256 are possible");
    assert_true(device_open((struct device_options){.n_threads = 0}, &device, &err));
    assert_true(device_n_threads(device) >= 1);
    device_close(device);
    device_close(NULL);
}

static void test_backend_find(void **state)
{
    const struct backend *backend;
    struct err err;

    (void)state;
    assert_true(backend_find("auto", &backend, &err));
    if (fixture.n_fast > 0)
        assert_ptr_equal(backend, fixture.fast[fixture.n_fast - 1]);
    assert_true(backend_find("ref", &backend, &err));
    assert_string_equal(backend->name, "ref");
    assert_string_equal(backend->numerics_id[NUMERICS_BF16], "ref/bf16");
    assert_false(backend_find("cuda", &backend, &err));
    assert_int_equal(err.kind, ERR_FATAL);
    assert_non_null(strstr(err.message, "no back end called cuda; possible are auto, ref"));
}

static void test_bf16_rounding(void **state)
{
    (void)state;
    assert_true(bf16_to_f32(bf16_from_f32(1 + 1.f / 256)) == 1);             /* tie: even below */
    assert_true(bf16_to_f32(bf16_from_f32(1 + 3.f / 256)) == 1 + 4.f / 256); /* tie: even above */
    assert_true(bf16_to_f32(bf16_from_f32(1 + 1.01f / 256)) == 1 + 2.f / 256);
    assert_true(isinf(bf16_to_f32(bf16_from_f32(3.4e38f))));
    assert_true(isnan(bf16_to_f32(bf16_from_f32(NAN))));
    assert_true(bf16_to_f32(bf16_from_f32(-INFINITY)) == -INFINITY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_part_once),
        cmocka_unit_test(test_small_work_stays_here),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_memory_and_events),
        cmocka_unit_test(test_too_many_threads),
        cmocka_unit_test(test_backend_find),
        cmocka_unit_test(test_bf16_rounding),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
