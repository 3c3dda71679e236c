/* The store's thread: what it does next, one file read, one file written, and what follows when something cannot be. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "kv/store_int.h"

#define NEWS_NS      2000000000u /* how often it looks for what others added */
#define MAX_REBUILDS 3u          /* of the index, in the life of a store */

static const store_key no_key;

static uint64_t now_ns(void)
{
    return clock_mono_ns(clock_system()); /* waits are real, also where the day is not */
}

/*
 * What is known
 */
static void keys_grow(store *s)
{
    store_keys bigger, old = s->keys;
    if (!store_keys_grown(&s->keys, &bigger)) {
        return;
    }
    pthread_mutex_lock(&s->mu);
    s->keys = bigger;
    pthread_mutex_unlock(&s->mu);
    store_keys_release(&old);
    s->scan_at = 0; /* all have another place now */
}

void store_learn(store *s, const store_key *key, store_key_state state)
{
    if (store_keys_full(&s->keys)) {
        keys_grow(s);
    }
    pthread_mutex_lock(&s->mu);
    if (s->keys.n + 1 < s->keys.cap) { /* no memory for more: it is there, and nobody knows */
        store_keys_put(&s->keys, key, state, s->round);
    }
    pthread_mutex_unlock(&s->mu);
}

void store_forget(store *s, const store_key *key)
{
    pthread_mutex_lock(&s->mu);
    store_keys_remove(&s->keys, key);
    pthread_mutex_unlock(&s->mu);
}

void store_tell_totals(store *s)
{
    err e;
    store_index_totals t = {.files = s->keys.n, .bytes = s->keys.n * s->file_bytes};
    if (s->index && !store_index_went(s, store_index_totals_read(s->index, &t, &e), &e)) {
        return;
    }
    pthread_mutex_lock(&s->mu);
    s->stats.files = t.files;
    s->stats.bytes = t.bytes;
    pthread_mutex_unlock(&s->mu);
}

/*
 * What cannot be
 */
static void close_index(store *s)
{
    store_index_close(s->index);
    s->index = NULL;
    s->n_used = 0;
}

void store_stop_writing(store *s, const err *why)
{
    bool reads = s->stats.reads && s->folder.fd >= 0 && !store_folder_is_gone(&s->folder);
    if (s->stats.writes) {
        log_emit(LOG_WARN, "store", "event=%s dir=\"%s\" error=\"%s\"", reads ? "writing_stopped" : "off",
                 s->dir, why->msg);
    }
    pthread_mutex_lock(&s->mu);
    s->stats.writes = false;
    s->stats.reads = reads;
    pthread_mutex_unlock(&s->mu);
    close_index(s);
}

static bool is_to_end(void *ctx)
{
    store *s = ctx;
    pthread_mutex_lock(&s->mu);
    bool end = s->stop && (s->n_puts == 0 || now_ns() >= s->stop_at_ns);
    pthread_mutex_unlock(&s->mu);
    return end;
}

static void open_index(store *s, bool fresh)
{
    const store_patience patience = {is_to_end, s};
    err e;
    bool made = false;
    status st = store_index_open(s->dir, s->folder.fd, fresh, &patience, &s->index, &made, &e);
    if (st == ST_BAD_FORMAT && !fresh) {
        log_emit(LOG_WARN, "store", "event=index_made_anew dir=\"%s\" reason=\"%s\"", s->dir, e.msg);
        st = store_index_open(s->dir, s->folder.fd, true, &patience, &s->index, &made, &e);
    }
    s->index_is_new = made;
    if (st != ST_OK) {
        store_stop_writing(s, &e);
    }
}

bool store_index_went(store *s, status st, const err *e)
{
    switch (st) {
    case ST_OK:
        return true;
    case ST_IO:
        store_stop_writing(s, e);
        return false;
    case ST_BAD_FORMAT:
        close_index(s);
        if (s->n_rebuilds++ == MAX_REBUILDS) {
            store_stop_writing(s, e);
            return false;
        }
        log_emit(LOG_WARN, "store", "event=index_made_anew dir=\"%s\" reason=\"%s\"", s->dir, e->msg);
        s->index_lost = true; /* the next turn makes another */
        return false;
    default: /* no memory, or another worker had it for too long: it is done without */
        return false;
    }
}

