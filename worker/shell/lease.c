/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/shell/lease.h"

void lease_init(struct lease *lease, int64_t length_us)
{
    *lease = (struct lease){.length_us = length_us};
}

int64_t lease_heartbeat(struct lease *lease, int64_t now_us)
{
    lease->seq++;
    lease->sent_us[lease->seq % LEASE_HEARTBEATS] = now_us;
    return lease->seq;
}

bool lease_renew(struct lease *lease, int64_t heartbeat_seq)
{
    int64_t until_us;

    if (heartbeat_seq < 1 || heartbeat_seq > lease->seq ||
        heartbeat_seq <= lease->seq - LEASE_HEARTBEATS)
        return false;
    until_us = lease->sent_us[heartbeat_seq % LEASE_HEARTBEATS] + lease->length_us;
    if (until_us <= lease->until_us)
        return false;
    lease->until_us = until_us;
    return true;
}

bool lease_valid(const struct lease *lease, int64_t now_us)
{
    return now_us < lease->until_us;
}
