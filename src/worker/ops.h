/*
 * ops: the lines that are answered at once: session ops of both dialects (but for what session_ops.h has), stats, and
 * lines that were refused. One frame each; then the task is ended.
 *
 * Thread: the engine's.
 */
#ifndef HEARTH_WORKER_OPS_H
#define HEARTH_WORKER_OPS_H

#include <stdbool.h>

#include "worker/desk.h"

/* Whether the task has to wait for others on its session: ops do that change it or speak of what it knows. */
bool ops_must_wait(const task *k);
/* Puts the error frame of a session op: it carries the session's name. */
status ops_put_session_error(const task *k, const err *e);
/* A session op, stats, or a refused line. draining: for stats. */
void ops_answer(task *k, bool draining);
/* The answer of a tokenize, detokenize or count that was prepared. */
void ops_answer_prepared(task *k);
/* The frame that refuses a new request, in place of answering it; the item has it as its answer then, or without memory
 * for that the id. */
void ops_refuse(inbox_item *item, const err *e);

#endif