void store_refuse(store *s, const store_key *key, const err *why)
{
    err e;
    bool removed = store_folder_remove(&s->folder, key, &e) == ST_OK;
    if (!s->bad_was_told) { /* one tells all: they are counted */
        char name[SHA256_HEX_LEN + 1];
        hex_encode(key->bytes, sizeof key->bytes, name);
        log_emit(LOG_WARN, "store", "event=bad_file dir=\"%s\" key=%s removed=%d reason=\"%s\"", s->dir, name,
                 removed, why->msg);
        s->bad_was_told = true;
    }
    pthread_mutex_lock(&s->mu);
    s->stats.bad++;
    pthread_mutex_unlock(&s->mu);
    if (removed) {
        store_forget(s, key);
    } else {
        store_learn(s, key, STORE_KEY_REFUSED);
    }
}

static void tell_used(store *s)
{
    err e;
    size_t n = s->n_used;
    s->n_used = 0;
    if (s->index && n > 0) {
        (void)store_index_went(s, store_index_use(s->index, s->used, n, clock_wall_ms(s->cfg.clock), &e), &e);
    }
}

/*
 * Reading
 */
static const store_put_job *queued_put(store *s, const store_key *key)
{
    const store_put_job *found = NULL;
    pthread_mutex_lock(&s->mu);
    for (size_t i = 0; i < s->n_puts && !found; i++) {
        const store_put_job *job = &s->puts[(s->first + i) % s->n_slots];
        found = memcmp(&job->key, key, sizeof *key) == 0 ? job : NULL;
    }
    pthread_mutex_unlock(&s->mu);
    return found; /* it stays until this thread ends it */
}

static status read_page(store *s, const store_get_job *job, err *e)
{
    const store_put_job *put = queued_put(s, &job->key);
    const store_key_slot *slot = store_keys_find(&s->keys, &job->key);
    if (put) {
        memcpy(job->dst, put->page, s->cfg.page_bytes);
        return ST_OK;
    }
    if (!s->stats.reads || (slot && slot->state == STORE_KEY_REFUSED)) {
        return ST_NOT_FOUND;
    }
    status st = store_folder_read(&s->folder, &job->key, &job->header, job->dst, s->soon, s->n_soon, e);
    if (st == ST_OK) {
        if (s->n_used == STORE_MAX_USED) {
            tell_used(s);
        }
        s->used[s->n_used++] = job->key;
        if (!slot) {
            store_learn(s, &job->key, STORE_KEY_THERE);
        }
    }
    return st;
}

/* A file that is not there has no row: the row comes after the file, and goes with it. */
static void drop_row(store *s, const store_key *key)
{
    err e;
    if (s->index && store_index_went(s, store_index_remove(s->index, key, &e), &e)) {
        store_tell_totals(s);
    }
}

static bool is_known(const store *s, const store_key *key)
{
    const store_key_slot *slot = store_keys_find(&s->keys, key);
    return slot && slot->state == STORE_KEY_THERE;
}

static void serve_get(store *s, store_get_job *job)
{
    err e;
    status st = read_page(s, job, &e);
    if (st == ST_BAD_FORMAT) {
        store_refuse(s, &job->key, &e);
        drop_row(s, &job->key);
    } else if (st == ST_NOT_FOUND && is_known(s, &job->key)) {
        store_forget(s, &job->key);
        drop_row(s, &job->key);
    }
    pthread_mutex_lock(&s->mu);
    job->ok = st == ST_OK;
    s->stats.read += job->ok;
    s->stats.missed += st != ST_OK && st != ST_BAD_FORMAT;
    job->next = NULL;
    *s->results.end = job;
    s->results.end = &job->next;
    pthread_mutex_unlock(&s->mu);
    if (s->cfg.wake) {
        s->cfg.wake(s->cfg.wake_ctx);
    }
    /* the job is the caller's from here on */
}

/*
 * Writing
 */
