/*
 * saved: the sessions that were saved under a name: their token ids, each list in a small file NAME.session of the
 * store's folder. Keys and values are in the store's pages, or are computed again. Nothing but ids is in such a file, so
 * what comes back is a session that knows the same tokens.
 *
 *   offset  bytes
 *        0      8  magic "hearthid"
 *        8      4  version of this format
 *       12      4  0
 *       16      8  KV type of the worker that wrote it, its name, zeros behind it
 *       24     32  identity: what else the state of these tokens depends on
 *       56      8  number of ids
 *       64   4 n  ids, int32
 *        …      8  XXH3 of all before it
 *
 * Little-endian. A file is written beside its place, as the store's are (new-RANDOM.tmp, locked while it is written, so
 * that the store sweeps what is left over), and renamed, without fsync: the checksum decides. A file that is not what it
 * should be is deleted, with one line in the log, and is unknown from then on. At most SAVED_MAX names in a folder.
 *
 * Errors: ST_UNKNOWN_ID (`name`), ST_INVALID_FIELD (`name`: other KV type, other model or settings, damaged, more tokens
 * than the context has), ST_CAPACITY (no room, too many names), ST_UNSUPPORTED (`action`: the folder cannot be written),
 * ST_NOMEM.
 *
 * One thread at a time; other processes may do the same in the same folder.
 */
#ifndef HEARTH_WORKER_SAVED_H
#define HEARTH_WORKER_SAVED_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/vec.h"

#define SAVED_MAX      4096
#define SAVED_NAME_MAX 64

typedef struct saved {
    int folder;          /* owned: a descriptor of the store's folder; -1 = there is none */
    const char *kv_type; /* static storage; at most 8 bytes */
    uint8_t identity[32];
    size_t max_ids; /* the context */
} saved;

/* Opens the folder; the rest of *s is the caller's to set. */
status saved_open(saved *s, const char *folder, err *e);
void saved_close(saved *s); /* also of one that is all zero but for folder -1 */

/* name: NUL-terminated, one that wire/request.h lets through. */
status saved_put(const saved *s, const char *name, const int32_t *ids, size_t n, err *e);
/* Appends the ids. */
status saved_get(const saved *s, const char *name, ivec *ids, err *e);
/* *n (may be NULL): how many ids there were; 0 if the file does not say. */
status saved_drop(const saved *s, const char *name, size_t *n, err *e);

#endif
