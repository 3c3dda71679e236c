/*
 * store_index: which files are in the folder, how large they are and when they were used last, for all workers that
 * have it open: index.db, an SQLite database (WAL, synchronous off).
 *
 * It can be lost: what it says is in the folder too, but for the order of use. So there is no repair and no way from
 * one version of it to the next: what is not exactly ours is ST_BAD_FORMAT, and whoever opens it again with `fresh`
 * makes a new one. index.lock is held meanwhile, and counts the new ones: the others see by it that theirs is stale.
 *
 * A row knows how many rows have it as their parent (kids; kept by triggers), so that the one to go next, the file
 * without kids that was not used for longest, is the first entry of a B-tree.
 *
 * "Used" is a count that follows the wall clock in milliseconds but never stands still or goes back.
 *
 * Thread: one at a time. Errors: ST_BAD_FORMAT (make a new one), ST_IO (cannot be written at all), ST_CAPACITY (another
 * worker had it for too long), ST_NOMEM. After each of them no transaction is open.
 */
#ifndef HEARTH_KV_STORE_INDEX_H
#define HEARTH_KV_STORE_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kv/store.h"

typedef struct store_index store_index;

/* Whether another process that has the index is waited for no longer. */
typedef struct store_patience {
    bool (*is_over)(void *ctx);
    void *ctx;
} store_patience;

/* dir: absolute; dir_fd: the same, open. fresh: removes the one that is there. *made: it is empty because it is new. */
status store_index_open(const char *dir, int dir_fd, bool fresh, const store_patience *patience,
                        store_index **out, bool *made, err *e);
void store_index_close(store_index *ix); /* NULL is fine */
/* Somebody made a new one. */
bool store_index_is_stale(const store_index *ix);

/* What is between them happens at once, or not at all; in it nobody else writes. */
status store_index_begin(store_index *ix, err *e);
status store_index_commit(store_index *ix, err *e);
void store_index_rollback(store_index *ix);

typedef struct store_index_totals {
    uint64_t files, bytes;
    int64_t day;        /* since 1970, UTC */
    uint64_t day_bytes; /* written in it */
} store_index_totals;
status store_index_totals_read(store_index *ix, store_index_totals *out, err *e);

/* ST_NOT_FOUND: no. */
status store_index_has(store_index *ix, const store_key *key, err *e);
/* Used at that time, or, if it is 0, now. Nothing if it is there. */
status store_index_add(store_index *ix, const store_key *key, const store_key *parent, uint64_t bytes,
                       int64_t used_ms, int64_t now_ms, err *e);
status store_index_use(store_index *ix, const store_key *keys, size_t n, int64_t now_ms, err *e);
status store_index_remove(store_index *ix, const store_key *key, err *e);
/* The next file to go; not `except`. ST_NOT_FOUND: there is none. */
status store_index_victim(store_index *ix, const store_key *except, store_key *out, err *e);
/* Counts bytes as written on that day. */
status store_index_spend(store_index *ix, int64_t day, uint64_t bytes, err *e);

/* All keys that were added after *seq (0: all), which moves on. */
status store_index_since(store_index *ix, int64_t *seq, void (*each)(void *ctx, const store_key *key),
                         void *ctx, err *e);
/* Counts everything anew that is counted while rows come and go. */
status store_index_recount(store_index *ix, err *e);

#endif