status store_make_room(store *s, uint64_t bytes, const store_key *except, size_t most, err *e)
{
    store_index_totals t;
    store_key victim;
    status st = store_index_totals_read(s->index, &t, e);
    while (st == ST_OK && (bytes > s->cfg.budget_bytes || t.bytes > s->cfg.budget_bytes - bytes)) {
        if (most-- == 0) {
            return ST_FULL;
        }
        st = store_index_victim(s->index, except, &victim, e);
        if (st != ST_OK) {
            return st;
        }
        st = store_folder_remove(&s->folder, &victim, e);
        if (st != ST_OK) {
            store_index_rollback(s->index);
            return st;
        }
        store_forget(s, &victim);
        st = store_index_remove(s->index, &victim, e);
        st = st == ST_OK ? store_index_totals_read(s->index, &t, e) : st;
    }
    return st;
}

static status parent_is_there(store *s, const store_key *parent, err *e)
{
    return memcmp(parent, &no_key, sizeof no_key) == 0 ? ST_OK : store_index_has(s->index, parent, e);
}

/* ST_NOT_FOUND: not now, for reasons that are none of the disk's. */
static status may_write(store *s, const store_put_job *job, err *e)
{
    const store_key *parent = &job->header.parent;
    store_index_totals t;
    int64_t today = store_day(s);
    status st = store_index_totals_read(s->index, &t, e);
    st = st == ST_OK ? parent_is_there(s, parent, e) : st;
    if (st != ST_OK) {
        return st;
    }
    uint64_t spent = t.day == today ? t.day_bytes : 0, limit = s->cfg.daily_write_bytes;
    if (limit && (s->file_bytes > limit || spent > limit - s->file_bytes)) {
        pthread_mutex_lock(&s->mu);
        s->full_day = today;
        pthread_mutex_unlock(&s->mu);
        return ST_NOT_FOUND;
    }
    if (s->file_bytes > s->cfg.budget_bytes) {
        return ST_NOT_FOUND;
    }
    if (t.bytes <= s->cfg.budget_bytes - s->file_bytes) {
        return ST_OK;
    }
    tell_used(s); /* what was read just now is not the one to go */
    if (!s->index) {
        return ST_NOT_FOUND;
    }
    st = store_index_begin(s->index, e);
    st = st == ST_OK ? store_make_room(s, s->file_bytes, parent, SIZE_MAX, e) : st;
    if (st == ST_OK || st == ST_NOT_FOUND) {
        status committed = store_index_commit(s->index, e);
        st = committed == ST_OK ? st : committed;
    }
    return st;
}

/* The file comes before its row, and both while nobody else changes the index. */
static status enter(store *s, const store_put_job *job, store_temp *t, err *e)
{
    const store_key *parent = &job->header.parent;
    status st = store_index_begin(s->index, e);
    st = st == ST_OK ? parent_is_there(s, parent, e) : st; /* still */
    st = st == ST_OK ? store_make_room(s, s->file_bytes, parent, SIZE_MAX, e) : st;
    if (st != ST_OK) {
        store_folder_drop(&s->folder, t);
        store_index_rollback(s->index);
        return st;
    }
    st = store_folder_place(&s->folder, t, &job->key, e);
    if (st != ST_OK) {
        store_index_rollback(s->index);
        return st;
    }
    store_learn(s, &job->key, STORE_KEY_THERE);
    st = store_index_add(s->index, &job->key, parent, s->file_bytes, 0, clock_wall_ms(s->cfg.clock), e);
    st = st == ST_OK ? store_index_spend(s->index, store_day(s), s->file_bytes, e) : st;
    return st == ST_OK ? store_index_commit(s->index, e) : st;
}

static bool write_page(store *s, const store_put_job *job)
{
    err e = {.code = ST_OK};
    store_temp t;
    status st = may_write(s, job, &e);
    if (st == ST_OK) {
        st = store_folder_write(&s->folder, &job->header, job->page, &t, &e);
        st = st == ST_OK ? enter(s, job, &t, &e) : st;
    }
    return st != ST_NOT_FOUND && store_index_went(s, st, &e);
}

static void serve_put(store *s)
{
    const store_put_job *job = &s->puts[s->first];
    bool known = is_known(s, &job->key); /* by now: another worker has written it */
    bool written = !known && s->index && write_page(s, job);
    pthread_mutex_lock(&s->mu);
    s->stats.written += written;
    s->stats.written_bytes += written ? s->file_bytes : 0;
    s->stats.not_written += !written && !known;
    pthread_mutex_unlock(&s->mu);
    store_tell_totals(s);
    pthread_mutex_lock(&s->mu);
    s->free_pages[s->n_free++] = job->page;
    s->first = (s->first + 1) % s->n_slots;
    s->n_puts--;
    s->puts_ended++;
    pthread_cond_broadcast(&s->rest);
    pthread_mutex_unlock(&s->mu);
}

