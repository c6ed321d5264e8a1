/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/sqlstate.h"

#include <string.h>

enum err_kind sqlstate_kind(const char *state)
{
    static const struct {
        const char *prefix;
        enum err_kind kind;
    } kinds[] = {
        /* see migrations/deploy/kafka_offset.sql */
        {"PL001", ERR_FATAL},
        {"PL002", ERR_RETRY},
        {"PL003", ERR_FATAL},
        /* Of the record: a value or row that the tables do not take. 54 is a limit of the server,
         * such as the 2,704 bytes of an index entry; P0 what a trigger raises. */
        {"21", ERR_REJECT},
        {"22", ERR_REJECT},
        {"23", ERR_REJECT},
        {"44", ERR_REJECT},
        {"54", ERR_REJECT},
        {"P0", ERR_REJECT},
        /* Of the moment: connection, transaction, room, locks, an operator, the machine. */
        {"08", ERR_RETRY},
        {"25", ERR_RETRY},
        {"40", ERR_RETRY},
        {"53", ERR_RETRY},
        {"55", ERR_RETRY},
        {"57", ERR_RETRY},
        {"58", ERR_RETRY},
        {"F0", ERR_RETRY},
        /* Of the installation: rights, names, tables, damaged data. No record is to blame, and
         * somebody has to mend it: sqlstate_stays() has those that do not mend by themselves. */
        {"0A", ERR_RETRY},
        {"28", ERR_RETRY},
        {"3D", ERR_RETRY},
        {"3F", ERR_RETRY},
        {"42", ERR_RETRY},
        {"XX001", ERR_RETRY},
        {"XX002", ERR_RETRY},
    };

    for (size_t i = 0; state && i < sizeof kinds / sizeof *kinds; i++)
        if (!strncmp(state, kinds[i].prefix, strlen(kinds[i].prefix)))
            return kinds[i].kind;
    return ERR_ABORT;
}

bool sqlstate_stays(const char *state)
{
    static const char *const states[] = {"22023", "42501", "42704", "3F000",
                                         "42P01", "42883", "42703"};

    for (size_t i = 0; state && i < sizeof states / sizeof *states; i++)
        if (!strcmp(state, states[i]))
            return true;
    return false;
}

bool sqlstate_refused(const char *text)
{
    static const char *const refusals[] = {
        "does not exist",
        "password authentication failed",
        "Peer authentication failed",
        "Ident authentication failed",
        "certificate authentication failed",
        "no pg_hba.conf entry",
        "pg_hba.conf rejects",
        "is not permitted to log in",
    };
    const char *fatal = strstr(text, "FATAL: ");

    if (!strncmp(text, "invalid ", 8) || !strncmp(text, "missing \"", 9))
        return true;
    for (size_t i = 0; fatal && i < sizeof refusals / sizeof *refusals; i++)
        if (strstr(fatal, refusals[i]))
            return true;
    return false;
}
