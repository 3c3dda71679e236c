/*
 * reply: one generation of either dialect, from its token ids to its last frame.
 *
 * reply_submit checks everything that needs the model before it touches the session: a request it refuses is
 * answered by one error frame and leaves the session's ids, dirty mark and pages as they were (a session that
 * did not exist still does not). Otherwise the engine has it, and the frames come out of engine_step, through
 * the sinks in here, into the output's stage. With the last frame the task is ended (tasks_end).
 *
 * Multiplexed: `accepted` comes first; every generated id is in exactly one frame, also one without text; text
 * that the end releases is in a frame without ids.
 *
 * A reply that began elsewhere (`resume`) is heard again inside reply_submit, in silence up to the frame of its last
 * token; what is said from there on is what it would have said there. One that is cut before the engine has it says
 * nothing of what was held back.
 *
 * Once the worker is halted nothing is said any more: what runs is dropped.
 *
 * Thread: the engine's.
 */
#ifndef HEARTH_WORKER_REPLY_H
#define HEARTH_WORKER_REPLY_H

#include "worker/desk.h"
#include "worker/task.h"

#define REPLY_PROGRESS_MS 500 /* at most one progress frame in that time */

/* PREPARED -> RUNNING, or its end. */
void reply_submit(task *k);
/* Ends a task that the engine does not have: FINISH_CANCELLED or FINISH_TIMEOUT; guard "" = none. */
void reply_cut(task *k, finish_reason reason, const char *guard);
/* Ends it by an error frame. */
void reply_fail(task *k, const err *e);
/* RUNNING: says how far the prompt is, if it is time. */
void reply_progress(task *k, uint64_t now_ns);
/* RUNNING: while held it computes nothing. */
void reply_hold(task *k, bool held);

#endif
