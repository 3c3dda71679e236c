/*
 * greeting: the first frame of a worker: what it is and what it has loaded.
 *
 * The digest (SHA-256 of all bytes) costs a read of the whole file, so it is computed here only for a model
 * in one file of at most INSTANCE_DIGEST_BYTES; else the key is left out.
 */
#ifndef HEARTH_WORKER_GREETING_H
#define HEARTH_WORKER_GREETING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "engine/instance.h"

/* Appends the ready frame. */
status greeting_put(buf *out, const char *model_path, const instance *model, int32_t max_sessions,
                    bool supports_cancel);

#endif
