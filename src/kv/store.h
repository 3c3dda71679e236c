/*
 * store: KV pages on disk, so that what was read once is not read again after a restart (DESIGN 7).
 *
 * One file for each page, in one folder that several workers may have open at once. A file is named by the chain key
 * of its page, SHA-256 of (root key, the parent page's key, the ids), and has a header with the format's version, root
 * key, parent, ids, page size, layout identity and a checksum of all of it with the page. It is written beside its
 * place and renamed, without fsync: the checksum decides. A file whose header is not the one that is asked for, in
 * any field, or whose checksum is wrong, is deleted, counted, and never tried again; the caller computes.
 *
 * Use and sizes are remembered by SQLite (index.db: WAL, synchronous off), which is rebuilt from the folder when it is
 * missing or bad. Over the byte budget files go, the ones not used for longest first, but none before those that go on
 * from it: what is left of a conversation is always its beginning. For the same reason a page is written only where its
 * parent is. What is written in a day (UTC) is limited too. When the folder cannot be written (full, read-only, gone)
 * writing stops with one warning, reading goes on; when it cannot be read the store is off. Neither is ever an error of
 * a request.
 *
 * Threads: the calls below are the engine thread's and never block on the disk; one thread of the store's own does all
 * reading, writing and SQL. A page that is to be written is copied at once, within queue_bytes; beyond that it is
 * not written (counted). It can be read from there on. A page that is to be read is read straight into the caller's
 * memory, which nobody else touches until its result was polled. Reading goes before writing.
 */
#ifndef HEARTH_KV_STORE_H
#define HEARTH_KV_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/status.h"
#include "kv/tree.h"

typedef struct store store;

typedef struct store_key {
    uint8_t bytes[32];
} store_key;

/* What the store's thread is about to do with a file. */
typedef enum store_op {
    STORE_OPEN_FOLDER,
    STORE_OPEN,
    STORE_READ,
    STORE_CREATE,
    STORE_WRITE,
    STORE_RENAME,
    STORE_REMOVE
} store_op;

/* A disk that is slow, full or broken, for tests: before each operation; returns 0, or the errno that it fails with. */
typedef struct store_seam {
    int (*before)(void *ctx, store_op op);
    void *ctx;
} store_seam;

typedef struct store_config {
    const char *dir; /* exists; absolute. Copied */
    size_t page_bytes;
    uint8_t layout[32];         /* identity of what is inside a page: shapes, KV type, numerics version */
    uint64_t budget_bytes;      /* of the folder */
    uint64_t daily_write_bytes; /* 0 = no limit */
    size_t queue_bytes;         /* of copies that wait to be written; two pages at least */
    const clock_src *clock;     /* borrowed */
    void (*wake)(
        void *ctx); /* a result can be polled, or it is ready; called on the store's thread. May be NULL */
    void *wake_ctx;
    const store_seam *seam; /* borrowed; NULL */
} store_config;

/* Starts its thread; the folder is looked through on it, so that a start waits for nothing. ST_NOMEM, ST_INVALID_FIELD. */
status store_open(const store_config *cfg, store **out, err *e);
/* Writes what still waits, for at most wait_ms, and ends the thread. Reads under way are carried to their end first. */
void store_close(store *s, unsigned wait_ms);

/* The key of the page that holds ids (1 … KV_PAGE_TOKENS) behind the page with key parent (NULL: the first). Pure. Zeros
 * if there is no memory: such a page is never there and never written. */
store_key store_chain(const kv_root_key *root, const store_key *parent, const int32_t *ids, size_t n);

/* Whether the index was read since the start, or, where there was none, the folder looked through, or neither can be: until
 * then store_has does not know. It wakes, too. */
bool store_ready(store *s);
/* Whether a file of this key was there when last looked (its own puts and, within seconds, others'). A hint: a get may
 * miss what it promised. */
bool store_has(store *s, const store_key *key);
/* false: not written (it is there already, the queue is full, the day's limit is reached, the store is off). True is no
 * promise. Allocates nothing. */
bool store_put(store *s, const kv_root_key *root, const store_key *parent, const int32_t *ids, size_t n,
               const void *page);
/* Asks for the page of that key into dst; the result comes with this ticket. false: no memory, or the store is off. */
bool store_get(store *s, const kv_root_key *root, const store_key *parent, const int32_t *ids, size_t n,
               void *dst, uint64_t ticket);

typedef struct store_result {
    uint64_t ticket;
    bool ok; /* dst holds the page; else it holds anything */
} store_result;
/* Results since the last call, at most `most`; in the order asked. */
size_t store_poll(store *s, store_result *out, size_t most);
/* Waits until the folder was looked through and all that was put before is written or given up. For tests and a
 * worker's end. */
void store_flush(store *s);

typedef struct store_stats {
    bool reads, writes; /* false: turned off */
    uint64_t files, bytes;
    uint64_t written, written_bytes, read, missed, bad; /* files, since the beginning; bad: deleted ones */
    uint64_t not_written;                               /* puts that were given up */
    uint64_t queued_bytes;                              /* now */
} store_stats;
store_stats store_stats_read(const store *s); /* any thread */

#endif
