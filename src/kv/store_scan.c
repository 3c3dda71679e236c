/*
 * Looking through the folder when a store begins, and when its index was lost, in steps, so that reading goes on
 * meanwhile. First what the index says is believed; then every file is looked for in the index and entered if it is
 * missing there (somebody died between file and row, or the index is new); then what the index has and the folder has
 * not goes; at last what is over the budget.
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "kv/store_int.h"

#define STEP_NAMES   64u
#define STEP_SLOTS   4096u
#define STEP_REMOVED 32u
#define DAY_MS       86400000

void store_scan_end(store *s)
{
    if (s->names) {
        closedir(s->names);
        s->names = NULL;
    }
    s->phase = STORE_SCAN_DONE;
}

/* store_has knows what there is to know; looked: and the folder was looked through. */
static void tell(store *s, bool looked)
{
    pthread_mutex_lock(&s->mu);
    bool first = !s->ready;
    s->ready = true;
    s->looked = s->looked || looked;
    pthread_cond_broadcast(&s->rest);
    pthread_mutex_unlock(&s->mu);
    if (first && s->cfg.wake) {
        s->cfg.wake(s->cfg.wake_ctx);
    }
}

static void finish(store *s)
{
    store_scan_end(s);
    s->looked_at_ns = clock_mono_ns(clock_system());
    store_tell_totals(s);
    tell(s, true);
}

/* It is there until a step finds that it is not. */
static void believe(void *ctx, const store_key *key)
{
    store *s = ctx;
    if (!store_keys_find(&s->keys, key)) {
        store_learn(s, key, STORE_KEY_THERE);
    }
}

static DIR *open_names(const store *s)
{
    int fd = openat(s->folder.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d && fd >= 0) {
        close(fd);
    }
    return d;
}

void store_scan_begin(store *s)
{
    err e;
    store_scan_end(s);
    s->seq = 0;
    s->scan_at = 0;
    if (s->index && store_index_went(s, store_index_since(s->index, &s->seq, believe, s, &e), &e) &&
        !s->index_is_new) {
        tell(s, false);
    }
    s->round++;
    s->names = s->folder.fd >= 0 ? open_names(s) : NULL;
    if (s->names) {
        s->phase = STORE_SCAN_NAMES;
        return;
    }
    if (s->folder.fd >= 0) {
        (void)err_set(&e, ST_IO, NULL, "cannot list the folder");
        store_stop_writing(s, &e);
    }
    finish(s);
}

/*
 * Names
 */
static status enter_row(store *s, const store_key *key, err *e)
{
    store_entry file;
    status st = store_folder_look(&s->folder, key, &file, e);
    if (st == ST_BAD_FORMAT) {
        store_refuse(s, key, e);
    }
    if (st != ST_OK) {
        return ST_OK;
    }
    int64_t used = file.modified_ms > 0 ? file.modified_ms : 1, today = store_day(s);
    st = store_index_add(s->index, key, &file.parent, file.bytes, used, 0, e);
    if (st == ST_OK && s->index_is_new && file.modified_ms / DAY_MS == today) {
        st = store_index_spend(s->index, today, file.bytes, e);
    }
    if (st == ST_OK) {
        store_learn(s, key, STORE_KEY_THERE);
    }
    return st;
}

static status see_name(store *s, const char *name, err *e)
{
    store_key key;
    store_entry_kind kind = store_folder_kind(name, &key);
    if (kind == STORE_ENTRY_TEMP) {
        store_folder_sweep(&s->folder, name);
    }
    const store_key_slot *slot = kind == STORE_ENTRY_PAGE ? store_keys_find(&s->keys, &key) : NULL;
    if (kind != STORE_ENTRY_PAGE || (slot && slot->state == STORE_KEY_REFUSED)) {
        return ST_OK;
    }
    status st = s->index ? store_index_has(s->index, &key, e) : ST_OK;
    if (st == ST_NOT_FOUND) {
        return enter_row(s, &key, e);
    }
    if (st == ST_OK) {
        store_learn(s, &key, STORE_KEY_THERE);
    }
    return st;
}

static status see_names(store *s, err *e)
{
    const struct dirent *entry = readdir(s->names);
    status st = ST_OK;
    for (unsigned i = 1; entry && st == ST_OK; i++) {
        st = see_name(s, entry->d_name, e);
        if (i == STEP_NAMES) {
            return st;
        }
        entry = readdir(s->names);
    }
    if (!entry) {
        s->phase = STORE_SCAN_ROWS;
        s->scan_at = 0;
    }
    return st;
}

/*
 * Rows. Whoever is removed makes others move up into its place.
 */
static status see_slots(store *s, err *e)
{
    status st = ST_OK;
    for (unsigned i = 0; i < STEP_SLOTS && s->scan_at < s->keys.cap && st == ST_OK; i++) {
        const store_key_slot slot = s->keys.slots[s->scan_at];
        if (slot.state != STORE_KEY_THERE || slot.round == s->round ||
            store_folder_has(&s->folder, &slot.key)) {
            s->scan_at++;
            continue;
        }
        store_forget(s, &slot.key);
        st = s->index ? store_index_remove(s->index, &slot.key, e) : ST_OK;
    }
    if (s->scan_at >= s->keys.cap) {
        s->phase = STORE_SCAN_BUDGET;
    }
    return st;
}

/*
 * All steps are a transaction each. What one of them could not enter, for want of memory, the next start enters.
 */
static void step(store *s, status (*see)(store *s, err *e))
{
    err e;
    status st = s->index ? store_index_begin(s->index, &e) : ST_OK;
    if (!store_index_went(s, st, &e)) {
        return; /* another worker has it: again in the next step; or there is none any more */
    }
    st = see(s, &e);
    if (store_index_went(s, st, &e) && s->index) {
        (void)store_index_went(s, store_index_commit(s->index, &e), &e);
    }
}

static void step_budget(store *s)
{
    err e;
    status st = store_index_begin(s->index, &e);
    st = st == ST_OK ? store_make_room(s, 0, &(const store_key){{0}}, STEP_REMOVED, &e) : st;
    bool more = st == ST_FULL;
    if (st == ST_OK || st == ST_FULL || st == ST_NOT_FOUND) {
        st = store_index_commit(s->index, &e);
    }
    if (store_index_went(s, st, &e) && !more) {
        finish(s);
    }
}

void store_scan_step(store *s)
{
    err e;
    store_scan_phase before = s->phase;
    if (s->phase == STORE_SCAN_NAMES) {
        step(s, see_names);
    } else if (s->phase == STORE_SCAN_ROWS) {
        step(s, see_slots);
    } else if (s->index) {
        step_budget(s);
    } else {
        finish(s);
    }
    if (before == STORE_SCAN_ROWS && s->phase == STORE_SCAN_BUDGET && s->index) {
        (void)store_index_went(s, store_index_recount(s->index, &e), &e);
    }
}
