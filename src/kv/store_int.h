/*
 * store_int: what the engine's side of a store (store.c) and its thread (store_thread.c, store_scan.c) share.
 */
#ifndef HEARTH_KV_STORE_INT_H
#define HEARTH_KV_STORE_INT_H

#include <dirent.h>
#include <pthread.h>

#include "kv/store.h"
#include "kv/store_folder.h"
#include "kv/store_index.h"
#include "kv/store_keys.h"

#define STORE_MAX_USED 64u /* keys whose use is told to the index at once */

typedef struct store_put_job {
    store_key key;
    store_header header;
    void *page; /* one of store.pages */
} store_put_job;

typedef struct store_get_job {
    struct store_get_job *next;
    store_key key;
    store_header header;
    void *dst; /* the caller's */
    uint64_t ticket;
    bool ok;
} store_get_job;

typedef struct store_get_list {
    store_get_job *first, **end;
} store_get_list;

/* Looking through the folder: reads names, then removes what the index has too many, then what is over the budget. */
typedef enum store_scan_phase {
    STORE_SCAN_DONE,
    STORE_SCAN_NAMES,
    STORE_SCAN_ROWS,
    STORE_SCAN_BUDGET
} store_scan_phase;

struct store {
    /* set by store_open */
    store_config cfg; /* dir: the one below */
    char *dir;        /* owned */
    uint64_t file_bytes;
    pthread_t thread;

    pthread_mutex_t mu;
    pthread_cond_t work; /* monotonic; there is something to do */
    pthread_cond_t rest; /* `looked` or n_puts changed */
    /* guarded by mu; what is marked W is changed by the store's thread alone, which therefore reads it without */
    store_put_job *puts; /* owned; [n_slots], a ring: the engine's thread fills behind its end */
    void *pages;         /* owned; [n_slots][page_bytes] */
    void **free_pages;   /* owned; [n_slots]: the last one used is taken first, it is in the caches */
    size_t n_free;
    size_t n_slots, first, n_puts;
    uint64_t puts_ended;                 /* since the beginning */
    store_get_list gets, results, spare; /* owned */
    store_keys keys;                     /* W */
    store_stats stats;                   /* but queued_bytes; reads and writes: W */
    int64_t full_day;                    /* W: the day whose limit is reached; -1: none */
    bool ready;                          /* W: store_has knows */
    bool looked;                         /* W: the folder was looked through */
    bool stop;
    uint64_t stop_at_ns; /* of the machine's clock */

    /* the store's thread's own */
    store_folder folder;
    store_index *index; /* owned; NULL: none, and nothing is written */
    bool index_lost;    /* it was closed as a bad one, and there will be another */
    bool index_is_new;  /* it knows nothing but what the files tell */
    unsigned n_rebuilds;
    int64_t seq;           /* of the index, up to which keys are known */
    uint64_t looked_at_ns; /* for what others added */
    store_scan_phase phase;
    DIR *names;     /* owned */
    size_t scan_at; /* slot of keys that is looked at next */
    uint8_t round;
    store_key soon[STORE_AHEAD]; /* of the gets behind the one that is served */
    size_t n_soon;
    store_key used[STORE_MAX_USED];
    size_t n_used;
    bool bad_was_told;
};

/* A day that a time belongs to. */
int64_t store_day(const store *s);

/* store_thread.c */
void *store_thread(void *arg);
/* What an operation on the index came to. false: it failed, and what follows from that has been done: there may be no
 * index any more. */
bool store_index_went(store *s, status st, const err *e);
void store_stop_writing(store *s, const err *why);
void store_learn(store *s, const store_key *key, store_key_state state);
void store_forget(store *s, const store_key *key);
void store_refuse(store *s, const store_key *key, const err *why);
/* Removes files until `bytes` more are within the budget, at most `most`. ST_NOT_FOUND: there is none but `except`;
 * ST_FULL: `most` were removed and more must be. In a transaction. */
status store_make_room(store *s, uint64_t bytes, const store_key *except, size_t most, err *e);
void store_tell_totals(store *s);

/* store_scan.c */
void store_scan_begin(store *s);
void store_scan_step(store *s);
void store_scan_end(store *s);

#endif
