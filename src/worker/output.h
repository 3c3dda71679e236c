/*
 * output: the way from the engine thread to stdout, which only the writer thread in here touches.
 *
 * The engine stages frames and commits them once per step; the writer writes what was committed with one
 * call. The engine never waits: instead it asks output_has_room before each step, and while there is none
 * (OUTPUT_HIGH_BYTES are unwritten) it holds its sequences. So at most OUTPUT_HIGH_BYTES plus the frames of
 * one step are ever waiting. The buffers grow to that once and are kept; what a large frame (an export) took beyond
 * 1 MiB is given back when it is written.
 *
 * The writer also watches the other end, idle or blocked: a reader that is gone halts the worker
 * (HALT_OUTPUT_GONE). Once halted it writes what it can without waiting; if output_close does not come within
 * HALT_GRACE_MS (another thread is inside a long step, a long text or a long line) it enforces the halt.
 *
 * The descriptor is not the writer's alone (a terminal, 2>&1), so its mode is not changed if that can be
 * helped: a pipe or terminal is opened a second time, non-blocking; a socket is sent to without waiting.
 */
#ifndef HEARTH_WORKER_OUTPUT_H
#define HEARTH_WORKER_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "wire/frame.h"
#include "wire/status_page.h"
#include "worker/bell.h"
#include "worker/halt.h"

#define OUTPUT_HIGH_BYTES    ((size_t)16 << 10)
#define OUTPUT_RESERVE_BYTES ((size_t)4 << 10) /* more than the longest error without a message of its own */

typedef struct output output;

/* Opens; takes the memory. h and b are borrowed; b is rung when there is room again. fd stays the caller's. */
status output_open(int fd, halt *h, const bell *b, output **out, err *e);
/* Starts the writer thread. What was staged before is written then. page (may be NULL) is borrowed: output_bytes
 * is kept in it. */
status output_start(output *o, status_page *page, err *e);
/* Engine thread. Returns when everything staged is written, or the worker is halted; one that was not started
 * is only released. NULL is fine. */
void output_close(output *o);

/* Engine thread: where the next frame is put, in whole lines. */
buf *output_stage(output *o);
/* The result of a frame_put_… into output_stage. False where there is no memory for it: nothing of it is staged then, and
 * whoever waits for it must be told. */
bool output_check(output *o, status st);
/* In place of a frame that there was no memory for: a short error, for which room is kept (OUTPUT_RESERVE_BYTES). False
 * when that is used up; it is there again once what is staged has been handed over. */
bool output_put_last(output *o, const frame_error *f);
/* Hands what is staged to the writer. Without memory for that it stays staged, there is no room, and the bell is rung
 * when this is to be called again. */
void output_commit(output *o);
bool output_has_room(output *o); /* what is staged counts */
uint64_t output_said(output *o); /* bytes staged since the start, handed over or not */

/* Any thread: bytes written since the start. */
uint64_t output_written(output *o);

#endif
