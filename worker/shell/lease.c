/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/shell/lease.h"

enum { MISSING_US = 10000000, AGAIN_US = 60000000 };

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

enum lease_word lease_look(struct lease_watch *watch, bool valid, int64_t now_us, int64_t *seconds)
{
    const struct lease_watch before = *watch;

    *seconds = before.since_us ? (now_us - before.since_us) / 1000000 : 0;
    if (valid) {
        *watch = (struct lease_watch){0};
        return before.told_us ? LEASE_BACK : LEASE_NOTHING_NEW;
    }
    if (before.since_us == 0)
        watch->since_us = now_us;
    if (now_us < (before.told_us ? before.told_us + AGAIN_US : watch->since_us + MISSING_US))
        return LEASE_NOTHING_NEW;
    watch->told_us = now_us;
    return LEASE_MISSING;
}
