#include "serve/fair_queue.h"

#include "base/mem.h"

typedef struct fair_key {
    uint32_t key;
    size_t n_items;
    fair_item *first, *last;
    struct fair_key *prev, *next; /* the ring */
} fair_key;

void fair_queue_init(fair_queue *q, size_t max_items, size_t max_bytes)
{
    *q = (fair_queue){.max_items = max_items, .max_bytes = max_bytes};
}

static fair_key *find(const fair_queue *q, uint32_t key)
{
    fair_key *k = q->turn;
    if (k) {
        do {
            if (k->key == key) {
                return k;
            }
            k = k->next;
        } while (k != q->turn);
    }
    return NULL;
}

/* Last of the round: right before the one whose turn it is. */
static fair_key *add_key(fair_queue *q, uint32_t key)
{
    fair_key *k = mem_calloc(1, sizeof *k);
    if (!k) {
        return NULL;
    }
    k->key = key;
    if (q->turn) {
        k->next = q->turn;
        k->prev = q->turn->prev;
        k->prev->next = k->next->prev = k;
    } else {
        q->turn = k->prev = k->next = k;
    }
    return k;
}

static void drop_key(fair_queue *q, fair_key *k)
{
    k->prev->next = k->next;
    k->next->prev = k->prev;
    if (q->turn == k) {
        q->turn = k->next == k ? NULL : k->next;
    }
    mem_free(k);
}

status fair_queue_push(fair_queue *q, fair_item *item, err *e)
{
    if (q->n_items >= q->max_items || item->n_bytes > q->max_bytes - q->n_bytes) {
        return err_set(e, ST_QUEUE_FULL, NULL, "too many requests are waiting (%zu, %zu bytes)", q->n_items,
                       q->n_bytes);
    }
    fair_key *k = find(q, item->key);
    k = k ? k : add_key(q, item->key);
    if (!k) {
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    item->of = k;
    item->prev = k->last;
    while (item->prev && item->prev->rank > item->rank) {
        item->prev = item->prev->prev;
    }
    item->next = item->prev ? item->prev->next : k->first;
    *(item->prev ? &item->prev->next : &k->first) = item;
    *(item->next ? &item->next->prev : &k->last) = item;
    k->n_items++;
    q->n_items++;
    q->n_bytes += item->n_bytes;
    return ST_OK;
}

void fair_queue_remove(fair_queue *q, fair_item *item)
{
    fair_key *k = item->of;
    if (item->prev) {
        item->prev->next = item->next;
    } else {
        k->first = item->next;
    }
    if (item->next) {
        item->next->prev = item->prev;
    } else {
        k->last = item->prev;
    }
    item->of = NULL;
    item->prev = item->next = NULL;
    q->n_items--;
    q->n_bytes -= item->n_bytes;
    if (--k->n_items == 0) {
        drop_key(q, k);
    }
}

fair_item *fair_queue_pop(fair_queue *q)
{
    fair_key *k = q->turn;
    if (!k) {
        return NULL;
    }
    fair_item *item = k->first;
    q->turn = k->next;
    fair_queue_remove(q, item);
    return item;
}

const fair_item *fair_queue_next(const fair_queue *q)
{
    return q->turn ? q->turn->first : NULL;
}

size_t fair_queue_position(const fair_queue *q, const fair_item *item)
{
    size_t depth = 0; /* of its own key's items, how many are taken before it */
    for (const fair_item *i = item->prev; i; i = i->prev) {
        depth++;
    }
    size_t rounds = depth + 1; /* keys before it in the round get one turn more than the rest */
    size_t n = rounds;         /* its own key's turns */
    const fair_key *k = q->turn;
    do {
        if (k == item->of) {
            rounds = depth;
        } else {
            n += k->n_items < rounds ? k->n_items : rounds;
        }
        k = k->next;
    } while (k != q->turn);
    return n;
}

void fair_queue_release(fair_queue *q)
{
    while (fair_queue_pop(q)) {
    }
}
