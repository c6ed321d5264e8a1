/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/suspect.h"

/* With the ledger's pauses between: some 1 s, then 5 s. */
enum { BATCH_ABORTS_MAX = 3, ROW_ABORTS_MAX = 3 };

static bool is_suspect(const struct suspect *suspect, const struct row *row)
{
    return suspect->row_aborts > 0 && suspect->partition == row->partition &&
           suspect->offset == row->offset;
}

bool suspect_alone(const struct suspect *suspect)
{
    return suspect->batch_aborts >= BATCH_ABORTS_MAX;
}

bool suspect_guilty(const struct suspect *suspect, const struct row *row)
{
    return is_suspect(suspect, row) && suspect->row_aborts >= ROW_ABORTS_MAX;
}

void suspect_row_aborted(struct suspect *suspect, const struct row *row)
{
    suspect->row_aborts = is_suspect(suspect, row) ? suspect->row_aborts + 1 : 1;
    suspect->partition = row->partition;
    suspect->offset = row->offset;
}

void suspect_batch_aborted(struct suspect *suspect)
{
    suspect->batch_aborts++;
}

void suspect_batch_booked(struct suspect *suspect)
{
    *suspect = (struct suspect){0};
}
