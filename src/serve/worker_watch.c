#include "serve/worker_watch.h"

#define NS_PER_MS 1000000u

void worker_watch_reset(worker_watch *w, uint64_t now_ns)
{
    *w = (worker_watch){.since_ns = now_ns, .tick_ns = now_ns};
}

/* How much later than due the tick has come, if that is too much for a busy machine. */
static uint64_t lateness(const worker_watch *w, uint64_t now_ns, uint64_t tick_ms)
{
    uint64_t due_ns = w->tick_ns + tick_ms * NS_PER_MS;
    uint64_t late_ns = now_ns > due_ns ? now_ns - due_ns : 0;
    return late_ns >= (uint64_t)WATCH_LATE_MS * NS_PER_MS ? late_ns : 0;
}

uint64_t worker_watch_tick(worker_watch *w, uint64_t now_ns, uint64_t tick_ms, bool working,
                           const status_snapshot *page, uint64_t *lost_ns)
{
    *lost_ns = lateness(w, now_ns, tick_ms);
    w->since_ns += *lost_ns;
    w->tick_ns = now_ns;
    if (!working || !w->working || status_page_moved(&w->seen, page)) {
        w->since_ns = now_ns;
    }
    w->working = working;
    w->seen = *page;
    return now_ns - w->since_ns;
}
