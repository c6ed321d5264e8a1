/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/steady.h"

#include "common/check.h"

void steady_init(struct steady *steady, int64_t wall_ms, int64_t mono_us)
{
    *steady = (struct steady){.wall_ns = wall_ms * 1000000, .mono_us = mono_us};
}

int64_t steady_now_ms(struct steady *steady, int64_t wall_ms, int64_t mono_us)
{
    int64_t elapsed_us = mono_us - steady->mono_us;

    CHECK(elapsed_us >= 0);
    int64_t error_ns = wall_ms * 1000000 - (steady->wall_ns + elapsed_us * 1000);
    int64_t slew_ns = elapsed_us * 100;
    if (error_ns > slew_ns)
        error_ns = slew_ns;
    if (error_ns < -slew_ns)
        error_ns = -slew_ns;
    steady->wall_ns += elapsed_us * 1000 + error_ns;
    steady->mono_us = mono_us;
    return steady->wall_ns / 1000000;
}
