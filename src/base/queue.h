/*
 * queue: a bounded FIFO of fixed-size items between threads (mutex and two conditions).
 *
 * Any number of producers and consumers. Closing wakes everybody: pushes then fail with ST_CLOSED, pops hand
 * out what is left and then fail with ST_CLOSED. Items are copied bytewise; what they point to is the user's.
 * Memory is taken once, at queue_new.
 */
#ifndef HEARTH_BASE_QUEUE_H
#define HEARTH_BASE_QUEUE_H

#include <stddef.h>

#include "base/status.h"

typedef struct queue queue;

#define QUEUE_FOREVER (-1)

status queue_new(size_t capacity, size_t item_bytes, queue **out);
void queue_free(queue *q); /* no thread may be waiting in it */
void queue_close(queue *q);
/* timeout_ms: 0 = try only, QUEUE_FOREVER = wait. ST_FULL when there is no room in time. */
status queue_push(queue *q, const void *item, int timeout_ms);
/* ST_NOT_FOUND when nothing came in time, ST_CLOSED when closed and empty. */
status queue_pop(queue *q, void *item, int timeout_ms);
size_t queue_len(queue *q);

#endif
