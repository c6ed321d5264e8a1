/* SPDX-License-Identifier: Apache-2.0
 *
 * The lease: it runs from the Heartbeat's sending, only forwards, and knows no
 * Heartbeat that was not sent.
 */
#include "worker/shell/lease.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void it_runs_from_the_sending_of_the_named_heartbeat(void **state)
{
    struct lease lease;

    (void)state;
    lease_init(&lease, 3000);
    assert_false(lease_valid(&lease, 0));
    assert_int_equal(lease_heartbeat(&lease, 1000), 1);
    assert_int_equal(lease_heartbeat(&lease, 1500), 2);
    assert_false(lease_valid(&lease, 1500)); /* sending alone gives nothing */
    assert_true(lease_renew(&lease, 1));
    assert_true(lease_valid(&lease, 3999));
    assert_false(lease_valid(&lease, 4000));
    assert_true(lease_renew(&lease, 2));
    assert_true(lease_valid(&lease, 4499));
    assert_false(lease_valid(&lease, 4500));
}

static void an_older_renewal_takes_nothing_away(void **state)
{
    struct lease lease;

    (void)state;
    lease_init(&lease, 3000);
    lease_heartbeat(&lease, 1000);
    lease_heartbeat(&lease, 2000);
    assert_true(lease_renew(&lease, 2));
    assert_false(lease_renew(&lease, 1));
    assert_false(lease_renew(&lease, 2));
    assert_true(lease_valid(&lease, 4999));
}

static void unknown_heartbeats_renew_nothing(void **state)
{
    struct lease lease;

    (void)state;
    lease_init(&lease, 3000);
    assert_false(lease_renew(&lease, 0));
    assert_false(lease_renew(&lease, 1));
    for (int i = 1; i <= LEASE_HEARTBEATS + 1; i++)
        lease_heartbeat(&lease, i * 10);
    assert_false(lease_renew(&lease, 1)); /* forgotten: its place holds a newer one's time */
    assert_false(lease_renew(&lease, -1));
    assert_false(lease_renew(&lease, LEASE_HEARTBEATS + 2));
    assert_false(lease_valid(&lease, 0));
    assert_true(lease_renew(&lease, 2));
    assert_false(lease_valid(&lease, 3020));
}

static void a_late_renewal_revives_it(void **state)
{
    struct lease lease;

    (void)state;
    lease_init(&lease, 3000);
    lease_heartbeat(&lease, 1000);
    assert_true(lease_renew(&lease, 1));
    lease_heartbeat(&lease, 9000);
    assert_false(lease_valid(&lease, 9000));
    assert_true(lease_renew(&lease, 2));
    assert_true(lease_valid(&lease, 9000));
}

static void its_lack_is_told_after_10_s_and_once_a_minute(void **state)
{
    static const struct {
        int64_t at_s;
        bool valid;
        enum lease_word word;
        int64_t seconds;
    } looks[] = {
        {1, true, LEASE_NOTHING_NEW, 0},    {5, false, LEASE_NOTHING_NEW, 0},
        {14, false, LEASE_NOTHING_NEW, 9},  {14, true, LEASE_NOTHING_NEW, 9}, /* a new leader */
        {20, false, LEASE_NOTHING_NEW, 0},  {30, false, LEASE_MISSING, 10},
        {31, false, LEASE_NOTHING_NEW, 11}, {89, false, LEASE_NOTHING_NEW, 69},
        {90, false, LEASE_MISSING, 70},     {149, false, LEASE_NOTHING_NEW, 129},
        {151, false, LEASE_MISSING, 131},   {152, true, LEASE_BACK, 132},
        {153, true, LEASE_NOTHING_NEW, 0},  {154, false, LEASE_NOTHING_NEW, 0},
        {163, false, LEASE_NOTHING_NEW, 9}, {164, false, LEASE_MISSING, 10},
    };
    struct lease_watch watch = {0};
    int64_t seconds;

    (void)state;
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        assert_int_equal(lease_look(&watch, looks[i].valid, looks[i].at_s * 1000000, &seconds),
                         looks[i].word);
        assert_int_equal(seconds, looks[i].seconds);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_runs_from_the_sending_of_the_named_heartbeat),
        cmocka_unit_test(an_older_renewal_takes_nothing_away),
        cmocka_unit_test(unknown_heartbeats_renew_nothing),
        cmocka_unit_test(a_late_renewal_revives_it),
        cmocka_unit_test(its_lack_is_told_after_10_s_and_once_a_minute),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
