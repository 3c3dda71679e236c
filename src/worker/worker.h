/*
 * worker: one loaded model behind the worker protocol, on two descriptors (PROTOCOL 1 to 4).
 *
 * worker_run loads the model, says `ready`, answers lines, and returns the exit status of the process. Threads
 * (DESIGN 2): a reader (in_fd and the control pipe -> inbox), the caller's as the engine thread, a preparer
 * (texts -> ids), a writer (out_fd). While a reply runs and out_fd is blocked lines are still read, EOF is
 * seen and signals act; the engine never waits for a descriptor.
 *
 * Everything from outside the process is opened before the first thread and before a byte of the model is
 * parsed; then the process is shut in (sandbox.h), for good.
 *
 * It is a process layer: it ignores SIGPIPE, and from `ready` on catches SIGTERM and SIGINT (before that they
 * have the action they had). All are given back when it returns. One call at a time per process.
 */
#ifndef HEARTH_WORKER_WORKER_H
#define HEARTH_WORKER_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/instance.h"

#define WORKER_DEFAULT_SESSIONS 8
#define WORKER_MAX_SESSIONS     1024
#define WORKER_SLOW_READER_MS   120000

/* Exit statuses. What a signal or a lost reader would have given without us, as a shell shows it, is kept. */
#define WORKER_EXIT_OK          0   /* EOF or drain, everything answered; or shutdown */
#define WORKER_EXIT_LOAD_FAILED 1   /* after one error frame with code load_failed */
#define WORKER_EXIT_BROKEN      2   /* threads, descriptors or memory for frames could not be had: logged */
#define WORKER_EXIT_SIGINT      130 /* 128 + SIGINT */
#define WORKER_EXIT_OUTPUT_GONE 141 /* 128 + SIGPIPE */
#define WORKER_EXIT_SIGTERM     143 /* 128 + SIGTERM */

typedef struct worker_config {
    const char *model_path;
    int32_t max_sessions; /* slots, the anonymous one included: 1 (no named sessions) … WORKER_MAX_SESSIONS */
    bool warm;            /* false: nothing is ever reused (--no-warm) */
    const int32_t *prefix_ids; /* before every prompt */
    size_t n_prefix_ids;
    const char *chat_template; /* in place of the model's; NULL = the model's, or the built-in one */
    const char *tool_format;   /* a name of text/reply_format.h; NULL = what the template looks like */
    const char *
        store_dir; /* the store's folder, below which the model has its own; NULL = nothing is kept on disk */
    instance_options
        instance;      /* max_sequences and warm are taken from above, store_dir is below the one above */
    int in_fd, out_fd; /* the caller's; one socket may be both */
    const char *control_fd;  /* what the environment calls the cancel pipe; NULL = there is none */
    int status_fd;           /* of the status page, taken; -1 = a private one */
    uint64_t slow_reader_ms; /* after that a paused request ends */
    bool sandbox;            /* false: for debuggers */
    bool plan_only;          /* one line that says what it would take (plan_line.h), then the end */
} worker_config;

worker_config worker_config_default(const char *model_path); /* 8 slots, warm, stdin and stdout */
int worker_run(const worker_config *cfg);

#endif
