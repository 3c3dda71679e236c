/*
 * desk: what every request of a worker is served with. Plain data, all of it borrowed; made once.
 */
#ifndef HEARTH_WORKER_DESK_H
#define HEARTH_WORKER_DESK_H

#include <stdint.h>

#include "base/clock.h"
#include "engine/engine.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "wire/status_page.h"
#include "worker/control.h"
#include "worker/halt.h"
#include "worker/output.h"
#include "worker/saved.h"
#include "worker/sessions.h"
#include "worker/task.h"
#include "worker/turns.h"

typedef struct desk {
    engine *en;
    const tokenizer *tok;
    const chat_template *chat; /* NULL: no request for it gets past the preparer */
    const clock_src *clock;
    int32_t n_ctx;
    size_t n_lanes;
    turns *kept; /* what was said in conversations; NULL: nothing is remembered */
    sessions *sessions;
    const saved *saved; /* the preparer's; NULL: there is no store */
    tasks *tasks;
    output *out;
    const halt *halt;
    control *control;
    status_page *page;
} desk;

/* Says on the status page for whom the engine thread works outside a step; 0 = for nobody. Returns who it was before. */
static inline uint64_t desk_attend(const desk *d, uint64_t id_hash)
{
    uint64_t before = d->tasks->attended;
    d->tasks->attended = id_hash;
    status_page_set(d->page, STATUS_ROW_ATTENDED, id_hash);
    return before;
}

/* The engine's figures, and in its three counts of requests also those that ended before it had them. */
static inline engine_stats desk_stats(const desk *d)
{
    engine_stats s;
    engine_stats_read(d->en, &s);
    s.requests_done += d->tasks->n_done;
    s.requests_failed += d->tasks->n_failed;
    s.requests_cancelled += d->tasks->n_cancelled;
    return s;
}

#endif
