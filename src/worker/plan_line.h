/*
 * plan_line: the one line of `worker --plan`: what a model is and what memory it will take, before any is taken.
 */
#ifndef HEARTH_WORKER_PLAN_LINE_H
#define HEARTH_WORKER_PLAN_LINE_H

#include "base/buf.h"
#include "engine/instance.h"

/* Appends it, '\n' included; `model` was opened with plan_only. ST_NOMEM. */
status plan_line_put(buf *out, const instance *model);

#endif
