/*
 * own_folder: the folder in which a worker keeps what concerns its model: one below the store's folder, named by what
 * tells the model's files from others, so that no worker can touch what is another model's.
 *
 * Before the sandbox; one thread.
 */
#ifndef HEARTH_WORKER_OWN_FOLDER_H
#define HEARTH_WORKER_OWN_FOLDER_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/status.h"

/* Makes it, with what leads there, for its owner alone, and writes its absolute path. ST_IO: it cannot be made, or the
 * path is too long. */
status own_folder_make(const char *below, const uint8_t identity[SHA256_BYTES], char *path, size_t size,
                       err *e);

#endif
