#include "serve/session_table.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

#define BUCKETS 1024u

struct session_table {
    session_caps caps;
    size_t n_rows;
    session_row *first, *last;     /* owned: all rows */
    session_row *oldest, *newest;  /* the idle ones */
    session_row *buckets[BUCKETS]; /* by key and name */
    uint32_t *n_of_key;            /* owned: [n_keys] */
    size_t n_keys;
};

static size_t bucket(uint32_t key, const char *name)
{
    return (hash64_keyed(name, strlen(name)) + key) % BUCKETS;
}

status session_table_new(const session_caps *caps, session_table **out)
{
    session_table *t = mem_calloc(1, sizeof *t);
    if (!t) {
        return ST_NOMEM;
    }
    t->caps = *caps;
    *out = t;
    return ST_OK;
}

void session_table_free(session_table *t)
{
    if (!t) {
        return;
    }
    for (session_row *r = t->first, *next; r; r = next) {
        next = r->next;
        mem_free(r);
    }
    mem_free(t->n_of_key);
    mem_free(t);
}

session_row *session_table_find(const session_table *t, uint32_t key, const struct model_service *model,
                                const char *name, bool *several)
{
    session_row *found = NULL;
    if (several) {
        *several = false;
    }
    for (session_row *r = t->buckets[bucket(key, name)]; r; r = r->next_hashed) {
        if (r->key != key || (model && r->model != model) || strcmp(r->name, name) != 0) {
            continue;
        }
        if (several && found) {
            *several = true;
        }
        found = r;
    }
    return found;
}

/*
 * The idle ones. A row that was looked at goes back to its place, which is near the end for those in use.
 */
static void idle_add(session_table *t, session_row *r)
{
    session_row *before = t->newest;
    while (before && before->used_ns > r->used_ns) {
        before = before->older;
    }
    r->idle = true;
    r->older = before;
    r->newer = before ? before->newer : t->oldest;
    *(r->older ? &r->older->newer : &t->oldest) = r;
    *(r->newer ? &r->newer->older : &t->newest) = r;
}

static void idle_remove(session_table *t, session_row *r)
{
    if (r->idle) {
        *(r->older ? &r->older->newer : &t->oldest) = r->newer;
        *(r->newer ? &r->newer->older : &t->newest) = r->older;
        r->older = r->newer = NULL;
        r->idle = false;
    }
}

/*
 * Rows.
 */
static bool make_room_for_key(session_table *t, uint32_t key)
{
    if (key < t->n_keys) {
        return true;
    }
    size_t n = (size_t)key + 1;
    uint32_t *counts = mem_realloc(t->n_of_key, n * sizeof *counts);
    if (!counts) {
        return false;
    }
    memset(counts + t->n_keys, 0, (n - t->n_keys) * sizeof *counts);
    t->n_of_key = counts;
    t->n_keys = n;
    return true;
}

status session_table_add(session_table *t, uint32_t key, struct model_service *model, const char *name,
                         session_hold how, uint64_t now_ns, session_row **out, err *e)
{
    if (key < t->n_keys && t->n_of_key[key] >= t->caps.per_key) {
        return err_set(e, ST_CAPACITY, "session_id",
                       "there are %zu sessions of this key, which is as many as it may have",
                       t->caps.per_key);
    }
    if (t->n_rows >= SESSION_MAX_ROWS) {
        return err_set(e, ST_CAPACITY, "session_id", "there are too many sessions");
    }
    session_row *r = make_room_for_key(t, key) ? mem_calloc(1, sizeof *r) : NULL;
    if (!r) {
        return err_set(e, ST_NOMEM, NULL, "out of memory");
    }
    snprintf(r->name, sizeof r->name, "%s", name);
    r->key = key;
    r->model = model;
    r->created_ns = r->used_ns = now_ns;
    r->prev = t->last;
    *(t->last ? &t->last->next : &t->first) = r;
    t->last = r;
    session_row **at = &t->buckets[bucket(key, name)];
    r->next_hashed = *at;
    *at = r;
    t->n_rows++;
    t->n_of_key[key]++;
    session_table_hold(t, r, how);
    *out = r;
    return ST_OK;
}

static void remove_row(session_table *t, session_row *r)
{
    session_row **at = &t->buckets[bucket(r->key, r->name)];
    while (*at != r) {
        at = &(*at)->next_hashed;
    }
    *at = r->next_hashed;
    *(r->prev ? &r->prev->next : &t->first) = r->next;
    *(r->next ? &r->next->prev : &t->last) = r->prev;
    t->n_rows--;
    t->n_of_key[r->key]--;
    mem_free(r);
}

void session_table_hold(session_table *t, session_row *r, session_hold how)
{
    idle_remove(t, r);
    (*(how == SESSION_TURN ? &r->n_turns : &r->n_ops))++;
}

bool session_table_release(session_table *t, session_row *r, session_hold how, bool used, uint64_t now_ns)
{
    (*(how == SESSION_TURN ? &r->n_turns : &r->n_ops))--;
    if (used) {
        r->used_ns = now_ns;
    }
    if (r->n_turns + r->n_ops > 0) {
        return false;
    }
    if (!r->opened) {
        remove_row(t, r);
        return true;
    }
    idle_add(t, r);
    return false;
}

/*
 * Time.
 */
static uint64_t end_of(const session_table *t, const session_row *r)
{
    uint64_t end;
    return u64_add(r->used_ns, t->caps.ttl_ns, &end) ? end : UINT64_MAX;
}

session_row *session_table_expired(const session_table *t, uint64_t now_ns)
{
    return t->oldest && end_of(t, t->oldest) <= now_ns ? t->oldest : NULL;
}

uint64_t session_table_due_ns(const session_table *t)
{
    return t->oldest ? end_of(t, t->oldest) : UINT64_MAX;
}

uint64_t session_row_end_ns(const session_table *t, const session_row *r)
{
    return r->n_turns == 0 ? end_of(t, r) : UINT64_MAX;
}

uint64_t session_table_room_ns(const session_table *t, uint32_t key)
{
    for (const session_row *r = t->oldest; r; r = r->newer) {
        if (r->key == key) {
            return end_of(t, r);
        }
    }
    return UINT64_MAX;
}

/*
 * All of them.
 */
session_row *session_table_each(const session_table *t, const session_row *r)
{
    return r ? r->next : t->first;
}

session_row *session_table_next(const session_table *t, uint32_t key, const session_row *r)
{
    session_row *next = r ? r->next : t->first;
    while (next && next->key != key) {
        next = next->next;
    }
    return next;
}

size_t session_table_count(const session_table *t, const struct model_service *model)
{
    size_t n = 0;
    for (const session_row *r = t->first; r; r = r->next) {
        n += r->model == model;
    }
    return n;
}
