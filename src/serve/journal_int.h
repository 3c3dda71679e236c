/*
 * journal_int: what the files of the journal share.
 *
 * Invariants. `live` of a segment is the bytes of the records in it that count or are about to: the place of each entry, and
 * each answer that is being written. The first segment goes when that is 0; the last one takes what is new if has_active.
 */
#ifndef HEARTH_SERVE_JOURNAL_INT_H
#define HEARTH_SERVE_JOURNAL_INT_H

#include "serve/journal.h"

#define JOURNAL_BUCKETS 16384u

typedef struct journal_segment {
    uint64_t number;
    uint64_t bytes, live;
    bool kept; /* something in it is there for good */
} journal_segment;

struct journal {
    journal_disk *disk;     /* owned */
    const clock_src *clock; /* borrowed */
    uint64_t max_bytes, segment_bytes;

    journal_segment *segments; /* owned: [n_segments], the oldest first */
    size_t n_segments, cap_segments;
    bool has_active;
    uint64_t next_segment, next_serial;
    uint64_t bytes, live; /* of all segments */
    size_t waiting_bytes;

    journal_entry **buckets; /* owned: [JOURNAL_BUCKETS] */
    journal_entry *first, *last;
    journal_entry *limbo; /* list: removed, with an op under way */
    size_t n_entries, n_unanswered;
    size_t n_asking; /* of both: not written yet */

    bool is_off;
    uint64_t retry_ns; /* when the next one may try */
    size_t n_moving;   /* copies under way */
    bool move_failed;
    uint64_t move_ns; /* not before */
    uint64_t n_bad;
};

/* journal_index.c */
/* Unfiltered by age. */
journal_entry *index_find(const journal *j, const char *owner, size_t owner_len, const char *name,
                          size_t name_len);
/* In front of the youngest; NULL = no memory. Neither `place` nor counts of bytes are set. */
journal_entry *index_add(journal *j, const journal_record *r);
/* Out of the index, with the bytes of its place; freed now, or when nothing of it is under way any more. */
void index_remove(journal *j, journal_entry *entry);
void index_let_go(journal *j, journal_entry *entry); /* one op of it has ended */
bool index_is_old(const journal *j, const journal_entry *entry);
void index_expire(journal *j);
/* Forgets the oldest answer that nobody holds. False: there is none. */
bool index_forget_one(journal *j);
status index_sort(journal *j); /* by serial */
void index_free(journal *j);

journal_segment *segment_find(journal *j, uint64_t number);                /* NULL = it is gone */
journal_segment *segment_add(journal *j, uint64_t number, uint64_t bytes); /* NULL = no memory */
void segment_drop_first(journal *j);
void segment_count(journal *j, const journal_place *at, bool counts); /* from now on, or no more */

/* journal_scan.c: fills the index. */
status journal_load(journal *j, err *e);

#endif
