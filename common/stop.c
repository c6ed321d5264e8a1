/* SPDX-License-Identifier: Apache-2.0 */
#include "common/stop.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

#include "common/check.h"

/* The one mutable global: a signal handler can reach nothing else. Relaxed: it carries no data, and
 * atomic because every thread reads it. */
static _Atomic sig_atomic_t stop_flag;

static void on_signal(int number)
{
    (void)number;
    atomic_store_explicit(&stop_flag, 1, memory_order_relaxed);
}

void stop_install(void)
{
    /* SA_RESETHAND: the second signal meets the default action. No SA_RESTART: blocking calls
     * return. */
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    struct sigaction ignore = {.sa_handler = SIG_IGN};

    sigemptyset(&action.sa_mask);
    sigemptyset(&ignore.sa_mask);
    CHECK(sigaction(SIGTERM, &action, NULL) == 0);
    CHECK(sigaction(SIGINT, &action, NULL) == 0);
    CHECK(sigaction(SIGPIPE, &ignore, NULL) == 0);
}

bool stop_requested(void)
{
    return atomic_load_explicit(&stop_flag, memory_order_relaxed) != 0;
}

void stop_request(void)
{
    atomic_store_explicit(&stop_flag, 1, memory_order_relaxed);
}