/*
 * What others did
 */
static void learn_news(void *ctx, const store_key *key)
{
    store *s = ctx;
    const store_key_slot *slot = store_keys_find(&s->keys, key);
    if (!slot || slot->state != STORE_KEY_REFUSED) {
        store_learn(s, key, STORE_KEY_THERE);
    }
}

static void look_for_news(store *s)
{
    err e;
    s->looked_at_ns = now_ns();
    if (store_index_is_stale(s->index)) {
        close_index(s);
        open_index(s, false);
        store_scan_begin(s);
    } else if (store_index_went(s, store_index_since(s->index, &s->seq, learn_news, s, &e), &e)) {
        store_tell_totals(s);
    }
}

/*
 * Turns
 */
typedef enum turn { TURN_END, TURN_GET, TURN_INDEX, TURN_SCAN, TURN_PUT, TURN_USED, TURN_NEWS } turn;

static struct timespec time_of(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
}

static turn choose_locked(const store *s, bool *idle)
{
    *idle = false;
    if (s->gets.first && !s->stop) {
        return TURN_GET;
    }
    if (s->stop && (s->n_puts == 0 || now_ns() >= s->stop_at_ns)) {
        return TURN_END;
    }
    if (s->index_lost) {
        return TURN_INDEX;
    }
    if (s->phase != STORE_SCAN_DONE) {
        return TURN_SCAN;
    }
    if (s->index && now_ns() - s->looked_at_ns >= NEWS_NS) {
        return TURN_NEWS;
    }
    if (s->n_puts > 0) {
        return TURN_PUT;
    }
    *idle = s->n_used == 0;
    return TURN_USED;
}

/* The first of the gets, and what is asked for behind it. */
static store_get_job *take_get_locked(store *s)
{
    store_get_job *job = s->gets.first;
    s->gets.first = job->next;
    if (!s->gets.first) {
        s->gets.end = &s->gets.first;
    }
    s->n_soon = 0;
    for (const store_get_job *soon = job->next; soon && s->n_soon < STORE_AHEAD; soon = soon->next) {
        const store_key_slot *slot = store_keys_find(&s->keys, &soon->key);
        if (!slot || slot->state != STORE_KEY_REFUSED) {
            s->soon[s->n_soon++] = soon->key;
        }
    }
    return job;
}

static turn next_turn(store *s, store_get_job **job)
{
    bool idle;
    turn next;
    pthread_mutex_lock(&s->mu);
    while (next = choose_locked(s, &idle), idle) {
        if (s->index) {
            const struct timespec until = time_of(s->looked_at_ns + NEWS_NS);
            (void)pthread_cond_timedwait(&s->work, &s->mu, &until);
        } else {
            pthread_cond_wait(&s->work, &s->mu);
        }
    }
    if (next == TURN_GET) {
        *job = take_get_locked(s);
    }
    pthread_mutex_unlock(&s->mu);
    return next;
}

static void begin(store *s)
{
    err e;
    if (store_folder_open(&s->folder, s->dir, s->cfg.seam, &e) != ST_OK) {
        store_stop_writing(s, &e);
    } else {
        open_index(s, false);
    }
    store_scan_begin(s);
}

void *store_thread(void *arg)
{
    store *s = arg;
    store_get_job *job = NULL;
    turn next;
    pthread_setname_np(pthread_self(), "hearth-store");
    begin(s);
    while ((next = next_turn(s, &job)) != TURN_END) {
        switch (next) {
        case TURN_GET:
            serve_get(s, job);
            break;
        case TURN_INDEX:
            s->index_lost = false;
            open_index(s, true);
            store_scan_begin(s);
            break;
        case TURN_SCAN:
            store_scan_step(s);
            break;
        case TURN_PUT:
            serve_put(s);
            break;
        case TURN_NEWS:
            look_for_news(s);
            break;
        default:
            tell_used(s);
        }
    }
    tell_used(s);
    store_scan_end(s);
    close_index(s);
    store_folder_close(&s->folder);
    return NULL;
}
