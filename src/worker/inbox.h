/*
 * inbox: the lines that were read and not yet begun, in order, from the reader thread to the engine thread.
 *
 * Bounded in number and in bytes: with INBOX_MAX_ITEMS waiting, or INBOX_MAX_BYTES (one item of any size
 * always fits), there is no room until one is begun. The engine takes lines at once, whatever it does with
 * them, so that it sees a cancel behind requests that have to wait; an item counts until inbox_forget.
 * An item is a request, or the ready answer to a line that is none, or what can be known of a line that there was no
 * memory for.
 *
 * Ownership: push moves the item in on success, take moves it out. Memory is taken once, at inbox_new.
 */
#ifndef HEARTH_WORKER_INBOX_H
#define HEARTH_WORKER_INBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

    /* Of a line without request, where there was no memory for one or for its answer. */
    bool acts;     /* it needs none: it is `op` (cancel, pause, continue, drain), and has no answer */
    wire_op op;    /* if it acts */
    size_t id_len; /* 0 = plain */
    char id_bytes[WIRE_MAX_ID_BYTES];

    bool multiplexed; /* the line has an id: set by who takes it */
    uint64_t read_ns; /* when it was read */
    size_t bytes;     /* what it counts for: set by push */
} inbox_item;

status inbox_new(const bell *b, inbox **out,
                 err *e);    /* b is borrowed and rung whenever the engine should look */
void inbox_free(inbox *box); /* frees what is left in it */

/* Reader. ST_FULL: no room now; ST_CLOSED after inbox_abort. Then the item stays the caller's. */
status inbox_push(inbox *box, inbox_item *item);
/* Readable when there may be room again, and after inbox_abort; for poll, with inbox_heard_room after it. */
int inbox_room_fd(const inbox *box);
bool inbox_heard_room(inbox *box); /* false: aborted */
void inbox_end(inbox *box);        /* nothing more comes */

/* Engine. */
bool inbox_take(inbox *box, inbox_item *out); /* false: nothing is there now */
void inbox_forget(inbox *box, size_t bytes);  /* an item taken before waits no longer */
bool inbox_ended(inbox *box);                 /* nothing is there and nothing more comes */
void inbox_abort(inbox *box);                 /* wakes the reader; nothing is taken any more */

size_t inbox_waiting(inbox *box); /* any thread: items that count */
void inbox_item_release(inbox_item *item);

#endif
