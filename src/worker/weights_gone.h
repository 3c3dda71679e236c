/*
 * weights_gone: ends a worker whose model's file was cut short (or whose disk fails) under the mapping of its weights: reading
 * them raises SIGBUS, and without them nothing that runs can go on. Any other SIGBUS has the effect that it always has.
 *
 * One instance at a time in a process is watched. Any thread may meet the signal.
 */
#ifndef HEARTH_WORKER_WEIGHTS_GONE_H
#define HEARTH_WORKER_WEIGHTS_GONE_H

#include "base/status.h"
#include "engine/instance.h"

/* From now on SIGBUS in the mappings of the instance exits with WORKER_EXIT_MODEL_CHANGED. in: borrowed until
 * weights_gone_forget. */
status weights_gone_watch(const instance *in, err *e);
void weights_gone_forget(void); /* also if none was watched */

#endif
