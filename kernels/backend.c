/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/backend.h"

#include <stdio.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/ref/ref.h"

/* Slowest first: auto takes the last that runs here. */
static const struct backend *const backends[] = {
    &backend_ref,
    &backend_cpu_avx2,
    &backend_cpu_avx512,
    &backend_cpu_avx512bf16,
};

enum { N_BACKENDS = sizeof backends / sizeof backends[0] };

/* Asks the processor and, for the wide registers, whether the system saves them. */
static bool runs_here(const struct backend *backend)
{
    if (backend == &backend_ref)
        return true;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return false;
    if (backend == &backend_cpu_avx2)
        return true;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return false;
    return backend == &backend_cpu_avx512 || __builtin_cpu_supports("avx512bf16");
}

bool backend_find(const char *name, const struct backend **backend, struct err *err)
{
    const bool best = strcmp(name, "auto") == 0 || strcmp(name, "cpu") == 0;
    const struct backend *found = NULL;
    char names[160] = "auto";
    size_t length = strlen(names);

    for (size_t i = 0; i < N_BACKENDS; i++) {
        if (!runs_here(backends[i]))
            continue;
        if (best || strcmp(name, backends[i]->name) == 0)
            found = backends[i];
        length +=
            (size_t)snprintf(names + length, sizeof names - length, ", %s", backends[i]->name);
    }
    if (!found || (strcmp(name, "cpu") == 0 && found == &backend_ref))
        return err_set(err, ERR_FATAL,
                       "kernels: this machine has no back end called %s; possible are %s", name,
                       names);
    *backend = found;
    return true;
}
