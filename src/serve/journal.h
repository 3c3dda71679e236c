/*
 * journal: requests that must be answered once, and their answers, on disk: beyond a restart, a crash, a power cut.
 *
 *   ask ──written, synced──► asked ──answer──written, synced──► answered ──24 h, or room is needed──► forgotten
 *    └─ cannot be written: gone   └──drop──► gone
 *
 * An entry is found by owner (whose it is) and name (what the owner calls it), both any bytes. What asks and answers mean
 * is the user's: a text each. Texts are not kept in memory: journal_read.
 *
 * Invariants. 1. A later record about a request is never removed before an earlier one: segments are removed from the oldest
 * on, what still counts in it having been copied to the end of the newest. So no start finds a request unanswered that
 * was answered, or alive that was dropped. 2. An entry in somebody's hands (`held`) or with a write on its way is neither
 * forgotten nor moved in memory. 3. A text that does not match its checksum is never given out.
 *
 * A folder that cannot be written turns the journal off: journal_ask refuses with ST_IO, and one try every JOURNAL_RETRY_MS
 * finds out whether it can again. What was kept stays readable.
 *
 * Limits: max_bytes of files (about: one segment more while an old one is moved), half of it for what counts;
 * JOURNAL_MAX_ENTRIES; JOURNAL_TTL_MS by the wall clock from when it was asked, also for what was never answered;
 * JOURNAL_MAX_WAITING bytes that wait to be written. Room is made by forgetting the oldest answers. Memory: about 300 bytes
 * for each entry.
 *
 * Loop thread only. No callback is called from inside a call, and none after journal_close.
 */
#ifndef HEARTH_SERVE_JOURNAL_H
#define HEARTH_SERVE_JOURNAL_H

#include <event2/event.h>

#include "base/clock.h"
#include "serve/journal_disk.h"

#define JOURNAL_TTL_MS      ((int64_t)24 * 3600 * 1000)
#define JOURNAL_MAX_ENTRIES ((size_t)65536)
#define JOURNAL_MAX_WAITING ((size_t)128 << 20)
#define JOURNAL_RETRY_MS    10000
#define JOURNAL_MIN_BYTES   ((uint64_t)1 << 20)

typedef struct journal journal;

typedef struct journal_entry {
    /* read only */
    bool answered;
    bool found; /* it was there when the journal was opened */
    int32_t http_status;
    uint8_t digest[SHA256_BYTES];
    int64_t created_ms;
    unsigned n_begun; /* after how many starts it was begun again */
    const char *owner, *name;
    size_t owner_len, name_len;
    /* the user's; NULL and zero at first */
    void *held;
    uint64_t not_before_ns;
    bool begun;
    /* private */
    uint64_t serial, hash;
    journal_place place; /* of what counts: the answer, or else what was asked */
    journal_place moved; /* where it will be; segment 0 = it is not being copied */
    unsigned n_busy;     /* ops of it that are under way */
    bool dropped;
    struct journal_entry *prev, *next; /* all, the oldest first */
    struct journal_entry *next_hashed;
    char text[]; /* owner, name */
} journal_entry;

typedef struct journal_config { /* borrowed for the call, base and clock until journal_close */
    struct event_base *base;
    const clock_src *clock;
    const char *dir;
    uint64_t max_bytes; /* >= JOURNAL_MIN_BYTES */
} journal_config;

typedef struct journal_counts {
    bool is_on;
    size_t n_entries, n_unanswered; /* those that are there for good */
    uint64_t bytes;                 /* of files */
    uint64_t n_bad; /* records that were not what had been written, and ends of files that were cut */
} journal_counts;

/* Blocks: reads all that is there, one line in the log if something of it is bad. ST_IO with the reason, ST_BAD_FORMAT (of
 * another version), ST_NOMEM. */
status journal_open(const journal_config *cfg, journal **out, err *e);
/* What was handed in is written first. Entries die. NULL is fine. */
void journal_close(journal *j);
/* From time to time: forgets what is old. */
void journal_tick(journal *j);
void journal_read_counts(const journal *j, journal_counts *out);

/* NULL if there is none. */
journal_entry *journal_find(journal *j, const char *owner, size_t owner_len, const char *name,
                            size_t name_len);
/* The oldest unanswered entry behind `after` (NULL = of all); NULL = no more. */
journal_entry *journal_unanswered(journal *j, const journal_entry *after);

/* st ST_OK: it is there for good. */
typedef void (*journal_written_fn)(void *ctx, status st);

typedef struct journal_question {
    const char *owner, *name, *text; /* borrowed for the call */
    size_t owner_len, name_len, text_len;
    uint8_t digest[SHA256_BYTES];
    int64_t created_ms; /* by the wall clock */
} journal_question;

/* A new entry, held by `held`. written is called once; if it could not be written the entry is gone by then. ST_IO (off),
 * ST_FULL (no room, or more waits than may), ST_CAPACITY (larger than a record may be), ST_NOMEM. The name must be free. */
status journal_ask(journal *j, const journal_question *q, void *held, journal_written_fn written, void *ctx,
                   journal_entry **out, err *e);
/* Of a held, unanswered one. If the answer cannot be written it stays unanswered. On an error written is not called. */
status journal_answer(journal *j, journal_entry *entry, int32_t http_status, const char *text, size_t len,
                      journal_written_fn written, void *ctx, err *e);
/* Its name is free at once; entry is gone. Not while it is being asked. */
void journal_drop(journal *j, journal_entry *entry);
/* Remembers, beyond a restart too, that it is begun again. */
void journal_begun(journal *j, journal_entry *entry);

/* Text of the answer, or else of the question; borrowed for the call. ST_BAD_FORMAT: it is not what was written, and the
 * entry should be dropped. A held entry. */
typedef void (*journal_text_fn)(void *ctx, status st, const char *text, size_t len);
status journal_read(journal *j, journal_entry *entry, journal_text_fn got, void *ctx, err *e);

#endif
