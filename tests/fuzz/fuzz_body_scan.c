/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_body_scan - any bytes as a request's body: the scans stay inside them.
 */
#include <stddef.h>
#include <stdint.h>

#include "scheduler/body_scan.h"
#include "scheduler/prefix.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str body = {(const char *)data, size};
    struct prefix_chain chain;

    body_max_tokens(body, 1);
    prefix_keys(body);
    prefix_chain(body, 1, &chain);
    return 0;
}
