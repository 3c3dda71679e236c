/*
 * worker_proc: starts a worker process: two pipes on its stdin and stdout, our stderr, its own process group,
 * killed by the kernel when the thread that started it ends.
 *
 * Loop thread only (the parent-death signal is tied to the thread that forks). Our ends of the pipes are
 * non-blocking and close-on-exec; the caller owns them and must reap pid.
 */
#ifndef HEARTH_SERVE_WORKER_PROC_H
#define HEARTH_SERVE_WORKER_PROC_H

#include <sys/types.h>

#include "base/status.h"

typedef struct worker_proc {
    pid_t pid;
    int to_fd;   /* its stdin */
    int from_fd; /* its stdout */
} worker_proc;

/* argv[0] is the path of the program. Waits until it runs, which is when exec has read the file's head.
 * ST_IO with the reason if it cannot be started; then nothing is left behind. */
status worker_proc_start(char *const argv[], worker_proc *out, err *e);

#endif
