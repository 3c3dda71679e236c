#include "worker/inbox.h"

#include <pthread.h>
#include <string.h>

#include "base/mem.h"

struct inbox {
    const bell *bell; /* borrowed */
    pthread_mutex_t mu;
    pthread_cond_t has_room;
    /* guarded by mu */
    inbox_item items[INBOX_MAX_ITEMS]; /* a ring: [first, first + len) */
    size_t bytes[INBOX_MAX_ITEMS];     /* of each item */
    size_t first, len;
    size_t total_bytes;
    bool ended;
    bool aborted;
};

status inbox_new(const bell *b, inbox **out)
{
    inbox *box = mem_calloc(1, sizeof *box);
    if (!box) {
        return ST_NOMEM;
    }
    if (pthread_mutex_init(&box->mu, NULL) != 0) {
        mem_free(box);
        return ST_NOMEM;
    }
    if (pthread_cond_init(&box->has_room, NULL) != 0) {
        pthread_mutex_destroy(&box->mu);
        mem_free(box);
        return ST_NOMEM;
    }
    box->bell = b;
    *out = box;
    return ST_OK;
}

void inbox_item_release(inbox_item *item)
{
    wire_request_free(item->request);
    mem_free(item->answer);
    memset(item, 0, sizeof *item);
}

void inbox_free(inbox *box)
{
    if (!box) {
        return;
    }
    for (size_t i = 0; i < box->len; i++) {
        inbox_item_release(&box->items[(box->first + i) % INBOX_MAX_ITEMS]);
    }
    pthread_cond_destroy(&box->has_room);
    pthread_mutex_destroy(&box->mu);
    mem_free(box);
}

static bool has_room_locked(const inbox *box, size_t bytes)
{
    if (box->len == 0) {
        return true;
    }
    return box->len < INBOX_MAX_ITEMS && box->total_bytes < INBOX_MAX_BYTES &&
           bytes <= INBOX_MAX_BYTES - box->total_bytes;
}

status inbox_push(inbox *box, const inbox_item *item)
{
    size_t bytes = item->request ? wire_request_bytes(item->request) : item->answer_len;
    pthread_mutex_lock(&box->mu);
    while (!box->aborted && !has_room_locked(box, bytes)) {
        pthread_cond_wait(&box->has_room, &box->mu);
    }
    bool open = !box->aborted;
    if (open) {
        size_t at = (box->first + box->len) % INBOX_MAX_ITEMS;
        box->items[at] = *item;
        box->bytes[at] = bytes;
        box->total_bytes += bytes;
        box->len++;
    }
    pthread_mutex_unlock(&box->mu);
    if (open) {
        bell_ring(box->bell);
    }
    return open ? ST_OK : ST_CLOSED;
}

void inbox_end(inbox *box)
{
    pthread_mutex_lock(&box->mu);
    box->ended = true;
    pthread_mutex_unlock(&box->mu);
    bell_ring(box->bell);
}

bool inbox_take(inbox *box, inbox_item *out)
{
    pthread_mutex_lock(&box->mu);
    bool some = box->len > 0 && !box->aborted;
    if (some) {
        *out = box->items[box->first];
        box->total_bytes -= box->bytes[box->first];
        box->first = (box->first + 1) % INBOX_MAX_ITEMS;
        box->len--;
        pthread_cond_signal(&box->has_room);
    }
    pthread_mutex_unlock(&box->mu);
    return some;
}

bool inbox_ended(inbox *box)
{
    pthread_mutex_lock(&box->mu);
    bool ended = box->ended && box->len == 0;
    pthread_mutex_unlock(&box->mu);
    return ended;
}

void inbox_abort(inbox *box)
{
    pthread_mutex_lock(&box->mu);
    box->aborted = true;
    pthread_cond_signal(&box->has_room);
    pthread_mutex_unlock(&box->mu);
}

size_t inbox_len(inbox *box)
{
    pthread_mutex_lock(&box->mu);
    size_t n = box->len;
    pthread_mutex_unlock(&box->mu);
    return n;
}
