/*
 * worker_watch: does a worker get on with its work? (PROTOCOL 6, stall)
 *
 * Told at each tick what the status page says, it tells for how long no counter has moved while there was work. Time
 * in which the daemon itself did not run (a tick that comes WATCH_LATE_MS late or more) does not count.
 *
 * Plain data; one owner thread.
 */
#ifndef HEARTH_SERVE_WORKER_WATCH_H
#define HEARTH_SERVE_WORKER_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/status_page.h"

#define WATCH_LATE_MS 1000

typedef struct worker_watch {
    bool working;      /* at the last tick */
    uint64_t since_ns; /* no counter has moved since */
    uint64_t tick_ns;  /* the last tick; 0 = none */
    status_snapshot seen;
} worker_watch;

/* Another worker, or the first tick after none were needed. */
void worker_watch_reset(worker_watch *w, uint64_t now_ns);
/* Returns the standstill in ns, 0 without work. *lost_ns: for how long the daemon did not run. */
uint64_t worker_watch_tick(worker_watch *w, uint64_t now_ns, uint64_t tick_ms, bool working,
                           const status_snapshot *page, uint64_t *lost_ns);

#endif
