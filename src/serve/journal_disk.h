/*
 * journal_disk: the journal's files, and the thread that writes and reads them, so that nobody waits for a disk on the
 * loop. Its user says what stands where; ops are carried out in the order in which they are submitted.
 *
 *   submit ──► queue ──► thread: all that waits, then one fdatasync for what was written ──► done (from the loop)
 *
 * The thread appends to one segment at a time. The first write or copy that names another one seals it (synced, closed) and
 * makes that file. A segment in which something could not be written takes nothing more: every later op that would add to
 * it fails with the same reason, and so does what a failed sync was to keep. What is there stays readable.
 *
 * The folder is 0700, the files 0600. One process has the folder: the file "lock" is locked (flock) as long as it is open.
 *
 * Loop thread, but for journal_disk_scan before the first submit. Memory: the bytes of ops that wait, which the user bounds.
 */
#ifndef HEARTH_SERVE_JOURNAL_DISK_H
#define HEARTH_SERVE_JOURNAL_DISK_H

#include <event2/event.h>

#include "base/buf.h"
#include "base/status.h"
#include "serve/journal_record.h"

typedef struct journal_disk journal_disk;

typedef struct journal_place { /* a whole record */
    uint64_t segment;          /* its number, from 1 on; 0 = nowhere */
    uint64_t offset;
    size_t n_bytes;
} journal_place;

typedef enum journal_op_kind {
    JOURNAL_WRITE, /* bytes to the place, which is the end of its segment; synced before it is done if `sync` */
    JOURNAL_READ, /* bytes from the place */
    /* From the place to another one, the same way as a write; bytes are not looked at. ST_BAD_FORMAT: it is not there
     * any more; ST_CAPACITY: it cannot be read now. Then `to` holds a record that says nothing. */
    JOURNAL_COPY,
    JOURNAL_REMOVE /* the segment of the place; that it is not there is fine */
} journal_op_kind;

/* The first member of what mem_alloc gave, or all of it: mem_free gets its address when it is done with. */
typedef struct journal_op {
    journal_op_kind kind;
    bool sync;
    journal_place at, to;                /* to: of a copy */
    buf bytes;                           /* owned */
    void (*done)(struct journal_op *op); /* from the loop; NULL = nobody asks */
    /* set when it is done */
    status st;
    err why;
    struct journal_op *next; /* private */
} journal_op;

/* One good record of a segment, or (r NULL) one whose body is bad. The strings die with the call. False: no more. */
typedef bool (*journal_scan_fn)(void *ctx, const journal_place *at, const journal_record *r);
typedef struct journal_segment_info {
    uint64_t number;
    uint64_t n_bytes; /* of its good beginning */
    uint64_t n_lost;  /* bytes behind that */
} journal_segment_info;
typedef void (*journal_segment_fn)(void *ctx, const journal_segment_info *s);

/* Makes the folder if it is not there; takes the lock. ST_IO with the reason: also that another process has it. */
status journal_disk_open(struct event_base *base, const char *dir, journal_disk **out, err *e);
/* All segments, oldest first: their records, then what is to be said of each. Bytes behind the good beginning of the last one
 * are cut off. */
status journal_disk_scan(journal_disk *d, journal_scan_fn record, journal_segment_fn segment, void *ctx,
                         err *e);
/* Starts the thread. last: the segment that goes on, and how long it is; 0 = none. */
status journal_disk_start(journal_disk *d, uint64_t last, uint64_t n_bytes, err *e);
/* Takes the op. */
void journal_disk_submit(journal_disk *d, journal_op *op);
/* What waits is carried out first; `done` is not called any more. NULL is fine. */
void journal_disk_close(journal_disk *d);

#endif
