/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/device.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/check.h"
#include "kernels/cpu/pool.h"
#include "kernels/cpu/stream.h"

enum { ALIGNMENT = 64, N_THREADS_MAX = 256 };

struct device {
    struct pool *pool;
};

struct stream {
    struct device *device;
};

/* Streams of the CPU device are done when the call returns: there is nothing to mark. */
struct event {
    struct device *device;
};

bool device_open(struct device_options options, struct device **device, struct err *err)
{
    CHECK(options.kind == DEVICE_CPU);

    uint32_t n_threads = options.n_threads;
    if (n_threads == 0) {
        long n_cores = sysconf(_SC_NPROCESSORS_ONLN);
        n_threads = n_cores < 1 ? 1 : n_cores > N_THREADS_MAX ? N_THREADS_MAX : (uint32_t)n_cores;
    }
    if (n_threads > N_THREADS_MAX)
        return err_set(err, ERR_FATAL, "cpu device: %u threads wanted, at most %d are possible",
                       n_threads, N_THREADS_MAX);

    struct device *opened = malloc(sizeof *opened);
    if (!opened)
        return err_set(err, ERR_FATAL, "cpu device: out of memory");
    if (!pool_open(n_threads, &opened->pool, err)) {
        free(opened);
        return false;
    }
    *device = opened;
    return true;
}

void device_close(struct device *device)
{
    if (!device)
        return;
    pool_close(device->pool);
    free(device);
}

uint32_t device_n_threads(const struct device *device)
{
    return pool_n_threads(device->pool);
}

bool device_alloc(struct device *device, size_t size, void **memory, struct err *err)
{
    (void)device;
    if (size > SIZE_MAX - ALIGNMENT)
        return err_set(err, ERR_FATAL, "cpu device: %zu bytes are too many", size);

    const size_t size_padded = (size + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    void *allocated = aligned_alloc(ALIGNMENT, size_padded);
    if (!allocated)
        return err_set(err, ERR_FATAL, "cpu device: no memory for %zu bytes", size);
    memset(allocated, 0, size_padded);
    *memory = allocated;
    return true;
}

void device_free(struct device *device, void *memory)
{
    (void)device;
    free(memory);
}

bool stream_open(struct device *device, struct stream **stream, struct err *err)
{
    struct stream *opened = malloc(sizeof *opened);

    if (!opened)
        return err_set(err, ERR_FATAL, "cpu device: out of memory");
    opened->device = device;
    *stream = opened;
    return true;
}

void stream_close(struct stream *stream)
{
    free(stream);
}

bool stream_sync(struct stream *stream, struct err *err)
{
    (void)stream;
    (void)err;
    return true;
}

struct pool *stream_pool(const struct stream *stream)
{
    return stream->device->pool;
}

bool device_copy(struct stream *stream, void *to, const void *from, size_t size, struct err *err)
{
    (void)stream;
    (void)err;
    if (size > 0) /* memcpy of nothing may still not be given NULL */
        memcpy(to, from, size);
    return true;
}

bool event_open(struct device *device, struct event **event, struct err *err)
{
    struct event *opened = malloc(sizeof *opened);

    if (!opened)
        return err_set(err, ERR_FATAL, "cpu device: out of memory");
    opened->device = device;
    *event = opened;
    return true;
}

void event_close(struct event *event)
{
    free(event);
}

bool stream_record(struct stream *stream, struct event *event, struct err *err)
{
    (void)err;
    CHECK(stream->device == event->device);
    return true;
}

bool stream_wait(struct stream *stream, struct event *event, struct err *err)
{
    (void)err;
    CHECK(stream->device == event->device);
    return true;
}
