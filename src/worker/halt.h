/*
 * halt: the one way in which a worker is told to drop what runs and go: SIGTERM or SIGINT, the line
 * `shutdown`, or a reader of stdout that is gone.
 *
 * Once asked it stays asked, and the first cause counts. The engine thread looks at `on`
 * before each step and then drops what runs; `fd` is readable from then on, so that every thread that waits in
 * poll wakes.
 *
 * Threads: any may ask, a signal handler too; the one that opened it closes it, when all others have ended.
 * One worker at a time in a process may catch signals (the handler has to find it).
 */
#ifndef HEARTH_WORKER_HALT_H
#define HEARTH_WORKER_HALT_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/status.h"

/* Causes besides the number of a signal. */
#define HALT_NONE        0
#define HALT_OUTPUT_GONE (-1)
/* A frame could not be handed out: going on would leave a request without its end. */
#define HALT_BROKEN (-2)
/* The line `shutdown` came. */
#define HALT_SHUTDOWN (-3)

/* Two steps of the longest kind (DESIGN 1, P4). Nothing that is not written by then is worth more waiting. */
#define HALT_GRACE_MS 500

typedef struct halt {
    atomic_bool on;   /* release in halt_ask, acquire in halt_asked */
    atomic_int cause; /* written once, before `on` */
    int fd;           /* owned: eventfd */
    bool catching;
    struct sigaction old_term, old_int, old_pipe; /* given back by halt_close */
} halt;

/* From now on a write to a pipe without a reader fails instead of killing the process. */
status halt_open(halt *h, err *e);
void halt_close(halt *h); /* fine on one whose opening failed */
/* Async-signal-safe. */
void halt_ask(halt *h, int cause);
bool halt_asked(const halt *h);
int halt_cause(const halt *h); /* HALT_NONE until asked */
/* Ends the process by the signal that asked (SIGPIPE where the output is gone), as if nobody had caught it:
 * for a worker that was asked HALT_GRACE_MS ago and whose engine or reader thread is still
 * inside something long. */
void halt_enforce(const halt *h);
/* From now on SIGTERM and SIGINT ask (SIGINT only if it was not ignored, as a shell does for what it runs in
 * the background). A second one of the same kind kills the process as it would without us. */
status halt_catch_signals(halt *h, err *e);

#endif
