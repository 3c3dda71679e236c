/*
 * reply: one generation of the plain dialect, from the request to its terminal frame.
 *
 * reply_start checks everything that needs the model before it touches the session: a request it refuses is
 * answered by one error frame and leaves the session's ids, dirty mark and pages as they were (a session that
 * did not exist still does not). Otherwise the engine has it, and the frames come out of engine_step, through
 * the sinks in here, into the output's stage; the last of them is the terminal one, and then reply_running is
 * false.
 *
 * Once the worker is halted nothing is said any more: what runs is dropped.
 *
 * Thread: the engine's. One at a time.
 */
#ifndef HEARTH_WORKER_REPLY_H
#define HEARTH_WORKER_REPLY_H

#include <stdbool.h>

#include "base/clock.h"
#include "base/vec.h"
#include "engine/engine.h"
#include "text/tokenizer.h"
#include "wire/request.h"
#include "worker/halt.h"
#include "worker/output.h"
#include "worker/sessions.h"

typedef struct reply {
    /* borrowed, set by the caller */
    engine *en;
    const tokenizer *tok;
    const clock_src *clock;
    const ivec *prefix; /* ids before every prompt */
    int32_t n_ctx;
    sessions *sessions;
    output *out;
    const halt *halt;

    sequence *seq; /* borrowed from the engine while running */
    bool running;
    uint64_t taken_ns; /* when the request was taken up */
} reply;

void reply_start(reply *p, const wire_request *r);
bool reply_running(const reply *p);
/* EMIT_WAIT: while held it computes nothing. */
void reply_hold(reply *p, bool held);

#endif
