/*
 * worker_proc: starts a worker process: two pipes on its stdin and stdout, our stderr, its own process group,
 * killed by the kernel when the thread that started it ends (so also by any death of the daemon).
 *
 * What the worker inherits: descriptors 0, 1 and 2 and, if there is one, the status page, whose number stands
 * in its environment under WORKER_STATUS_FD_NAME; nothing else stays open over exec. The environment is ours,
 * except that the names by which a worker finds inherited descriptors are taken out first: what they say
 * speaks of our descriptors, not of its own. Signals have their default action and none is blocked.
 *
 * Loop thread only (the parent-death signal is tied to the thread that forks, and environ is read). Our ends
 * of the pipes are non-blocking and close-on-exec; the caller owns them and must reap pid.
 */
#ifndef HEARTH_SERVE_WORKER_PROC_H
#define HEARTH_SERVE_WORKER_PROC_H

#include <sys/types.h>

#include "base/status.h"

#define WORKER_STATUS_FD_NAME "HEARTH_WORKER_STATUS_FD"

typedef struct worker_proc_options {
    char *const *argv; /* argv[0] is the path of the program; NULL-terminated */
    char *more;        /* one word behind them; NULL = none */
    int status_fd;     /* the caller's, stays his and may be close-on-exec; -1 = none */
} worker_proc_options;

typedef struct worker_proc {
    pid_t pid;
    int to_fd;   /* its stdin */
    int from_fd; /* its stdout */
} worker_proc;

/* Waits until it runs, which is when exec has read the file's head. ST_IO with the reason, or ST_NOMEM, if it
 * cannot be started; then nothing is left behind. */
status worker_proc_start(const worker_proc_options *opt, worker_proc *out, err *e);

#endif
