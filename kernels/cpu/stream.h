/* SPDX-License-Identifier: Apache-2.0
 *
 * stream - how CPU kernels reach the threads of their stream's device.
 */
#ifndef KERNELS_CPU_STREAM_H
#define KERNELS_CPU_STREAM_H

#include "kernels/cpu/pool.h"
#include "kernels/device.h"

struct pool *stream_pool(const struct stream *stream);

#endif
