#include "worker/turns.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "base/mem.h"

#define N_BUCKETS ((size_t)1 << 14)

typedef struct entry {
    turn turn;
    struct entry *chain;
    struct entry *newer, *older; /* by use */
    size_t bytes;
    size_t n_got;
    bool kept; /* in table and list; else it only waits for those who have it */
} entry;

struct turns {
    pthread_mutex_t mu;
    size_t max_bytes;
    /* guarded by mu */
    entry **buckets; /* [N_BUCKETS] */
    entry *newest, *oldest;
    size_t n, bytes;
};

status turns_new(size_t max_bytes, turns **out)
{
    turns *t = mem_calloc(1, sizeof *t);
    if (!t) {
        return ST_NOMEM;
    }
    t->buckets = mem_calloc(N_BUCKETS, sizeof *t->buckets);
    if (!t->buckets) {
        mem_free(t);
        return ST_NOMEM;
    }
    t->max_bytes = max_bytes;
    pthread_mutex_init(&t->mu, NULL); /* a plain one: cannot fail on Linux */
    *out = t;
    return ST_OK;
}

void turns_free(turns *t)
{
    if (!t) {
        return;
    }
    for (entry *x = t->newest, *next; x; x = next) {
        next = x->older;
        mem_free(x);
    }
    pthread_mutex_destroy(&t->mu);
    mem_free(t->buckets);
    mem_free(t);
}

/*
 * Table and list
 */
static entry **bucket_of(turns *t, const uint8_t *key)
{
    uint64_t h;
    assert(key);
    memcpy(&h, key, sizeof h); /* of a digest: as good as any hash of it */
    return &t->buckets[h % N_BUCKETS];
}

static entry *find_locked(turns *t, const uint8_t *key)
{
    entry *x = *bucket_of(t, key);
    while (x && memcmp(x->turn.key, key, SHA256_BYTES) != 0) {
        x = x->chain;
    }
    return x;
}

static void unlist_locked(turns *t, entry *x)
{
    *(x->newer ? &x->newer->older : &t->newest) = x->older;
    *(x->older ? &x->older->newer : &t->oldest) = x->newer;
}

static void list_locked(turns *t, entry *x)
{
    x->newer = NULL;
    x->older = t->newest;
    *(t->newest ? &t->newest->newer : &t->oldest) = x;
    t->newest = x;
}

static void forget_locked(turns *t, entry *x)
{
    entry **at = bucket_of(t, x->turn.key);
    while (*at != x) {
        at = &(*at)->chain;
    }
    *at = x->chain;
    unlist_locked(t, x);
    t->n--;
    t->bytes -= x->bytes;
    x->kept = false;
    if (x->n_got == 0) {
        mem_free(x);
    }
}

static void keep_locked(turns *t, entry *x)
{
    entry **first = bucket_of(t, x->turn.key);
    entry *same = find_locked(t, x->turn.key);
    if (same) {
        forget_locked(t, same);
    }
    x->chain = *first;
    *first = x;
    list_locked(t, x);
    x->kept = true;
    t->n++;
    t->bytes += x->bytes;
    while (t->n > TURNS_MAX || t->bytes > t->max_bytes) {
        forget_locked(t, t->oldest);
    }
}

/*
 * Turns
 */
/* One block: the entry, ids, rest, reasoning. NULL with *too_large: nothing is wrong. */
static entry *copy(const turn *what, size_t max_bytes, bool *too_large)
{
    size_t id_bytes, bytes = sizeof(entry);
    bool fits = size_mul(what->n_ids, sizeof *what->ids, &id_bytes) && size_add(bytes, id_bytes, &bytes) &&
                size_add(bytes, what->n_rest, &bytes) && size_add(bytes, what->n_reasoning, &bytes) &&
                bytes <= max_bytes;
    *too_large = !fits;
    entry *x = fits ? mem_alloc(bytes) : NULL;
    if (!x) {
        return NULL;
    }
    memset(x, 0, sizeof *x);
    x->turn = *what;
    x->bytes = bytes;
    int32_t *ids = (int32_t *)(x + 1);
    char *rest = (char *)ids + id_bytes, *reasoning = rest + what->n_rest;
    if (id_bytes > 0) {
        memcpy(ids, what->ids, id_bytes);
    }
    if (what->n_rest > 0) {
        memcpy(rest, what->rest, what->n_rest);
    }
    if (what->n_reasoning > 0) {
        memcpy(reasoning, what->reasoning, what->n_reasoning);
    }
    x->turn.ids = ids;
    x->turn.rest = rest;
    x->turn.reasoning = reasoning;
    x->turn.entry = x;
    return x;
}

status turns_put(turns *t, const turn *what)
{
    bool too_large;
    entry *x = copy(what, t->max_bytes, &too_large);
    if (!x) {
        return too_large ? ST_OK : ST_NOMEM;
    }
    pthread_mutex_lock(&t->mu);
    keep_locked(t, x);
    pthread_mutex_unlock(&t->mu);
    return ST_OK;
}

const turn *turns_get(turns *t, const uint8_t key[SHA256_BYTES])
{
    pthread_mutex_lock(&t->mu);
    entry *x = find_locked(t, key);
    if (x) {
        x->n_got++;
        unlist_locked(t, x);
        list_locked(t, x);
    }
    pthread_mutex_unlock(&t->mu);
    return x ? &x->turn : NULL;
}

void turns_unget(turns *t, const turn *what)
{
    if (!what) {
        return;
    }
    entry *x = what->entry;
    pthread_mutex_lock(&t->mu);
    x->n_got--;
    if (x->n_got == 0 && !x->kept) {
        mem_free(x);
    }
    pthread_mutex_unlock(&t->mu);
}

turns_figures turns_count(turns *t)
{
    pthread_mutex_lock(&t->mu);
    turns_figures f = {t->n, t->bytes};
    pthread_mutex_unlock(&t->mu);
    return f;
}
