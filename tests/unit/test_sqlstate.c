/* SPDX-License-Identifier: Apache-2.0
 *
 * Whom codes and texts of PostgreSQL are about.
 */
#include "ledger/sqlstate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define CONNECTION "connection to server at \"127.0.0.1\", port 5432 failed: "

static void codes(void **state)
{
    static const struct {
        const char *state;
        enum err_kind kind;
        bool stays;
    } cases[] = {
        {"22P02", ERR_REJECT, false}, /* a text that is no number */
        {"23505", ERR_REJECT, false}, {"54000", ERR_REJECT, false},
        {"40001", ERR_RETRY, false},  {"53300", ERR_RETRY, false}, /* too many connections */
        {"57P03", ERR_RETRY, false},                               /* starting up */
        {"28P01", ERR_RETRY, false}, /* of a ledger that was let in before */
        {"42501", ERR_RETRY, true},   {"42P01", ERR_RETRY, true},
        {"22023", ERR_REJECT, true}, /* role "x" does not exist */
        {"PL001", ERR_FATAL, false},  {"PL002", ERR_RETRY, false},
        {"XX000", ERR_ABORT, false},  {NULL, ERR_ABORT, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(sqlstate_kind(cases[i].state), cases[i].kind);
        assert_int_equal(sqlstate_stays(cases[i].state), cases[i].stays);
    }
}

static void texts(void **state)
{
    static const char *const refused[] = {
        "invalid connection option \"portt\"\n",
        "missing \"=\" after \"x\" in connection info string\n",
        CONNECTION "FATAL:  password authentication failed for user \"x\"\n",
        CONNECTION "FATAL:  role \"x\" does not exist\n",
        CONNECTION "FATAL:  database \"x\" does not exist\n",
        CONNECTION "FATAL:  role \"x\" is not permitted to log in\n",
        CONNECTION "FATAL:  no pg_hba.conf entry for host \"10.0.0.1\", user \"x\"\n",
    };
    static const char *const waited_for[] = {
        CONNECTION "Connection refused\n\tIs the server running on that host?\n",
        CONNECTION "FATAL:  the database system is starting up\n",
        CONNECTION "FATAL:  sorry, too many clients already\n",
        CONNECTION "FATAL:  LDAP authentication failed for user \"x\"\n",
        "could not translate host name \"x\" to address: the name does not exist\n",
        "",
    };

    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (!sqlstate_refused(refused[i]))
            fail_msg("waited for: %s", refused[i]);
    for (size_t i = 0; i < sizeof waited_for / sizeof *waited_for; i++)
        if (sqlstate_refused(waited_for[i]))
            fail_msg("refused: %s", waited_for[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(codes), cmocka_unit_test(texts)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
