/*
 * worker_cause: why a worker is gone, for the log and the metrics. Plain data; any thread.
 */
#ifndef HEARTH_SERVE_WORKER_CAUSE_H
#define HEARTH_SERVE_WORKER_CAUSE_H

/* X(name, label) */
#define WORKER_CAUSE_LIST(X)                                                                \
    X(WORKER_EXITED, "exit")                 /* by itself */                                \
    X(WORKER_KILLED, "signal")               /* by a signal that was not ours */            \
    X(WORKER_OOM_KILLED, "oom_killed")       /* by the kernel, for memory */                \
    X(WORKER_BROKEN, "broken_protocol")      /* killed for a frame that makes no sense */   \
    X(WORKER_STALLED, "stalled")             /* killed for no progress */                   \
    X(WORKER_DEAF, "cancel_unanswered")      /* killed for not obeying a cancel */          \
    X(WORKER_LOAD_FAILED, "load_failed")     /* it said so */                               \
    X(WORKER_MODEL_CHANGED, "model_changed") /* the file under its weights was cut short */ \
    X(WORKER_NOT_STARTED, "cannot_be_started")                                              \
    X(WORKER_NO_MEMORY, "daemon_out_of_memory")                                             \
    X(WORKER_STOPPED, "stopped") /* by us, at the end */

typedef enum worker_cause {
#define X(name, label) name,
    WORKER_CAUSE_LIST(X) WORKER_CAUSE_COUNT
#undef X
} worker_cause;
const char *worker_cause_label(worker_cause c); /* static storage */

#endif
