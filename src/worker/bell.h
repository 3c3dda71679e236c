/*
 * bell: how the other threads wake the engine thread when it has nothing to do.
 *
 * Any thread rings; only the engine thread waits. A ring is never lost: one that comes before the wait ends
 * it at once. Rings are not counted; who wakes looks at everything.
 */
#ifndef HEARTH_WORKER_BELL_H
#define HEARTH_WORKER_BELL_H

#include "base/status.h"
#include "worker/halt.h"

#define BELL_FOREVER (-1)

typedef struct bell {
    int fd; /* owned: eventfd */
} bell;

status bell_open(bell *b, err *e);
void bell_close(bell *b);
void bell_ring(const bell *b);
/* Returns when the bell was rung since the last wait, when h was asked, or after timeout_ms. */
void bell_wait(const bell *b, const halt *h, int timeout_ms);

#endif
