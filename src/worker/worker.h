/*
 * worker: one loaded model behind the worker protocol, on two descriptors (PROTOCOL 1 and 2, plain dialect).
 *
 * worker_run loads the model, says `ready`, answers lines in order, each carried to its last frame before the
 * next is looked at, and returns the exit status of the process. Three threads (DESIGN 2): a reader (in_fd ->
 * lines -> inbox), the caller's as the engine thread, a writer (out_fd). While a reply runs and out_fd is
 * blocked lines are still read, EOF is seen and signals act; the engine never waits for a descriptor.
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

/* Exit statuses. What a signal or a lost reader would have given without us, as a shell shows it, is kept. */
#define WORKER_EXIT_OK          0   /* EOF, everything answered */
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
    instance_options instance; /* max_sequences and warm are taken from above */
    int in_fd, out_fd;         /* the caller's; one socket may be both */
} worker_config;

worker_config worker_config_default(const char *model_path); /* 8 slots, warm, stdin and stdout */
int worker_run(const worker_config *cfg);

#endif
