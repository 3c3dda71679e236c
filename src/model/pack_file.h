/*
 * pack_file: packed weights on disk, shared between processes.
 *
 * One file in one folder for one pack_key: NAME = source, layout version, numerics version, types. A file is
 * opened before a process shuts itself in and filled or mapped after, when there are only descriptors; so nothing
 * is ever renamed. Instead:
 *
 *   - a new file is made by O_EXCL, readable only (0400), and locked by who made it (flock); what it is written
 *     through is closed as soon as it is whole;
 *   - the image is written and made durable, then the header, then that is made durable. A file without a whole,
 *     right header is unfinished, whatever it holds;
 *   - an unfinished or bad file that nobody holds locked is removed by the next who wants its name, or who makes
 *     room; files are never written a second time;
 *   - who finds an unfinished file that is locked waits until it is finished (at most wait_ms).
 *
 *   WHOLE ──────────────────────────────────────────► mapped
 *   NEW ────── image, fsync, header, fsync, unlock ─► mapped
 *   AWAITED ── the header appears ──────────────────► mapped;  its writer died or is too slow: failed
 *
 * Before a new file is made, the least recently used ones (mtime; using a file sets it) go until the folder and
 * what will be written stay within the budget.
 *
 * A failure of any kind is no reason not to serve: the caller packs in memory then, and says why once. Errors
 * name the path: ST_IO, ST_FULL (budget, disk, size limit), ST_TIMEOUT, ST_NOMEM, ST_MODEL_CHANGED (while it was
 * packed).
 *
 * Thread: one at a time. System calls after pack_file_open: fstat, pread, pwrite, fallocate, ftruncate, fsync,
 * flock, mmap, madvise, prlimit (reading), clock_nanosleep.
 */
#ifndef HEARTH_MODEL_PACK_FILE_H
#define HEARTH_MODEL_PACK_FILE_H

#include "base/clock.h"
#include "model/pack_fill.h"
#include "model/pack_header.h"

#define PACK_FILE_WAIT_MS 120000u

typedef struct pack_file_options {
    const char *folder;    /* borrowed during the open; made if it is not there */
    uint64_t model_bytes;  /* what will be written is about this */
    uint64_t budget_bytes; /* of the folder; 0 = half of what its file system has free or the folder holds */
    uint64_t wait_ms;      /* for somebody else's writing; 0 = PACK_FILE_WAIT_MS */
} pack_file_options;

typedef struct pack_file pack_file;

status pack_file_open(const pack_file_options *opt, const pack_key *key, pack_file **out, err *e);
void pack_file_close(pack_file *f); /* NULL is fine; mappings stay */

/*
 * Makes the file whole if it is not. Afterwards it holds the image of the plan and pack_file_map,
 * pack_file_read and pack_file_digest may be called.
 */
status pack_file_complete(pack_file *f, const pack_plan *plan, pool *p, const pack_progress *progress,
                          err *e);
/* The image, mapped read-only and shared: unmapped by the caller (munmap, plan->image_bytes). */
status pack_file_map(const pack_file *f, const pack_plan *plan, void **image, err *e);
/* Copies the image to memory of the caller's. */
status pack_file_read(const pack_file *f, const pack_plan *plan, pool *p, void *image, err *e);
const uint8_t *pack_file_digest(const pack_file *f); /* SHA-256 of the model's bytes */
const char *pack_file_path(const pack_file *f);

#endif
