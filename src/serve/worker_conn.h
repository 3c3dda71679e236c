/*
 * worker_conn: one worker process and the connection to it: starts it, hands on its frames, and tells once
 * when it is of no use any more and once when nothing is left of it.
 *
 *   NONE ──start──► RUNNING ──EOF, exit, failed write, broken frame, kill──► LOSING ──reaped──► NONE
 *                                                      `lost` is called ──┘         └── `gone` is called
 *
 * A worker that has exited is lost when its last frames have been read, but CONN_DRAIN_S later at the latest. Both calls
 * come from the loop, never from inside a function of this file; after `lost` comes no frame. What broke the
 * protocol is told by `frame`. The daemon never stops reading a worker.
 *
 * Loop thread only. Limits: a frame has at most WIRE_MAX_LINE_BYTES. What is written is kept until the worker reads
 * it: the caller bounds it by what it sends.
 */
#ifndef HEARTH_SERVE_WORKER_CONN_H
#define HEARTH_SERVE_WORKER_CONN_H

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"
#include "serve/worker_cause.h"
#include "wire/frame.h"
#include "wire/status_page.h"

#define CONN_DRAIN_S 1 /* between the end of a worker and the end of its stdout, whichever comes first */

typedef struct worker_conn_config { /* borrowed until worker_conn_free */
    char *const *argv;              /* NULL-terminated; [0] is the path of the program */
    char *more; /* one word behind them if it is not empty, looked at with each start; or NULL */
    /* NULL, or what is wrong with the frame (static storage): then the worker is killed. One with an attachment comes
     * when that is there: frame.attached, borrowed during the call. */
    const char *(*frame)(void *ctx, const frame *f);
    void (*lost)(void *ctx);
    void (*gone)(void *ctx);
    void *ctx;
} worker_conn_config;

typedef struct worker_conn worker_conn;
struct held_bytes;

status worker_conn_open(struct event_base *base, const worker_conn_config *cfg, worker_conn **out, err *e);
void worker_conn_free(worker_conn *c); /* kills what is left, and waits for it; no call */
/* NONE only. On an error nothing is left behind and nothing is called. */
status worker_conn_start(worker_conn *c, err *e);
/* One or more whole lines. Without memory, and of a worker that is lost, nothing is sent; the former loses it. */
void worker_conn_write(worker_conn *c, const char *lines, size_t n);
/* The attachment behind the line just written; taken. As above. */
void worker_conn_write_held(worker_conn *c, struct held_bytes *h);
uint64_t worker_conn_written(const worker_conn *c); /* bytes, to this worker */
uint64_t worker_conn_taken(const worker_conn *c);   /* those of them that have left for the worker's stdin */
/* Notes why (unless something was noted before) without doing anything. */
void worker_conn_note(worker_conn *c, worker_cause cause, const char *detail);
/* Notes why and kills it: it is lost, from the loop. */
void worker_conn_kill(worker_conn *c, worker_cause cause, const char *detail);
/* Asks it to end (SIGTERM). Notes nothing. */
void worker_conn_terminate(worker_conn *c);

pid_t worker_conn_pid(const worker_conn *c);      /* 0 = no process */
bool worker_conn_suspended(const worker_conn *c); /* by a signal: SIGSTOP and its kin */
/* Why the last worker was lost; complete when `gone` is called. */
worker_cause worker_conn_cause(const worker_conn *c);
const char *worker_conn_detail(const worker_conn *c);
int worker_conn_end(
    const worker_conn *c); /* of a WORKER_KILLED the signal, of a WORKER_EXITED the status, else 0 */
void worker_conn_page(const worker_conn *c, status_snapshot *out); /* zeroes while there is none */
void worker_conn_left(const worker_conn *c,
                      status_snapshot *out); /* what the last one has left there, until the next */

#endif
