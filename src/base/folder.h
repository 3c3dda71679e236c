/*
 * folder: folders for one user's eyes. Any thread, no state.
 */
#ifndef HEARTH_BASE_FOLDER_H
#define HEARTH_BASE_FOLDER_H

#include "base/status.h"

/* Makes a folder, with what leads there, for its owner alone; one that is there stays as it is. ST_IO: path is empty or
 * too long, or the system's reason. */
status folder_make(const char *path, err *e);

#endif
