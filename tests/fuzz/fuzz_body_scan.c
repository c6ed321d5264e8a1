/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_body_scan - any bytes as a request's body: the scan stays inside them.
 */
#include <stddef.h>
#include <stdint.h>

#include "scheduler/body_scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    body_max_tokens((struct str){(const char *)data, size}, 1);
    return 0;
}
