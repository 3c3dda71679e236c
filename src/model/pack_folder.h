/*
 * pack_folder: where packed files lie (pack_file.h): the names, the room. All of it before a process
 * shuts itself in. Errors name the path: ST_IO, ST_FULL.
 */
#ifndef HEARTH_MODEL_PACK_FOLDER_H
#define HEARTH_MODEL_PACK_FOLDER_H

#include "model/pack_header.h"

#define PACK_PATH_MAX 4096u

/* The path of a key's file in the folder; ST_IO if it is too long. */
status pack_folder_path(const char *folder, const pack_key *key, char path[PACK_PATH_MAX], err *e);
/* Removes leftovers of dead writers, then the least recently used files, until wanted_bytes more fit into the
 * budget (pack_file_options). ST_FULL if they never do. Files that are being written stay. */
status pack_folder_make_room(const char *folder, uint64_t wanted_bytes, uint64_t budget_bytes, err *e);

#endif
