/*
 * last: the end of a request, which no want of memory may put off or lose. Where there is none for a frame about a
 * request, that request fails, with an error that the output keeps room for; if even that is used up it is said in one
 * of the next turns (TASK_OWING), and the task keeps its id until then.
 *
 * Thread: the engine's.
 */
#ifndef HEARTH_WORKER_LAST_H
#define HEARTH_WORKER_LAST_H

#include "worker/desk.h"

/* The id that what is said about it carries; WIRE_NO_ID: plain. */
wire_string last_id_of(const task *k);
/* Its last frame was put into the output's stage with this result: the end. ST_OK also where nothing is said, since the
 * worker is halted. Returns whether it was as the caller put it. */
bool last_said(task *k, status st);
/* TASK_OWING: says it, if there is room. */
void last_owed(task *k);

#endif
