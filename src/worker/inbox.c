#include "worker/inbox.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mem.h"

struct inbox {
    const bell *bell; /* borrowed */
    int room;         /* owned: eventfd */
    pthread_mutex_t mu;
    /* guarded by mu */
    inbox_item items[INBOX_MAX_ITEMS]; /* a ring: [first, first + len) */
    size_t first, len;
    size_t n_waiting, waiting_bytes; /* taken and not begun ones too */
    bool full;                       /* a push failed since there was room last */
    bool ended;
    bool aborted;
};

status inbox_new(const bell *b, inbox **out, err *e)
{
    inbox *box = mem_calloc(1, sizeof *box);
    if (!box) {
        return err_set(e, ST_NOMEM, NULL, "out of memory for the inbox");
    }
    box->room = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (box->room < 0) {
        mem_free(box);
        return err_set(e, ST_IO, NULL, "cannot make an eventfd: %s", strerror(errno));
    }
    pthread_mutex_init(&box->mu, NULL); /* a plain mutex: cannot fail on Linux */
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
    close(box->room);
    pthread_mutex_destroy(&box->mu);
    mem_free(box);
}

static void ring_room(const inbox *box)
{
    uint64_t one = 1;
    ssize_t n = write(box->room, &one, sizeof one);
    (void)n; /* fails only when it is readable already */
}

int inbox_room_fd(const inbox *box)
{
    return box->room;
}

bool inbox_heard_room(inbox *box)
{
    uint64_t rings;
    ssize_t n = read(box->room, &rings, sizeof rings);
    (void)n; /* nothing there: heard already */
    pthread_mutex_lock(&box->mu);
    bool open = !box->aborted;
    pthread_mutex_unlock(&box->mu);
    return open;
}

static bool has_room_locked(const inbox *box, size_t bytes)
{
    if (box->n_waiting == 0) {
        return true;
    }
    return box->n_waiting < INBOX_MAX_ITEMS && box->waiting_bytes < INBOX_MAX_BYTES &&
           bytes <= INBOX_MAX_BYTES - box->waiting_bytes;
}

status inbox_push(inbox *box, inbox_item *item)
{
    status st = ST_OK;
    item->bytes = item->request ? wire_request_bytes(item->request) : item->answer_len;
    pthread_mutex_lock(&box->mu);
    if (box->aborted) {
        st = ST_CLOSED;
    } else if (!has_room_locked(box, item->bytes)) {
        box->full = true;
        st = ST_FULL;
    } else {
        box->items[(box->first + box->len) % INBOX_MAX_ITEMS] = *item;
        box->len++;
        box->n_waiting++;
        box->waiting_bytes += item->bytes;
    }
    pthread_mutex_unlock(&box->mu);
    if (st == ST_OK) {
        bell_ring(box->bell);
    }
    return st;
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
        box->first = (box->first + 1) % INBOX_MAX_ITEMS;
        box->len--;
    }
    pthread_mutex_unlock(&box->mu);
    return some;
}

void inbox_forget(inbox *box, size_t bytes)
{
    pthread_mutex_lock(&box->mu);
    box->n_waiting--;
    box->waiting_bytes -= bytes;
    bool was_full = box->full;
    box->full = false;
    pthread_mutex_unlock(&box->mu);
    if (was_full) {
        ring_room(box);
    }
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
    pthread_mutex_unlock(&box->mu);
    ring_room(box);
}

size_t inbox_waiting(inbox *box)
{
    pthread_mutex_lock(&box->mu);
    size_t n = box->n_waiting;
    pthread_mutex_unlock(&box->mu);
    return n;
}
