/*
 * held_bytes: many bytes on their way from one end to the other (a body to a worker, an attachment to a client), and
 * the budget that they count in for as long as they are there.
 *
 * On the heap; one owner at a time, who passes it on or frees it. The budget is borrowed and must outlive it: the last
 * of them may go when the event base is freed. Loop thread only.
 */
#ifndef HEARTH_SERVE_HELD_BYTES_H
#define HEARTH_SERVE_HELD_BYTES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct evbuffer;

typedef struct byte_budget { /* what all holders together hold; one thread */
    size_t used, max;
} byte_budget;

bool byte_budget_take(byte_budget *b, size_t n); /* false: so much is not left */

typedef struct held_bytes {
    buf bytes;           /* owned */
    byte_budget *budget; /* borrowed */
    size_t charged;      /* to the budget */
} held_bytes;

/* Takes the bytes, of which `charged` are in the budget already. NULL (no memory): nothing was taken. */
held_bytes *held_bytes_new(buf *bytes, byte_budget *budget, size_t charged);
void held_bytes_free(held_bytes *h); /* NULL is fine */
/* From now on it counts as so many, at most as many as before. */
void held_bytes_recharge(held_bytes *h, size_t charged);
/* Behind what is in out, without a copy; freed when they are sent, or not wanted any more. False: no memory, h is freed. */
bool held_bytes_send(held_bytes *h, struct evbuffer *out);

#endif
