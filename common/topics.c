/* SPDX-License-Identifier: Apache-2.0 */
#include "common/topics.h"

#include <stdio.h>

/* Requests have no time limit: a waiting request must not vanish, however late it is; the scheduler
 * trims them by DeleteRecords. Results stay two weeks for whoever collects late; usage and dead
 * letters a month, since ledger and people may be away over a holiday; tokens a day, as they are
 * worth little once the result is there. */
const struct topic_spec topic_specs[TOPIC_COUNT] = {
    [TOPIC_REQUESTS_INTERACTIVE] = {"requests.interactive", 4, "delete", "-1"},
    [TOPIC_REQUESTS_BULK] = {"requests.bulk", 4, "delete", "-1"},
    [TOPIC_ASSIGNMENTS] = {"assignments", 0, "delete", "86400000"},
    [TOPIC_WORKER_EVENTS] = {"worker-events", 0, "delete", "604800000"},
    [TOPIC_TOKENS] = {"tokens", 4, "delete", "86400000"},
    [TOPIC_RESULTS] = {"results", 4, "delete", "1209600000"},
    [TOPIC_USAGE] = {"usage", 4, "delete", "2592000000"},
    [TOPIC_STATE] = {"state", 1, "compact", "-1"},
    [TOPIC_CONTROL] = {"control", 1, "compact", "-1"},
    [TOPIC_DEAD_LETTERS] = {"dead-letters", 1, "delete", "2592000000"},
    [TOPIC_LEADER] = {"leader", 1, "delete", "86400000"},
};

void topic_name(char name[TOPIC_NAME_SIZE_MAX], const char *prefix, enum topic topic)
{
    snprintf(name, TOPIC_NAME_SIZE_MAX, "%s%s", prefix, topic_specs[topic].name);
}
