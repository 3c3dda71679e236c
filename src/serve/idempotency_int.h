/*
 * idempotency_int: what the files of idempotency share.
 *
 * Invariants of a promise: 1. its entry's `held` is the promise, until the entry is gone. 2. At most one of these is under way:
 * a write of the journal, a read of it, a run; each ends with a callback, after which nothing of it is touched that the callback
 * may have ended. 3. It ends with promise_end (or, before anything was under way, promise_free), without clients.
 */
#ifndef HEARTH_SERVE_IDEMPOTENCY_INT_H
#define HEARTH_SERVE_IDEMPOTENCY_INT_H

#include "serve/idempotency.h"

#define PROMISE_PAUSE_NS ((uint64_t)2000000000)
#define PROMISE_NEVER_NS UINT64_MAX /* in this process's life: the next start will see */

typedef struct waiter {
    struct promise *of;
    http_conn *conn; /* borrowed, until it is answered or gone */
    bool is_first;   /* the run was made for it */
    struct waiter *prev, *next;
} waiter;

typedef struct promise {
    idempotency *d;
    journal_entry *entry; /* borrowed; NULL = it is gone */
    waiter *waiters;      /* owned */
    generation_run *run;  /* its own owner; NULL = none */
    bool again;           /* begun from what the journal holds */
    bool counted;         /* in n_recovering */
    size_t n_asking;      /* bytes of its run, which waits for the journal */
    int http_status;
    buf body; /* owned: an answer on its way into the journal */
    struct promise *prev, *next;
} promise;

struct idempotency {
    idempotency_config cfg;
    struct event *tick; /* owned */
    promise *promises;  /* owned: list */
    size_t n_recovering;
    size_t asking_bytes; /* of all promises */
    bool put_off;        /* some are to be tried again */
    bool looking;        /* one that is begun again is being read */
    bool held_up;        /* a queue is full: until one of those begun again has ended */
    bool started, draining;
    idempotency_counts counts;
};

/* idempotency.c */
promise *promise_new(idempotency *d); /* NULL = no memory */
void promise_free(promise *p);
void promise_end(promise *p);                        /* the last thing that happens to it */
void promise_refuse(promise *p, const api_fault *f); /* to all who wait */
void promise_drop_entry(promise *p);                 /* the key is free */
/* It stays unanswered; one that was there at the start is tried again after not_before_ns. */
void promise_put_off(promise *p, uint64_t not_before_ns);
/* Its run has ended with a fault, or could not be made. */
void promise_settle(promise *p, const api_fault *f);
generation_taker promise_taker(promise *p);
/* Reads what the journal has of a promise that is new: the answer, or what to begin again. */
void promise_look_up(promise *p);

/* idempotency_again.c */
void promise_on_order(void *ctx, status st, const char *text, size_t len); /* of journal_read */
/* Begins the next one that a restart has left, if there is one and it may. */
void promises_pump(idempotency *d);

#endif
