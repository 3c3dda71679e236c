#include "kv/store.h"

#include <assert.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "kv/store_int.h"

#define MIN_SLOTS 2u
#define DAY_MS    86400000
#define MAX_SLOTS 65536u

int64_t store_day(const store *s)
{
    return clock_wall_ms(s->cfg.clock) / DAY_MS;
}

static void list_init(store_get_list *l)
{
    l->first = NULL;
    l->end = &l->first;
}

static void list_free(store_get_list *l)
{
    while (l->first) {
        store_get_job *next = l->first->next;
        mem_free(l->first);
        l->first = next;
    }
    list_init(l);
}

static status begin(store *s, err *e)
{
    pthread_condattr_t attr;
    pthread_mutex_init(&s->mu, NULL); /* plain ones: cannot fail on Linux */
    pthread_cond_init(&s->rest, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->work, &attr);
    pthread_condattr_destroy(&attr);
    int rc = pthread_create(&s->thread, NULL, store_thread, s);
    if (rc == 0) {
        return ST_OK;
    }
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->rest);
    pthread_mutex_destroy(&s->mu);
    return err_set(e, ST_NOMEM, NULL, "cannot start the store's thread: %s", strerror(rc));
}

static void release(store *s)
{
    if (!s) {
        return;
    }
    list_free(&s->gets);
    list_free(&s->results);
    list_free(&s->spare);
    mem_unreserve(s->pages, s->n_slots * s->cfg.page_bytes);
    mem_free(s->puts);
    mem_free(s->free_pages);
    store_keys_release(&s->keys);
    mem_free(s->dir);
    mem_free(s);
}

static status check_config(const store_config *cfg, size_t *n_slots, err *e)
{
    if (!cfg->dir || cfg->dir[0] != '/') {
        return err_set(e, ST_INVALID_FIELD, "dir", "the store's folder is no absolute path");
    }
    if (cfg->page_bytes == 0) {
        return err_set(e, ST_INVALID_FIELD, "page_bytes", "pages of 0 bytes");
    }
    size_t n = cfg->queue_bytes / cfg->page_bytes, all;
    n = n < MIN_SLOTS ? MIN_SLOTS : n > MAX_SLOTS ? MAX_SLOTS : n;
    if (!size_mul(n, cfg->page_bytes, &all)) {
        return err_set(e, ST_INVALID_FIELD, "page_bytes", "pages of %zu bytes", cfg->page_bytes);
    }
    *n_slots = n;
    return ST_OK;
}

static bool allocate(store *s)
{
    s->cfg.dir = s->dir = mem_strdup(s->cfg.dir);
    s->puts = mem_calloc(s->n_slots, sizeof *s->puts);
    s->free_pages = mem_calloc(s->n_slots, sizeof *s->free_pages);
    s->pages = mem_reserve(s->n_slots * s->cfg.page_bytes);
    if (!s->dir || !s->puts || !s->free_pages || !s->pages) {
        return false;
    }
    for (size_t i = 0; i < s->n_slots; i++) {
        s->free_pages[i] = (char *)s->pages + (s->n_slots - 1 - i) * s->cfg.page_bytes;
    }
    s->n_free = s->n_slots;
    return true;
}

status store_open(const store_config *cfg, store **out, err *e)
{
    size_t n_slots = 0;
    status st = check_config(cfg, &n_slots, e);
    if (st != ST_OK) {
        return st;
    }
    store *s = mem_calloc(1, sizeof *s);
    if (!s) {
        return err_set(e, ST_NOMEM, NULL, "out of memory for the store");
    }
    s->cfg = *cfg;
    s->n_slots = n_slots;
    s->file_bytes = STORE_HEADER_BYTES + (uint64_t)cfg->page_bytes;
    s->folder.fd = -1;
    s->full_day = -1;
    s->stats.reads = s->stats.writes = true;
    list_init(&s->gets);
    list_init(&s->results);
    list_init(&s->spare);
    st = allocate(s) ? begin(s, e) : err_set(e, ST_NOMEM, NULL, "out of memory for the store");
    if (st != ST_OK) {
        release(s);
        return st;
    }
    *out = s;
    return ST_OK;
}

void store_close(store *s, unsigned wait_ms)
{
    if (!s) {
        return;
    }
    pthread_mutex_lock(&s->mu);
    s->stop = true;
    s->stop_at_ns = clock_mono_ns(clock_system()) + (uint64_t)wait_ms * 1000000;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->mu);
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->rest);
    pthread_mutex_destroy(&s->mu);
    release(s);
}

/* A put that waits, or is being written. */
static bool is_queued_locked(const store *s, const store_key *key)
{
    for (size_t i = 0; i < s->n_puts; i++) {
        if (memcmp(&s->puts[(s->first + i) % s->n_slots].key, key, sizeof *key) == 0) {
            return true;
        }
    }
    return false;
}

