/*
 * session_ops: the ops of `session` about a session's tokens and what is kept of them (PROTOCOL 4): probe, export,
 * import, prewarm, save, restore, drop. One frame answers each, and the task is ended.
 *
 *   probe, export, import    at once
 *   prewarm                  RUNNING: the tokens are an anonymous request that generates nothing, so the session stays
 *                            what it is; cancelled, its frame is the `done` of a cancelled request
 *   save, restore, drop      by the preparer's thread, which alone touches files; before and after it the session is
 *                            looked at here
 *
 * All but drop wait for what was read before them on their session, and what was read after them waits for them
 * (task.h). An unknown session is `unknown_id` and is not made; import and restore make it.
 *
 * Thread: the engine's.
 */
#ifndef HEARTH_WORKER_SESSION_OPS_H
#define HEARTH_WORKER_SESSION_OPS_H

#include <stdbool.h>

#include "worker/desk.h"

/* probe, export, import. */
void session_op_answer(task *k);
/* WAITING → RUNNING, or its end. */
void session_op_prewarm(task *k);
/* save, restore and drop before the preparer has them; true for all other tasks. false: it was refused, and is ended. */
bool session_op_begin(task *k);
/* PREPARED → its end: save, restore, drop. */
void session_op_finish(task *k);

#endif
