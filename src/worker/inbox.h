/*
 * inbox: the lines that were read and not yet answered, in order, from the reader thread to the engine
 * thread.
 *
 * Bounded in number and in bytes: with INBOX_MAX_ITEMS waiting, or INBOX_MAX_BYTES (one item of any size
 * always fits), the reader waits in inbox_push until the engine takes one. An item is a request, or the ready
 * answer to a line that is none.
 *
 * Ownership: push moves the item in on success, take moves it out. Memory is taken once, at inbox_new.
 */
#ifndef HEARTH_WORKER_INBOX_H
#define HEARTH_WORKER_INBOX_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "wire/request.h"
#include "worker/bell.h"

#define INBOX_MAX_ITEMS 1024
#define INBOX_MAX_BYTES ((size_t)256 << 20)

typedef struct inbox inbox;

typedef struct inbox_item {
    /* owned */
    wire_request *request; /* or NULL: then the answer */
    char *answer;          /* one whole frame; NULL: there was no memory for it */
    size_t answer_len;
} inbox_item;

status inbox_new(const bell *b, inbox **out); /* b is borrowed and rung whenever the engine should look */
void inbox_free(inbox *box);                  /* frees what is left in it; no thread may be waiting in it */

/* Reader. ST_CLOSED after inbox_abort: the item stays the caller's. */
status inbox_push(inbox *box, const inbox_item *item);
void inbox_end(inbox *box); /* nothing more comes */

/* Engine. */
bool inbox_take(inbox *box, inbox_item *out); /* false: nothing waits now */
bool inbox_ended(inbox *box);                 /* nothing waits and nothing more comes */
void inbox_abort(inbox *box);                 /* wakes the reader; nothing is taken any more */

size_t inbox_len(inbox *box); /* any thread */
void inbox_item_release(inbox_item *item);

#endif
