/*
 * worker_link: one worker process and its queue of jobs, plain dialect: one request at a time, the rest wait
 * first come, first served.
 *
 *   DOWN ──start──► STARTING ──ready frame──► READY          (jobs wait in DOWN, STARTING and LOSING)
 *    ▲                 │                        │
 *    └──reaped── LOSING ◄──EOF, broken frame, failed write, exit──┘      worker_link_stop: ► STOPPED
 *
 * A lost worker fails its running job and those that wait (ST_WORKER_CRASHED) and is started again: at once
 * if it had been ready for LINK_STEADY_S, else after LINK_RESTART_S. After LINK_MAX_FAILED_STARTS starts in a
 * row that gave no ready frame, or at once if the very first start says load_failed or cannot be executed,
 * the link gives up: the reason is logged and `failed` is called.
 *
 * A job ends exactly once: with a last frame (done or error), with on_lost, or with worker_link_drop.
 *
 * Loop thread only. No callback is called from inside worker_link_open, _submit or _drop; worker_link_stop
 * calls on_lost and may call stopped. Limits: 256 jobs and LINK_MAX_WAITING_BYTES of their
 * lines wait; a frame has at most LINK_MAX_FRAME_BYTES.
 */
#ifndef HEARTH_SERVE_WORKER_LINK_H
#define HEARTH_SERVE_WORKER_LINK_H

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/status.h"
#include "wire/frame.h"

#define LINK_RESTART_S         1
#define LINK_STEADY_S          1
#define LINK_MAX_FAILED_STARTS 3
#define LINK_STOP_GRACE_S      2 /* from SIGTERM to SIGKILL */
#define LINK_MAX_FRAME_BYTES   ((size_t)16 << 20)
#define LINK_MAX_WAITING_BYTES ((size_t)256 << 20)

typedef enum job_place { JOB_OUTSIDE, JOB_WAITING, JOB_RUNNING } job_place;

typedef struct worker_job {
    /* The owner's, set before submit. */
    buf line; /* owned by the job: one request with its '\n'; given back once the worker has it */
    void (*on_frame)(void *ctx,
                     const frame *f); /* FRAME_TOKEN; FRAME_DONE or FRAME_ERROR, which is the last */
    void (*on_lost)(void *ctx, const err *why); /* ST_WORKER_CRASHED or ST_DRAINING */
    void *ctx;
    /* The link's. */
    job_place place;
    size_t line_bytes;
    struct worker_job *prev, *next;
} worker_job;

typedef struct worker_model { /* of the last ready frame; strings are cut */
    char arch[64], quant[64];
    uint64_t params;
    int32_t context_length, vocab_size;
} worker_model;

typedef struct worker_link_config { /* borrowed until worker_link_free */
    char *const *argv;              /* NULL-terminated; [0] is the path of the program */
    const clock_src *clock;
    void (*ready)(void *ctx);   /* each time a worker has become ready */
    void (*failed)(void *ctx);  /* no worker can be had */
    void (*stopped)(void *ctx); /* once after worker_link_stop: no process is left */
    void *ctx;
} worker_link_config;

typedef struct worker_link worker_link;

/* Does not start the worker yet. */
status worker_link_open(struct event_base *base, const worker_link_config *cfg, worker_link **out, err *e);
void worker_link_start(worker_link *l);
/* Kills what is left, and waits for it. */
void worker_link_free(worker_link *l);
/* ST_QUEUE_FULL, or ST_DRAINING after worker_link_stop: then the job is not the link's. */
status worker_link_submit(worker_link *l, worker_job *job, err *e);
/* Nobody wants the job any more; its callbacks are not called again. A waiting one is never sent; the reply
 * of a running one is read to its end and dropped. Of a job that has ended: nothing. */
void worker_link_drop(worker_link *l, worker_job *job);
/* Fails all jobs with ST_DRAINING and ends the worker: SIGTERM, after LINK_STOP_GRACE_S SIGKILL. */
void worker_link_stop(worker_link *l);
/* The model of the ready worker, NULL while there is none. */
const worker_model *worker_link_model(const worker_link *l);

#endif