static bool has_locked(const store *s, const store_key *key)
{
    const store_key_slot *slot = store_keys_find(&s->keys, key);
    return s->stats.reads && ((slot && slot->state == STORE_KEY_THERE) || is_queued_locked(s, key));
}

static bool is_no_key(const store_key *key)
{
    static const store_key none;
    return memcmp(key, &none, sizeof none) == 0;
}

bool store_has(store *s, const store_key *key)
{
    pthread_mutex_lock(&s->mu);
    bool has = has_locked(s, key);
    pthread_mutex_unlock(&s->mu);
    return has;
}

/* The slot behind the last put; NULL: this one is not to be written. */
static store_put_job *slot_for_locked(store *s, const store_key *key, int64_t today)
{
    if (is_no_key(key) || has_locked(s, key)) {
        return NULL;
    }
    if (!s->stats.writes || s->stop || s->n_puts == s->n_slots || s->full_day == today) {
        s->stats.not_written++;
        return NULL;
    }
    store_put_job *job = &s->puts[(s->first + s->n_puts) % s->n_slots];
    job->page = s->free_pages[--s->n_free];
    return job;
}

static void fill_header(const store *s, store_header *h, const kv_root_key *root, const store_key *parent,
                        const int32_t *ids, size_t n)
{
    store_header_make(h, root, parent, ids, n);
    memcpy(h->layout, s->cfg.layout, sizeof h->layout);
    h->page_bytes = s->cfg.page_bytes;
}

bool store_put(store *s, const kv_root_key *root, const store_key *parent, const int32_t *ids, size_t n,
               const void *page)
{
    const store_key key = store_chain(root, parent, ids, n);
    int64_t today = store_day(s);
    pthread_mutex_lock(&s->mu);
    store_put_job *job = slot_for_locked(s, &key, today);
    pthread_mutex_unlock(&s->mu);
    if (!job) {
        return false;
    }
    job->key = key; /* nobody looks at it yet */
    fill_header(s, &job->header, root, parent, ids, n);
    memcpy(job->page, page, s->cfg.page_bytes);
    pthread_mutex_lock(&s->mu);
    s->n_puts++;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->mu);
    return true;
}

static store_get_job *take_spare_locked(store *s)
{
    store_get_job *job = s->spare.first;
    if (job) {
        s->spare.first = job->next;
        if (!s->spare.first) {
            s->spare.end = &s->spare.first;
        }
    }
    return job;
}

bool store_get(store *s, const kv_root_key *root, const store_key *parent, const int32_t *ids, size_t n,
               void *dst, uint64_t ticket)
{
    const store_key key = store_chain(root, parent, ids, n);
    pthread_mutex_lock(&s->mu);
    bool on = s->stats.reads && !s->stop && !is_no_key(&key);
    store_get_job *job = on ? take_spare_locked(s) : NULL;
    pthread_mutex_unlock(&s->mu);
    if (!on) {
        return false;
    }
    job = job ? job : mem_alloc(sizeof *job);
    if (!job) {
        return false;
    }
    *job = (store_get_job){.key = key, .dst = dst, .ticket = ticket};
    fill_header(s, &job->header, root, parent, ids, n);
    pthread_mutex_lock(&s->mu);
    *s->gets.end = job;
    s->gets.end = &job->next;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->mu);
    return true;
}

size_t store_poll(store *s, store_result *out, size_t most)
{
    size_t n = 0;
    pthread_mutex_lock(&s->mu);
    while (n < most && s->results.first) {
        store_get_job *job = s->results.first;
        out[n++] = (store_result){.ticket = job->ticket, .ok = job->ok};
        s->results.first = job->next;
        if (!s->results.first) {
            s->results.end = &s->results.first;
        }
        job->next = s->spare.first; /* as many as ever waited at once */
        s->spare.first = job;
        if (!job->next) {
            s->spare.end = &job->next;
        }
    }
    pthread_mutex_unlock(&s->mu);
    return n;
}

void store_flush(store *s)
{
    pthread_mutex_lock(&s->mu);
    uint64_t end = s->puts_ended + s->n_puts;
    while (!s->looked || s->puts_ended < end) {
        pthread_cond_wait(&s->rest, &s->mu);
    }
    pthread_mutex_unlock(&s->mu);
}

bool store_ready(store *s)
{
    pthread_mutex_lock(&s->mu);
    bool ready = s->ready;
    pthread_mutex_unlock(&s->mu);
    return ready;
}

/* The lock is not part of what a reader may not change. */
static pthread_mutex_t *lock_of(const store *s)
{
    union {
        const pthread_mutex_t *in;
        pthread_mutex_t *out;
    } u = {&s->mu};
    return u.out;
}

store_stats store_stats_read(const store *s)
{
    pthread_mutex_lock(lock_of(s));
    store_stats stats = s->stats;
    stats.queued_bytes = (uint64_t)s->n_puts * s->cfg.page_bytes;
    pthread_mutex_unlock(lock_of(s));
    return stats;
}
