/*
 * fair_queue: items that wait, taken round-robin over their keys; within a key the smallest rank goes first, and
 * first come first served where ranks are equal.
 *
 *   turn ─► key 7: a ► b ► c        taken: a d e b c  (a key that comes, or comes again, is the last of the round)
 *           key 0: d
 *           key 2: e
 *
 * Bounded in number and in bytes of what the items stand for. One owner thread. The items are the caller's and stay in place
 * while they wait. Costs: a push and a removal look through the keys that wait, a position too; a push also through those of
 * its key that it goes before.
 */
#ifndef HEARTH_SERVE_FAIR_QUEUE_H
#define HEARTH_SERVE_FAIR_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct fair_key;

typedef struct fair_item {
    /* the caller's, set before the push */
    uint32_t key;
    size_t n_bytes;
    int64_t rank;
    /* the queue's; `of` is NULL outside */
    struct fair_key *of;
    struct fair_item *prev, *next;
} fair_item;

typedef struct fair_queue { /* open for reading only */
    size_t max_items, max_bytes;
    size_t n_items, n_bytes;
    struct fair_key *turn; /* owned: the ring of keys that wait; this one is next. NULL = empty */
} fair_queue;

void fair_queue_init(fair_queue *q, size_t max_items, size_t max_bytes);
void fair_queue_release(fair_queue *q); /* what still waits is let go */
/* ST_QUEUE_FULL with the numbers, ST_NOMEM: then the item is not in the queue. */
status fair_queue_push(fair_queue *q, fair_item *item, err *e);
fair_item *fair_queue_pop(fair_queue *q);              /* NULL = empty */
const fair_item *fair_queue_next(const fair_queue *q); /* what a pop would take; NULL = empty */
void fair_queue_remove(fair_queue *q, fair_item *item);
/* How many pops until it is taken, 1 = the next one, as long as nobody comes or leaves. */
size_t fair_queue_position(const fair_queue *q, const fair_item *item);

#endif
