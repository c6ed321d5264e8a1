/* SPDX-License-Identifier: Apache-2.0
 *
 * ring - a bounded queue of pointers between threads.
 *
 * Any number of producers, one consumer. Order is kept per producer. Nothing blocks but
 * ring_wait(); a full ring refuses, and its producer decides what that means.
 * The ring never owns what the pointers point to: a successful push hands the object to the
 * consumer, a refused one leaves it with the producer.
 */
#ifndef COMMON_RING_H
#define COMMON_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ring;

struct ring *ring_open(size_t capacity); /* in pointers, at least 1 */
void ring_close(struct ring *ring); /* must be empty of what somebody must free; NULL is allowed */

bool ring_push(struct ring *ring, void *item); /* false: full. item is not NULL. Any thread. */
void *ring_pop(struct ring *ring);             /* NULL: empty. Consumer only. */
size_t ring_count(struct ring *ring);          /* any thread; a snapshot */

/* Waits until an item is there, somebody calls ring_wake(), or the time is over.
 * True where an item is there. Consumer only. */
bool ring_wait(struct ring *ring, int64_t timeout_ms);
void ring_wake(struct ring *ring); /* any thread */

#endif
