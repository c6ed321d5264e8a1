/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/job_map.h"

static struct request_id id_of(uint32_t number)
{
    struct request_id id = {{0}};

    memcpy(id.bytes + 3, &number, sizeof number);
    return id;
}

static void an_empty_map(void **state)
{
    struct job_map map = {0};
    struct request_id id = id_of(1);
    size_t cursor = 0;

    (void)state;
    assert_null(job_map_find(&map, &id));
    assert_null(job_map_next(&map, &cursor));
    job_map_free(&map);
}

/* Grows from nothing over many tables, loses every third, is walked: nothing lost, nothing twice.
 */
static void what_is_added_is_found(void **state)
{
    enum { COUNT = 20000 };
    struct job_map map = {0};
    struct job **jobs = calloc(COUNT, sizeof *jobs), *job;
    size_t cursor = 0, walked = 0;

    (void)state;
    for (uint32_t i = 0; i < COUNT; i++) {
        struct request_id id = id_of(i);
        assert_null(job_map_find(&map, &id));
        jobs[i] = job_new(&id);
        job_map_add(&map, jobs[i]);
    }
    assert_int_equal(map.count, COUNT);
    assert_true(map.capacity < COUNT + COUNT / 3); /* the promise of 12 bytes a job */
    for (uint32_t i = 0; i < COUNT; i += 3)
        job_map_remove(&map, jobs[i]);
    for (uint32_t i = 0; i < COUNT; i++) {
        struct request_id id = id_of(i);
        assert_ptr_equal(job_map_find(&map, &id), i % 3 == 0 ? NULL : jobs[i]);
    }
    while ((job = job_map_next(&map, &cursor))) {
        walked++;
        job->tokens++;
    }
    assert_int_equal(walked, map.count);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(jobs[i]->tokens, i % 3 != 0);
        job_free(jobs[i]);
    }
    job_map_free(&map);
    free(jobs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_map),
        cmocka_unit_test(what_is_added_is_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
