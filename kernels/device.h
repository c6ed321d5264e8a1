/* SPDX-License-Identifier: Apache-2.0
 *
 * device - where kernels run: its memory, its streams, its events.
 *
 * Written so that a GPU fits behind it: memory belongs to a device, work is
 * enqueued on a stream and is done after stream_sync. The CPU device runs a
 * kernel at once, inside the call, on its own threads; its memory is ordinary
 * memory, aligned to 64 bytes, so that host pointers (a mapped model file)
 * are device pointers too.
 *
 * A device and its streams belong to one thread at a time.
 */
#ifndef KERNELS_DEVICE_H
#define KERNELS_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#ifdef __cplusplus
extern "C" {
#endif

struct device;
struct stream;
struct event;

enum device_kind {
    DEVICE_CPU,
};

struct device_options {
    enum device_kind kind;
    uint32_t n_threads; /* CPU: threads a kernel may use, the caller's included; 0: one per core
                         * that this process may run on; at most 256 */
};

/* ERR_FATAL when threads cannot be started or n_threads is too large. */
bool device_open(struct device_options options, struct device **device, struct err *err);
/* All its memory, streams and events must be gone. NULL is allowed. */
void device_close(struct device *device);
uint32_t device_n_threads(const struct device *device);

/* Zeroed memory of size bytes, 64-byte aligned; size 0 gives a valid pointer. ERR_FATAL when
 * there is none. The caller frees it. */
bool device_alloc(struct device *device, size_t size, void **memory, struct err *err);
void device_free(struct device *device, void *memory); /* NULL is allowed */

bool stream_open(struct device *device, struct stream **stream, struct err *err);
void stream_close(struct stream *stream); /* NULL is allowed */
/* Wait until all that was enqueued is done; reports what failed on the way. */
bool stream_sync(struct stream *stream, struct err *err);

/* Copy size bytes between host and device memory, either way or within the device, in stream
 * order. The ranges must not overlap, and stay valid until the stream has passed. */
bool device_copy(struct stream *stream, void *to, const void *from, size_t size, struct err *err);

/* An event marks a place in a stream; other streams wait for it without the host. */
bool event_open(struct device *device, struct event **event, struct err *err);
void event_close(struct event *event); /* NULL is allowed */
bool stream_record(struct stream *stream, struct event *event, struct err *err);
bool stream_wait(struct stream *stream, struct event *event, struct err *err);

#ifdef __cplusplus
}
#endif
#endif
