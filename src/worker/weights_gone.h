/*
 * weights_gone: says on the status page that the model's file was cut short (or its disk has failed) under the mapping of its
 * weights: reading them raises SIGBUS, of which the worker then dies as it would without us, and whose fault that was is known.
 *
 * One instance at a time in a process is watched. Any thread may meet the signal.
 */
#ifndef HEARTH_WORKER_WEIGHTS_GONE_H
#define HEARTH_WORKER_WEIGHTS_GONE_H

#include "base/status.h"
#include "engine/instance.h"
#include "wire/status_page.h"

/* From now on SIGBUS in the mappings of the instance sets the page's phase to STATUS_WEIGHTS_GONE first. Both are borrowed
 * until weights_gone_forget. */
status weights_gone_watch(const instance *in, status_page *page, err *e);
void weights_gone_forget(void); /* also if none was watched */

#endif
