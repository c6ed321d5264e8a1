/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/backend.h"

#include <string.h>

#include "kernels/ref/ref.h"

bool backend_find(const char *name, const struct backend **backend, struct err *err)
{
    if (strcmp(name, "ref") != 0 && strcmp(name, "auto") != 0)
        return err_set(err, ERR_FATAL, "kernels: no back end is called %s; possible are: auto, ref",
                       name);
    *backend = &backend_ref;
    return true;
}
